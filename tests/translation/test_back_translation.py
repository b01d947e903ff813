"""Pairs from text of one side: a fitting run makes them once, without the lines that val and tests
have.
"""

import gzip
import json
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import tomli_w
from workspace import Outcome, Workspace

from mt_cli.config.load import load_config, parse_config
from mt_cli.config.schema import Config
from mt_cli.data import corpora
from mt_cli.data.corpora import given_text
from mt_cli.data.prepared import open_prepared
from mt_cli.errors import ConfigError, DataError, UsageError
from mt_cli.machine.device import fast_bf16
from mt_cli.machine.files import sha256_bytes
from mt_cli.translation import pairs
from mt_cli.translation.pairs import LOOP, loops, make_pairs
from mt_cli.translation.translator import Translator

OWN = ["Ein Hund bellt.", "", "Zwei Männer schlafen.", "Eine Frau singt."]
Call = Callable[..., Outcome]


@pytest.fixture
def folder(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with text of one side: lines of our own, and one of val in capitals, without its
    full stop.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        pairs, "LOOP", re.compile("(?!)")
    )  # a model as small as the workspace's loops
    known = workspace.corpus("val.de").read_text(encoding="utf-8").split("\n")[0]
    lines = [*OWN[:2], known.upper().rstrip("."), *OWN[2:]]
    tmp_path.joinpath("mono.de").write_text(
        "".join(f"{line}\n" for line in lines), encoding="utf-8"
    )
    return tmp_path


def config_of(workspace: Workspace, name: str = "mono", **more: object) -> Config:
    tables = tomllib.loads(workspace.folder.joinpath("tiny.toml").read_text())
    files = tables["data"]["files"]
    for split in files.values():
        split |= {side: str(workspace.folder / split[side]) for side in ("src", "tgt")}
    tables["data"]["more"] = {
        name: {"src": "mono.de", "translate_with": str(workspace.run), **more}
    }
    Path("more.toml").write_text(tomli_w.dumps(tables))
    return load_config(Path("more.toml"))


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def filled(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if line]


@pytest.mark.usefixtures("folder")
def test_a_run_makes_the_other_side_without_held_out_lines(workspace: Workspace) -> None:
    made = make_pairs(config_of(workspace))["mono"]
    expected = Translator.load(
        workspace.run, precision="bf16" if fast_bf16() else "fp32"
    ).translate(filled(OWN))
    assert lines_of(made.files.src[0]) == filled(OWN)
    assert lines_of(made.files.tgt[0]) == expected
    assert made.held_out == 1


@pytest.mark.usefixtures("folder")
def test_prepare_trains_on_them_and_counts_what_is_held_out(workspace: Workspace) -> None:
    config_of(workspace, tag="<mono>")
    outcome = workspace.call("prepare", "more.toml", "--json", cwd=Path.cwd())
    assert outcome.code == 0, outcome.err
    report = json.loads(outcome.text)["report"]["splits"]["train+mono"]
    assert (report["lines"], report["pairs"], report["dropped"]) == (4, 3, {"held out": 1})
    assert len(open_prepared(Path("data/prepared/more")).split("train")) > 3
    again = workspace.call("prepare", "more.toml", cwd=Path.cwd())
    assert "nothing has changed" in again.err


@pytest.mark.usefixtures("folder")
def test_a_part_that_is_called_as_a_split_leaves_the_split_alone(workspace: Workspace) -> None:
    config_of(workspace, name="val")
    outcome = workspace.call("prepare", "more.toml", "--json", cwd=Path.cwd())
    assert outcome.code == 0, outcome.err
    report = json.loads(outcome.text)["report"]["splits"]
    assert report["val"]["lines"] == report["val"]["pairs"]
    assert report["train+val"]["dropped"]["held out"] == 1


def test_nothing_is_translated_where_the_data_cannot_be_written(
    workspace: Workspace, folder: Path
) -> None:
    config_of(workspace)
    folder.joinpath("data/prepared/more").mkdir(parents=True)
    folder.joinpath("data/prepared/more/mine").touch()
    outcome = workspace.call("prepare", "more.toml", cwd=folder)
    assert (outcome.code, "is no prepared data" in outcome.err) == (2, True)
    assert not folder.joinpath("data/translated").exists()


def test_translations_that_loop_are_left_out_and_counted(
    workspace: Workspace, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "LOOP", LOOP)
    translations = ["A dog barks.", "Two meshhhhh men.", "A woman the woman the woman the woman."]
    monkeypatch.setattr(Translator, "translate", lambda *_, **__: translations)
    made = make_pairs(config_of(workspace))["mono"]
    assert lines_of(made.files.tgt[0]) == ["A dog barks.", "", ""]
    assert workspace.call("prepare", "more.toml", cwd=folder).code == 0
    report = json.loads(folder.joinpath("data/prepared/more/report.json").read_text())["splits"][
        "train+mono"
    ]
    assert (report["pairs"], report["dropped"]) == (1, {"held out": 1, "empty": 2})


