"""The `compare` command: runs and files against a baseline."""

import json
from pathlib import Path
from typing import Any

import pytest
from damage import rehash
from workspace import Outcome, Workspace

REFS = [f"A man number {i} walks home with a dog." for i in range(30)]
WORSE = [line.replace("walks home", "sleeps") for line in REFS]


def compare(workspace: Workspace, *args: object) -> Outcome:
    return workspace.call("compare", "--resamples", 100, "--trials", 100, *args)


def document(outcome: Outcome) -> dict[str, Any]:
    """What `--json` prints of user's files."""
    assert outcome.code == 0, outcome.err
    splits = json.loads(outcome.out)["splits"]
    assert list(splits) == ["files"]
    found: dict[str, Any] = splits["files"]
    return found


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def run(workspace: Workspace, tmp_path: Path) -> Path:
    return workspace.copy_run(tmp_path / "run")


@pytest.fixture
def ref(tmp_path: Path) -> Path:
    return write(tmp_path / "ref", REFS)


@pytest.fixture
def worse(tmp_path: Path) -> Path:
    return write(tmp_path / "worse", WORSE)


def test_every_system_and_every_change_is_in_the_json(
    workspace: Workspace, ref: Path, worse: Path
) -> None:
    found = document(compare(workspace, worse, ref, worse, "--ref", ref, "--json"))
    assert (found["n"], found["baseline"], found["trials"]) == (30, str(worse), 100)
    better, same = found["systems"]
    assert (better["outcome"], same["outcome"]) == ("better", "identical")
    assert (len(better["changes"]), len(same["changes"])) == (30, 0)
    assert [test["metric"] for test in better["tests"]] == ["BLEU", "chrF2", "TER"]
    assert [test["randomization_p"] for test in same["tests"]] == [None] * 3
    sizes = [abs(change["difference"]) for change in better["changes"]]
    assert sizes == sorted(sizes, reverse=True)
    assert better["changes"][0].keys() >= {"line", "source", "ref", "baseline_hyp", "hyp"}


def test_many_sentences_are_drawn_less_often(
    workspace: Workspace, ref: Path, worse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mt_cli.evaluation.compare.MAX_RESAMPLED", 1)
    flags = ("--ref", ref, "--json", "--resamples", 200, "--trials", 10_000)
    found = document(workspace.call("compare", worse, ref, *flags))
    assert (found["resamples"], found["trials"]) == (100, 333)


def test_file_of_another_length_exits_3_with_both_numbers(
    workspace: Workspace, ref: Path, tmp_path: Path
) -> None:
    short = write(tmp_path / "short", REFS[:3])
    outcome = compare(workspace, ref, short, "--ref", ref)
    assert (outcome.code, outcome.out) == (3, b"")
    assert f"{short}: 3 " in outcome.err
    assert " 30;" in outcome.err


def test_noise_needs_runs(workspace: Workspace, ref: Path) -> None:
    outcome = compare(workspace, ref, ref, "--ref", ref, "--noise", "lower")
    assert outcome.code == 2
    assert "--noise" in outcome.err


@pytest.mark.parametrize("place", ["system", "--ref"])
def test_files_in_another_encoding_are_not_scored(
    workspace: Workspace, tmp_path: Path, place: str
) -> None:
    right = tmp_path / "utf-8.en"
    right.write_text("Zwölf Hunde.\nZwei.\n", encoding="utf-8")
    wrong = tmp_path / "latin-1.en"
    wrong.write_text("Zwei.\nZwölf Hunde.\n", encoding="latin-1")
    files = [right, wrong, "--ref", right] if place == "system" else [right, right, "--ref", wrong]
    outcome = workspace.call("compare", *files)
    assert (outcome.code, outcome.out) == (3, b"")
    assert f"{wrong}: line 2 is not UTF-8" in outcome.err


def test_own_files_are_translated_and_compared(workspace: Workspace, run: Path) -> None:
    files = ("--src", "corpus/val.de", "--ref", "corpus/val.en")
    assert document(compare(workspace, run, run, *files, "--json"))["n"] == 20
    assert len(list(run.joinpath("eval").glob("val-????????-greedy"))) == 1


def test_runs_of_two_directions_are_not_compared(workspace: Workspace, run: Path) -> None:
    config = (run / "config.toml").read_bytes()
    assert b'src_lang = "de"' in config
    rehash(run, "config.toml", config.replace(b'src_lang = "de"', b'src_lang = "fr"'))
    outcome = workspace.call("compare", "runs/tiny", run)
    assert (outcome.code, outcome.out) == (2, b"")
    assert f"{run} translates fr to en" in outcome.err
    assert not (run / "eval").exists()


def test_several_trainings_of_each_are_compared_in_groups(
    workspace: Workspace, ref: Path, worse: Path, tmp_path: Path
) -> None:
    bad = [worse, write(tmp_path / "worse2", WORSE)]
    good = [ref, write(tmp_path / "good2", REFS)]
    groups = (*bad, "--with", *good)
    found = document(compare(workspace, *groups, "--ref", ref, "--json"))
    bleu = found["tests"][0]
    assert (found["baseline"], found["system"]) == (list(map(str, bad)), list(map(str, good)))
    assert bleu["system"]["mean"] == pytest.approx(100)
    assert bleu["difference"] == pytest.approx(100 - bleu["baseline"]["mean"])
    assert "±0.00" in compare(workspace, *groups, "--ref", ref).text
    outcome = compare(workspace, worse, "--with", *good, "--ref", ref)
    assert (outcome.code, outcome.out) == (2, b"")
    assert "1 and 2" in outcome.err
    outcome = compare(workspace, worse, worse, "--with", *good, "--ref", ref)
    assert (outcome.code, "twice" in outcome.err) == (2, True)
