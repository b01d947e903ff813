"""The `compare` command: runs and files against a baseline."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from damage import rehash
from workspace import Outcome, Workspace

from mt_cli.artefacts.json_files import sealed, write_json
from mt_cli.stages.compare import compare as module
from mt_cli.translation.significance import memory_needed
from mt_cli.translation.translator import Translator

FEW = ("--resamples", 100, "--trials", 100)
REFS = [f"A man number {i} walks home with a dog." for i in range(30)]
WORSE = [line.replace("walks home", "sleeps") for line in REFS]


def compare(workspace: Workspace, *args: object, cwd: Path | None = None) -> Outcome:
    return workspace.call("compare", *args, *FEW, cwd=cwd)


def document(outcome: Outcome) -> dict[str, dict[str, Any]]:
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert list(found) == ["splits"]
    splits: dict[str, dict[str, Any]] = found["splits"]
    return splits


def words_in(path: Path) -> list[list[str]]:
    """Words of each line; its marks are . and , alone."""
    text = path.read_text(encoding="utf-8").lower().replace(".", " ").replace(",", " ")
    return [line.split() for line in text.split("\n")[:-1]]


def write(path: Path, lines: list[str]) -> Path:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


@pytest.fixture
def run(workspace: Workspace, tmp_path: Path) -> Path:
    return workspace.copy_run(tmp_path / "run")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """References, and translations that are worse and perfect."""
    return (
        write(tmp_path / "ref", REFS),
        write(tmp_path / "worse", WORSE),
        write(tmp_path / "perfect", REFS),
    )


# Files


def test_verdict_comes_first(workspace: Workspace, files: tuple[Path, Path, Path]) -> None:
    ref, worse, perfect = files
    outcome = compare(workspace, worse, perfect, "--ref", ref)
    assert outcome.code == 0, outcome.err
    assert outcome.lines[0].startswith(f"files  {perfect} is better than {worse}: BLEU +")
    assert outcome.lines[0].endswith("p = 0.0099 (paired approximate randomisation, 100 trials)")


def test_text_shows_scores_kinds_of_sentences_and_examples(
    workspace: Workspace, files: tuple[Path, Path, Path]
) -> None:
    ref, worse, perfect = files
    lines = compare(workspace, worse, perfect, "--ref", ref, "--examples", 1).lines
    assert "30 of 30 translations differ" in lines
    assert any(line.split()[:1] == ["TER"] and line.split()[-1] == "0.0099" for line in lines)
    (bucket,) = (line.split() for line in lines if line.startswith("6-10 "))
    assert bucket[1:5] == ["30", "30", "0", "0"]
    first = next(i for i, line in enumerate(lines) if "gained most" in line)
    assert [line.split()[0] for line in lines[first + 1 : first + 4]] == ["reference", "baseline", "system"]
    assert sum("gained most" in line for line in lines) == 1
    assert not any("lost most" in line for line in lines)


def test_sources_are_shown_and_counted_where_given(
    workspace: Workspace, files: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    ref, worse, perfect = files
    src = write(tmp_path / "src", ["Ein Mann."] * 30)
    text = compare(workspace, worse, perfect, "--ref", ref, "--src", src).text
    assert "  source     Ein Mann." in text
    assert "words in source" in text
    assert "unseen" not in text


def test_identical_translations_are_no_difference(
    workspace: Workspace, files: tuple[Path, Path, Path]
) -> None:
    ref, worse, _ = files
    outcome = compare(workspace, worse, worse, "--ref", ref)
    assert outcome.lines[0] == f"files  no difference: the translations of {worse} and {worse} are identical"
    (system,) = document(compare(workspace, worse, worse, "--ref", ref, "--json"))["files"]["systems"]
    assert {test["randomisation_p"] for test in system["tests"]} == {None}


def test_json_has_every_system_and_every_change(workspace: Workspace, files: tuple[Path, Path, Path]) -> None:
    ref, worse, perfect = files
    found = document(compare(workspace, worse, perfect, worse, "--ref", ref, "--json"))["files"]
    assert (found["n"], found["baseline"], found["trials"]) == (30, str(worse), 100)
    better, same = found["systems"]
    assert (better["outcome"], same["outcome"]) == ("better", "identical")
    assert (len(better["changes"]), len(same["changes"])) == (30, 0)
    assert [test["metric"] for test in better["tests"]] == ["BLEU", "chrF2", "TER"]
    sizes = [abs(change["difference"]) for change in better["changes"]]
    assert sizes == sorted(sizes, reverse=True)
    assert better["changes"][0].keys() >= {"line", "source", "ref", "baseline_hyp", "hyp"}


def test_file_of_another_length_exits_3_with_both_numbers(
    workspace: Workspace, files: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    ref, worse, _ = files
    short = write(tmp_path / "short", REFS[:3])
    assert compare(workspace, worse, short, "--ref", ref) == Outcome(
        3,
        b"",
        f"error: {short}: 3 lines, but 'files' has 30 references; the files must align line by line\n",
    )


def test_a_file_that_is_missing_is_not_called_a_run(
    workspace: Workspace, files: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    ref, worse, _ = files
    outcome = compare(workspace, worse, tmp_path / "wrose", "--ref", ref)
    assert outcome.code == 2
    assert outcome.err == (
        f"error: {tmp_path / 'wrose'}: no such run folder, and no such file of translations\n"
    )


def test_tests_that_memory_cannot_hold_are_refused_before_anything_is_translated(
    workspace: Workspace, files: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, worse, perfect = files
    needed = memory_needed(30, resamples=100, trials=100)
    monkeypatch.setattr(module, "usable_memory", lambda: needed)
    assert compare(workspace, worse, perfect, "--ref", ref).code == 0
    monkeypatch.setattr(module, "usable_memory", lambda: needed - 1)
    monkeypatch.setattr(Translator, "of_runs", None)
    outcome = compare(workspace, worse, perfect, "--ref", ref)
    assert outcome.code == 5
    assert (
        "error: files: the tests of 30 lines take 0.0 GiB of memory, and there are 0.0; lower" in outcome.err
    )


# Runs


def test_run_against_its_copy_is_no_difference(workspace: Workspace, run: Path) -> None:
    copy = shutil.copytree(run, run.with_name("copy"))
    outcome = compare(workspace, run, copy, "--data", workspace.prepared)
    assert outcome.code == 0, outcome.err
    assert outcome.lines[0] == f"test  no difference: the translations of {copy} and {run} are identical"


def test_translations_are_made_once_and_then_taken_as_kept(
    workspace: Workspace, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compare(workspace, run, run)
    assert f"test: {run} translates\n" in first.err
    monkeypatch.setattr(Translator, "of_runs", None)
    second = compare(workspace, run, run)
    assert second.out == first.out
    assert f"test: {run} as kept in {run}/eval\n" in second.err


@pytest.mark.parametrize("name", ["hyp.txt", "src.txt", "ref.txt", "scores.json"])
def test_kept_translations_that_were_altered_are_made_anew(
    workspace: Workspace, run: Path, name: str
) -> None:
    assert workspace.call("evaluate", run).code == 0
    path = run / "eval" / "test-greedy" / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    outcome = compare(workspace, run, run)
    assert f"test: {run} translates\n" in outcome.err
    if name != "scores.json":
        assert path.read_bytes() == whole


def test_another_runs_split_does_not_take_the_place_of_ones_own(workspace: Workspace, run: Path) -> None:
    assert workspace.call("evaluate", run).code == 0
    own = {path: path.read_bytes() for path in (run / "eval" / "test-greedy").iterdir()}
    elsewhere = (run / "config.toml").read_bytes().replace(b"corpus/test.", b"elsewhere/test.")
    rehash(run, "config.toml", elsewhere)
    first = workspace.copy_run(run.with_name("first"))
    for _ in range(2):  # translated, and then taken as kept
        assert compare(workspace, first, run, "--data", workspace.prepared).code == 0
    assert {path: path.read_bytes() for path in own} == own
    (other,) = [path for path in (run / "eval").iterdir() if path.name != "test-greedy"]
    assert re.fullmatch(r"test-[0-9a-f]{8}-greedy", other.name)
    shown = workspace.call("inspect", run).out.decode()
    assert f"{other.name} " in shown


@pytest.mark.parametrize("command", [("compare",), ("report", "-o", "page.html")])
def test_runs_of_two_directions_are_not_compared(
    workspace: Workspace, run: Path, command: tuple[str, ...]
) -> None:
    config = (run / "config.toml").read_bytes()
    assert b'src_lang = "de"' in config
    rehash(run, "config.toml", config.replace(b'src_lang = "de"', b'src_lang = "fr"'))
    outcome = workspace.call(*command, "runs/tiny", run)
    assert outcome == Outcome(
        2,
        b"",
        f"error: {run} translates fr to en, but runs/tiny de to en; "
        "only runs of one direction can be compared\n",
    )
    assert not (run / "eval").exists()


def test_kept_translations_of_another_checkpoint_are_not_taken(workspace: Workspace, run: Path) -> None:
    assert workspace.call("evaluate", run).code == 0
    scores = run / "eval" / "test-greedy" / "scores.json"
    record = json.loads(scores.read_bytes())
    write_json(scores, sealed({**record, "checkpoint": "step-00000001"}))
    assert f"test: {run} translates\n" in compare(workspace, run, run).err


def test_another_search_is_not_taken_for_this_one(workspace: Workspace, run: Path) -> None:
    assert workspace.call("evaluate", run).code == 0
    outcome = compare(workspace, run, run, "--beam-size", 2)
    assert f"test: {run} translates\n" in outcome.err
    assert (run / "eval" / "test-beam2-alpha0" / "hyp.txt").is_file()


def test_kept_translations_need_no_data(workspace: Workspace, run: Path, tmp_path: Path) -> None:
    assert workspace.call("evaluate", run).code == 0
    outcome = compare(workspace, run, run, cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert "words that training never showed are not counted" in outcome.err
    lost = compare(workspace, run, run, "--split", "val", cwd=tmp_path)
    assert lost.code == 3
    assert "--data DIR" in lost.err


def test_words_that_training_never_showed_are_counted(
    workspace: Workspace, run: Path, tmp_path: Path
) -> None:
    assert workspace.call("evaluate", run).code == 0
    hyps = (run / "eval" / "test-greedy" / "hyp.txt").read_text(encoding="utf-8").split("\n")[:-1]
    other = write(tmp_path / "other", ["", *hyps[1:]])
    found = document(compare(workspace, run, other, "--json"))["test"]
    (system,) = found["systems"]
    seen = {word for line in words_in(workspace.corpus("train.de")) for word in line}
    unseen = [sum(word not in seen for word in line) for line in words_in(workspace.corpus("test.de"))]
    counts = {bucket["label"]: bucket["n"] for bucket in system["by_unseen_words"]}
    assert counts.get("0", 0) == unseen.count(0) > 0
    assert counts.get("3+", 0) == sum(each > 2 for each in unseen) > 0


def test_own_files_are_translated_and_compared(workspace: Workspace, run: Path) -> None:
    files = ("--src", "corpus/val.de", "--ref", "corpus/val.en")
    found = document(compare(workspace, run, run, *files, "--json"))
    assert list(found) == ["files"]
    assert len(list(run.joinpath("eval").glob("val-????????-greedy"))) == 1


# Wrong use


def test_one_system_alone_exits_2(workspace: Workspace) -> None:
    outcome = compare(workspace, "runs/tiny")
    assert outcome == Outcome(
        2, b"", "error: compare needs two systems at least: first the baseline, then another\n"
    )


def test_files_without_references_exit_2(workspace: Workspace) -> None:
    outcome = compare(workspace, "corpus/test.en", "corpus/val.en")
    assert outcome == Outcome(
        2, b"", "error: files of translations need their references; name them with --ref FILE\n"
    )


def test_runs_without_sources_exit_2(workspace: Workspace) -> None:
    outcome = compare(workspace, "runs/tiny", "corpus/test.en", "--ref", "corpus/test.en")
    assert outcome == Outcome(
        2, b"", "error: runs need something to translate; name the sources of --ref with --src FILE\n"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--src", "corpus/test.de"), "--src needs --ref: the references of its lines"),
        (("--ref", "corpus/test.en", "--split", "val"), "give either --split or --ref, not both"),
    ],
)
def test_flags_that_exclude_each_other_exit_2(
    workspace: Workspace, flags: tuple[str, ...], message: str
) -> None:
    assert compare(workspace, "runs/tiny", "runs/tiny", *flags) == Outcome(2, b"", f"error: {message}\n")


def test_file_beside_several_splits_exits_2_and_names_them(workspace: Workspace) -> None:
    outcome = compare(workspace, "runs/tiny", "corpus/test.en", "--split", "val", "--split", "test")
    assert outcome.code == 2
    assert "a file holds the translations of one split; say of which with --split: val, test" in outcome.err
