"""The `evaluate` command: scores with signatures, and the files they can be checked with."""

import json
import re
import shutil
from pathlib import Path
from typing import Any, get_args

import pytest
from damage import rehash
from sacrebleu_command import command_scores
from workspace import Outcome, Workspace

from mt_cli import Translator
from mt_cli.config.schema import NoiseKind

BLEU = r"BLEU \d+\.\d\d  nrefs:1\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:[\d.]+"
TER = r"TER \d+\.\d\d  nrefs:1\|case:lc\|tok:tercom\|norm:no\|punct:yes\|asian:no\|version:[\d.]+"
CHRF = r"chrF2 \d+\.\d\d  nrefs:1\|case:mixed\|eff:yes\|nc:6\|nw:0\|space:no\|version:[\d.]+"
TEST_FILES = ("--src", "corpus/test.de", "--ref", "corpus/test.en")


@pytest.fixture
def run(workspace: Workspace, tmp_path: Path) -> Path:
    """A run of one's own, since evaluating writes into it."""
    return workspace.copy_run(tmp_path / "run")


def evaluate(workspace: Workspace, run: Path, *args: object, cwd: Path | None = None) -> Outcome:
    return workspace.call("evaluate", run, "--quiet", *args, cwd=cwd)


def scores_of(
    workspace: Workspace, run: Path, *args: object, split: str = "test"
) -> dict[str, float]:
    outcome = evaluate(workspace, run, *args, "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)["splits"][split]
    return {found[name]["name"]: found[name]["score"] for name in ("bleu", "chrf", "ter")}


def as_printed(scores: dict[str, float]) -> dict[str, str]:
    """To the digits that `command_scores` gives."""
    return {name: f"{score:.10f}" for name, score in scores.items()}


def lines_in(path: Path) -> list[str]:
    *lines, rest = path.read_bytes().decode().split("\n")
    assert rest == ""
    return lines


def kept_of(run: Path) -> Path:
    """The one folder of kept translations."""
    (folder,) = run.joinpath("eval").glob("[!.]*")
    return folder


def test_score_is_printed_with_its_signature(workspace: Workspace, run: Path) -> None:
    outcome = workspace.call("evaluate", run)
    bleu, chrf, ter, *_ = outcome.lines
    assert outcome.code == 0
    assert re.fullmatch(f"test  {BLEU}  95% interval .*", bleu)
    assert re.fullmatch(f"test  {CHRF}  95% interval .*", chrf)
    assert re.fullmatch(f"test  {TER}  95% interval .*", ter)
    assert f"{run}/eval/test-greedy" in outcome.err


def test_files_give_the_sacrebleu_command_the_same_score(
    workspace: Workspace, run: Path, tmp_path: Path
) -> None:
    scores = scores_of(workspace, run)
    hyp, ref = kept_of(run) / "hyp.txt", kept_of(run) / "ref.txt"
    assert as_printed(scores) == command_scores(tmp_path, lines_in(hyp), lines_in(ref))
    assert scores["BLEU"] > 0.1
    assert ref.read_bytes() == workspace.corpus("test.en").read_bytes()
    assert hyp.with_name("src.txt").read_bytes() == workspace.corpus("test.de").read_bytes()
    assert hyp.read_bytes() == workspace.call("translate", run, "-i", "corpus/test.de").out


def test_references_with_awkward_lines_score_as_by_the_command(
    workspace: Workspace, run: Path, tmp_path: Path
) -> None:
    awkward = ["A dog\u2028runs. ", " Two\u00a0 dogs\x0b", "", "\ufeffA man.", "B\x85c"]
    src, ref = tmp_path / "src.txt", tmp_path / "ref.txt"
    src.write_bytes(b"Ein Hund.\nZwei Hunde.\n\nEin Mann.\nB")
    ref.write_bytes("\n".join(awkward).encode())
    scores = scores_of(workspace, run, "--src", src, "--ref", ref, split="files")
    assert lines_in(kept_of(run) / "ref.txt") == awkward
    hyps = lines_in(kept_of(run) / "hyp.txt")
    assert as_printed(scores) == command_scores(tmp_path, hyps, awkward)


def test_case_does_not_count_where_the_corpus_is_lower_case(
    workspace: Workspace, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = run.joinpath("config.toml").read_text(encoding="utf-8")
    assert config.count("lowercase = false") == 1
    rehash(run, "config.toml", config.replace("lowercase = false", "lowercase = true").encode())
    refs = [line.lower() for line in lines_in(workspace.corpus("test.en"))]
    monkeypatch.setattr(Translator, "translate", lambda *_, **__: refs)
    outcome = evaluate(workspace, run, *TEST_FILES)
    assert outcome.code == 0, outcome.err
    assert "  BLEU 100.00  nrefs:1|case:lc|" in outcome.lines[0]


def test_json_is_one_document_by_split(workspace: Workspace, run: Path) -> None:
    splits = ("--split", "val", "--split", "test", "--split", "val")
    outcome = evaluate(workspace, run, "--json", *splits)
    document = json.loads(outcome.out)
    stored = json.loads(run.joinpath("eval/val-greedy/scores.json").read_bytes())
    assert outcome.code == 0
    assert list(document) == ["splits"]
    assert list(document["splits"]) == ["val", "test"]
    assert stored.pop("checkpoint") == run.joinpath("best.txt").read_text().strip()
    assert {key: stored[key] for key in document["splits"]["val"]} == document["splits"]["val"]
    assert (stored["n"], stored["bleu"]["name"], stored["chrf"]["name"]) == (20, "BLEU", "chrF2")


def test_score_seen_in_training_is_the_score_given(workspace: Workspace, run: Path) -> None:
    records = [json.loads(line) for line in lines_in(run / "metrics.jsonl")]
    seen = [record["bleu"] for record in records if record["kind"] == "validation"]
    assert scores_of(workspace, run, "--split", "val", split="val")["BLEU"] == max(seen)


def test_own_files_score_as_the_split_that_they_equal(workspace: Workspace, run: Path) -> None:
    own_files = scores_of(workspace, run, *TEST_FILES, split="files")
    assert own_files == scores_of(workspace, run)


@pytest.mark.parametrize(
    ("flags", "code", "named"),
    [
        (("--src", "corpus/test.de"), 2, "--ref"),
        (("--ref", "corpus/test.en"), 2, "--src"),
        (("--ref", "corpus/test.en", "--split", "val"), 2, "--split"),
        (("--split", "tset"), 2, "train, val, test"),
        (("--src", "corpus/test.de", "--ref", "corpus/train.en"), 3, "corpus/train.en: 25 "),
    ],
    ids=["no references", "no sources", "two sets", "no such split", "unequal"],
)
def test_set_that_there_is_not_is_refused(
    workspace: Workspace, flags: tuple[str, ...], code: int, named: str
) -> None:
    outcome = evaluate(workspace, workspace.run, *flags)
    assert (outcome.code, outcome.out) == (code, b"")
    assert named in outcome.err


def test_data_that_have_moved_are_named_with_a_flag(
    workspace: Workspace, run: Path, tmp_path: Path
) -> None:
    found = evaluate(workspace, run)
    lost = evaluate(workspace, run, cwd=tmp_path)  # whatever is kept of them
    assert (lost.code, lost.out) == (3, b"")
    assert "--data DIR" in lost.err
    shutil.copytree(workspace.prepared, tmp_path / "elsewhere")
    assert evaluate(workspace, run, "--data", "elsewhere", cwd=tmp_path) == found


def test_an_ensemble_keeps_its_scores_apart(
    workspace: Workspace, run: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    settings = ("--set", "model.d_model=16", "--max-steps", 20, "--run", other)
    assert workspace.call("train", "tiny.toml", *settings).code == 0
    scores = scores_of(workspace, run, other, "--split", "val", split="val")
    kept = kept_of(run)
    assert re.fullmatch(r"val-greedy-[0-9a-f]{8}", kept.name)
    saved: dict[str, Any] = json.loads((kept / "scores.json").read_bytes())
    (member,) = saved["with"]
    assert (member["run"], member["checkpoint"]) == ("other", "step-00000020")
    assert saved["bleu"]["score"] == scores["BLEU"]
    hyps = Translator.load([run, other]).translate(lines_in(kept / "src.txt"))
    assert hyps == lines_in(kept / "hyp.txt")
    assert not other.joinpath("eval").exists()


def test_noise_scores_variants_beside_the_clean_set(workspace: Workspace, run: Path) -> None:
    document = json.loads(evaluate(workspace, run, "--noise", "lower,join", "--json").out)
    splits = document["splits"]
    assert list(splits) == ["test", "test+lower", "test+join"]
    assert splits["test+join"]["n"] == splits["test"]["n"] / 2
    change = splits["test+lower"]["bleu"]["score"] - splits["test"]["bleu"]["score"]
    assert splits["test+lower"]["bleu_change"] == pytest.approx(change)
    sources = (run / "eval" / "test+lower-greedy" / "src.txt").read_text(encoding="utf-8")
    assert sources == workspace.corpus("test.de").read_text(encoding="utf-8").lower()


def test_noise_of_files_of_the_users(workspace: Workspace, run: Path) -> None:
    files = ("--src", workspace.corpus("val.de"), "--ref", workspace.corpus("val.en"))
    outcome = evaluate(workspace, run, *files, "--noise", "all")
    names = [line.split()[0] for line in outcome.lines if "  BLEU change " in line]
    assert names == [f"files+{kind}" for kind in get_args(NoiseKind)]


def test_unknown_noise_is_refused(workspace: Workspace, run: Path) -> None:
    outcome = evaluate(workspace, run, "--noise", "upper")
    assert (outcome.code, outcome.out) == (2, b"")
    assert "upper" in outcome.err
    assert "capitals" in outcome.err
