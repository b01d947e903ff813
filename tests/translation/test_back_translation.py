"""Pairs from text of one side: a run makes them once, without the held-out lines."""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from workspace import Workspace

from mt_cli.config.load import load_config
from mt_cli.config.schema import Config
from mt_cli.data.prepared import open_prepared
from mt_cli.errors import UsageError
from mt_cli.machine.device import fast_bf16
from mt_cli.text.normalize import has_loop
from mt_cli.translation import back_translation
from mt_cli.translation.back_translation import loops, make_pairs
from mt_cli.translation.translator import Translator

OWN = ["Ein Hund bellt.", "", "Zwei Männer schlafen.", "Eine Frau singt."]
FILLED = [line for line in OWN if line]


@pytest.fixture
def folder(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with lines of one side: our own, and one of val in capitals, without its stop."""
    monkeypatch.chdir(tmp_path)
    # A model as small as the workspace's loops.
    monkeypatch.setattr(back_translation, "has_loop", lambda _text: False)
    known = workspace.corpus("val.de").read_text(encoding="utf-8").split("\n")[0]
    lines = [*OWN[:2], known.upper().rstrip("."), *OWN[2:]]
    text = "".join(f"{line}\n" for line in lines)
    tmp_path.joinpath("mono.de").write_text(text, encoding="utf-8")
    return tmp_path


def config_of(workspace: Workspace, *, name: str = "mono", side: str = "src") -> Config:
    tables = tomllib.loads(workspace.folder.joinpath("tiny.toml").read_text())
    files = tables["data"]["files"]
    for split in files.values():
        split |= {side: str(workspace.folder / split[side]) for side in ("src", "tgt")}
    made = {side: "mono.de", "translate_with": str(workspace.run)}
    tables["data"]["more"] = {name: made}
    Path("more.toml").write_text(tomli_w.dumps(tables))
    return load_config(Path("more.toml"))


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def prepare(workspace: Workspace, folder: Path) -> dict[str, Any]:
    """The report of each split."""
    outcome = workspace.call("prepare", "more.toml", "--json", cwd=folder)
    assert outcome.code == 0, outcome.err
    splits: dict[str, Any] = json.loads(outcome.text)["report"]["splits"]
    return splits


@pytest.mark.usefixtures("folder")
def test_a_run_makes_the_other_side_without_held_out_lines(workspace: Workspace) -> None:
    made = make_pairs(config_of(workspace))["mono"]
    precision = "bf16" if fast_bf16() else "fp32"
    expected = Translator.load(workspace.run, precision=precision).translate(FILLED)
    assert lines_of(made.src[0]) == FILLED
    assert lines_of(made.tgt[0]) == expected
    report = json.loads(made.tgt[0].with_name("report.json").read_bytes())
    assert (report["lines"], report["held_out"]) == (3, 1)


def test_prepare_trains_on_them_and_leaves_a_split_of_their_name_alone(
    workspace: Workspace, folder: Path
) -> None:
    config_of(workspace, name="val")
    splits = prepare(workspace, folder)
    report = splits["train+val"]
    assert (report["lines"], report["pairs"], report["dropped"]) == (3, 3, {})
    assert splits["val"]["lines"] == splits["val"]["pairs"] == 20
    assert len(open_prepared(folder / "data/prepared/more").split("train")) > 3
    again = workspace.call("prepare", "more.toml", "--json", cwd=folder)
    assert json.loads(again.out)["is_new"] is False


def test_translations_that_loop_are_left_out_and_counted(
    workspace: Workspace, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(back_translation, "has_loop", has_loop)
    translations = ["A dog barks.", "Two meshhhhh men.", "A woman the woman the woman the woman."]
    monkeypatch.setattr(Translator, "translate", lambda *_, **__: translations)
    made = make_pairs(config_of(workspace))["mono"]
    assert lines_of(made.tgt[0]) == ["A dog barks.", "", ""]
    report = prepare(workspace, folder)["train+mono"]
    assert (report["pairs"], report["dropped"]) == (1, {"empty": 2})


@pytest.mark.parametrize(
    ("made", "given", "is_loop"),
    [
        ("A woman the woman the woman the woman.", "Eine Frau.", True),
        ("...... yes yes yes yes yes yes", "...... ja.", True),
        ("No one, no, no.", "Niemand, nein, nein.", False),
        ("7000000000 people | - | - | ......", "7000000000 Menschen | - | - | ......", False),
        ("A very very very big dog.", "Ein sehr sehr sehr großer Hund.", False),
    ],
)
def test_a_loop_is_what_only_a_model_says(made: str, given: str, is_loop: bool) -> None:
    assert loops(made, given) == is_loop


@pytest.mark.usefixtures("folder")
def test_what_is_made_is_kept_and_what_was_stopped_goes_on(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(workspace)
    made = make_pairs(config)["mono"].tgt[0]
    whole = made.read_bytes()
    translated: list[str] = []
    translate = Translator.translate

    def noted(self: Translator, lines: Sequence[str], **options: object) -> list[str]:
        translated.extend(lines)
        return translate(self, lines)

    monkeypatch.setattr(Translator, "translate", noted)
    assert make_pairs(config)["mono"].tgt[0].read_bytes() == whole
    assert translated == []
    made.with_name("report.json").unlink()
    made.rename(made.with_name(back_translation.UNFINISHED))
    first = whole.index(b"\n") + 1
    killed_in_the_second_line = whole[: first + 3]
    made.with_name(back_translation.UNFINISHED).write_bytes(killed_in_the_second_line)
    assert make_pairs(config)["mono"].tgt[0].read_bytes() == whole
    assert translated == FILLED[1:]


@pytest.mark.usefixtures("folder")
def test_a_run_of_the_wrong_direction_is_refused(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match=r"mono\.translate_with"):
        make_pairs(config_of(workspace, side="tgt"))
