"""The `compare` command: runs and files against a baseline."""

import json
from pathlib import Path
from typing import Any

import pytest
from damage import rehash
from workspace import Outcome, Workspace

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


def test_identical_translations_are_no_difference(
    workspace: Workspace, files: tuple[Path, Path, Path]
) -> None:
    ref, worse, _ = files
    outcome = compare(workspace, worse, worse, "--ref", ref)
    assert (
        outcome.lines[0]
        == f"files  no difference: the translations of {worse} and {worse} are identical"
    )
    (system,) = document(compare(workspace, worse, worse, "--ref", ref, "--json"))["files"][
        "systems"
    ]
    assert {test["randomisation_p"] for test in system["tests"]} == {None}


def test_json_has_every_system_and_every_change(
    workspace: Workspace, files: tuple[Path, Path, Path]
) -> None:
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


def test_many_sentences_are_drawn_less_often(
    workspace: Workspace, files: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mt_cli.evaluation.compare.MOST_RESAMPLED", 1)
    ref, worse, perfect = files
    flags = ("--ref", ref, "--json", "--resamples", 200, "--trials", 10_000)
    found = document(workspace.call("compare", worse, perfect, *flags))["files"]
    assert (found["resamples"], found["trials"]) == (100, 333)


def test_file_of_another_length_exits_3_with_both_numbers(
    workspace: Workspace, files: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    ref, worse, _ = files
    short = write(tmp_path / "short", REFS[:3])
    assert compare(workspace, worse, short, "--ref", ref) == Outcome(
        3,
        b"",
        f"error: {short}: 3 lines, but the reference of 'files' has 30; the files must align line "
        "by line\n",
    )


def test_translations_are_made_once_and_then_taken_as_kept(
    workspace: Workspace, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compare(workspace, run, run)
    assert f"test: {run} translates\n" in first.err
    monkeypatch.setattr(Translator, "of_runs", None)
    second = compare(workspace, run, run)
    assert second.out == first.out
    assert f"test: {run} as kept in {run}/eval\n" in second.err


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


def test_own_files_are_translated_and_compared(workspace: Workspace, run: Path) -> None:
    files = ("--src", "corpus/val.de", "--ref", "corpus/val.en")
    found = document(compare(workspace, run, run, *files, "--json"))
    assert list(found) == ["files"]
    assert len(list(run.joinpath("eval").glob("val-????????-greedy"))) == 1


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
    assert compare(workspace, "runs/tiny", "runs/tiny", *flags) == Outcome(
        2, b"", f"error: {message}\n"
    )