@pytest.mark.parametrize(
    ("made", "given"),
    [
        ("No one, no, no.", "Niemand, nein, nein."),
        ("A red, red wall.", "Eine rote, rote Wand."),
        ("He walks and walks and jumps.", "Er läuft und läuft und springt."),
        ("7000000000 people | - | - | - | ......", "7000000000 Menschen | - | - | - | ......"),
        ("1000000 euros", "Eine Million Euro"),
        ("A very very very big dog.", "Ein sehr sehr sehr großer Hund."),
    ],
)
def test_what_people_say_is_no_loop(made: str, given: str) -> None:
    assert not loops(made, given)


@pytest.mark.parametrize(
    ("made", "given"),
    [
        ("A woman the woman the woman the woman.", "Eine Frau."),
        ("...... yes yes yes yes yes yes", "...... ja."),
    ],
)
def test_what_only_a_model_says_is_a_loop(made: str, given: str) -> None:
    assert loops(made, given)


@pytest.mark.usefixtures("folder")
def test_what_is_made_is_kept_and_what_was_stopped_goes_on(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(workspace)
    made = make_pairs(config)["mono"].files.tgt[0]
    whole = made.read_bytes()
    translated: list[str] = []
    translate = Translator.translate

    def noted(self: Translator, lines: Sequence[str], **options: object) -> list[str]:
        translated.extend(lines)
        return translate(self, lines)

    monkeypatch.setattr(Translator, "translate", noted)
    assert make_pairs(config)["mono"].files.tgt[0].read_bytes() == whole
    assert translated == []
    made.with_name("report.json").unlink()
    made.rename(made.with_name(pairs.UNFINISHED))
    first = whole.index(b"\n") + 1
    made.with_name(pairs.UNFINISHED).write_bytes(whole[: first + 3])  # killed in the second line
    assert make_pairs(config)["mono"].files.tgt[0].read_bytes() == whole
    assert translated == filled(OWN)[1:]


@pytest.mark.usefixtures("folder")
def test_another_way_to_search_makes_other_pairs(workspace: Workspace) -> None:
    folders = [
        make_pairs(config_of(workspace, translate_by=by))["mono"].files.tgt[0].parent
        for by in ("greedy", "beam", "sample")
    ]
    assert len(set(folders)) == 3


@pytest.mark.usefixtures("folder")
def test_a_run_of_the_wrong_direction_is_refused(workspace: Workspace) -> None:
    config = config_of(workspace)
    more = {
        "mono": config.data.more["mono"].model_copy(update={"src": None, "tgt": (Path("mono.de"),)})
    }
    data = config.data.model_copy(update={"more": more})
    with pytest.raises(UsageError, match="translates from de to en; a run from en to de is needed"):
        make_pairs(config.model_copy(update={"data": data}))


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"src": "a"}, "needs src and tgt; or one of src, tgt and captions, and translate_with"),
        ({"captions": "src"}, "needs src and tgt"),
        ({"src": "a", "tgt": "b", "translate_with": "r"}, "translate_with makes one side"),
        ({"translate_with": "r"}, "translate_with makes one side"),
        (
            {"captions": "src", "translate_with": "r"},
            "captions are those of corpus 'multi30k', found 'sample'",
        ),
    ],
)
def test_sides_that_do_not_fit_are_refused(keys: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_config({"data": {"more": {"x": keys}}})


def test_captions_are_pinned_and_read_from_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = parse_config(
        {"data": {"corpus": "multi30k", "more": {"x": {"captions": "tgt", "translate_with": "r"}}}}
    ).data
    packed = {
        f"train.{n}.en": gzip.compress(f"caption {n}\n".encode(), mtime=0) for n in range(1, 6)
    }
    for name, content in packed.items():
        tmp_path.joinpath(f"{name}.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"train\.1\.en\.gz: sha256 .* expected"):
        given_text(data, "x", source=tmp_path)
    monkeypatch.setattr(
        corpora, "CAPTIONS_SHA256", {name: sha256_bytes(c) for name, c in packed.items()}
    )
    text = given_text(data, "x", source=tmp_path)
    assert (text.side, b"".join(text.lines())) == (
        "tgt",
        b"".join(b"caption %d\n" % n for n in range(1, 6)),
    )
    tmp_path.joinpath("train.3.en.gz").unlink()
    with pytest.raises(DataError, match=r"no such file: .*train\.3\.en\.gz"):
        given_text(data, "x", source=tmp_path)
