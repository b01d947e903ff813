"""`evaluate`, `compare` and `score`: signatures, files to check with, and numbers by hand."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from damage import rehash
from sacrebleu.metrics import bleu as by_sacrebleu
from sacrebleu_command import command_scores
from workspace import READY_MODEL, Outcome, Workspace

from mt_cli import Translation, Translator

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
    rehash(run, "config.toml", config.replace("lowercase = false", "lowercase = true").encode())
    refs = [line.lower() for line in lines_in(workspace.corpus("test.en"))]
    found = [[Translation(ref, 0.0)] for ref in refs]
    monkeypatch.setattr(Translator, "translate_n_best", lambda *_, **__: found)
    outcome = evaluate(workspace, run, *TEST_FILES)
    assert outcome.code == 0, outcome.err
    assert "  BLEU 100.00  nrefs:1|case:lc|" in outcome.lines[0]


def test_json_is_one_document_by_split(workspace: Workspace, run: Path) -> None:
    splits = ("--split", "val", "--split", "test", "--split", "val")
    document = json.loads(evaluate(workspace, run, "--json", *splits).out)
    stored = json.loads(run.joinpath("eval/val-greedy/scores.json").read_bytes())
    assert list(document["splits"]) == ["val", "test"]
    assert stored.pop("checkpoint") == run.joinpath("best.txt").read_text().strip()
    assert {key: stored[key] for key in document["splits"]["val"]} == document["splits"]["val"]
    assert (stored["n"], stored["bleu"]["name"], stored["chrf"]["name"]) == (20, "BLEU", "chrF2")


def test_score_seen_in_training_is_the_score_given(workspace: Workspace, run: Path) -> None:
    records = [json.loads(line) for line in lines_in(run / "metrics.jsonl")]
    seen = [record["bleu"] for record in records if record["kind"] == "validation"]
    found = scores_of(workspace, run, "--split", "val", split="val")["BLEU"]
    assert found == pytest.approx(max(seen))


@pytest.mark.parametrize(
    ("flags", "code", "named"),
    [
        (("--src", "corpus/test.de"), 2, "--ref"),
        (("--ref", "corpus/test.en", "--split", "val"), 2, "--split"),
        (("--split", "tset"), 2, "train, val, test"),
        (("--noise", "upper"), 2, "capitals"),
        (("--src", "corpus/test.de", "--ref", "corpus/train.en"), 3, "corpus/train.en: 25 "),
    ],
    ids=["no references", "two sets", "no such split", "noise", "unequal"],
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


# compare

REFS = [f"A man number {i} walks home with a dog." for i in range(30)]
WORSE = [line.replace("walks home", "sleeps") for line in REFS]


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
def ref(tmp_path: Path) -> Path:
    return write(tmp_path / "ref", REFS)


@pytest.fixture
def worse(tmp_path: Path) -> Path:
    return write(tmp_path / "worse", WORSE)


def test_every_system_and_every_change_is_in_the_json(
    workspace: Workspace, ref: Path, worse: Path
) -> None:
    found = document(workspace.call("compare", worse, ref, worse, "--ref", ref, "--json"))
    assert (found["n"], found["baseline"], found["trials"]) == (30, str(worse), 10_000)
    better, same = found["systems"]
    assert (better["outcome"], same["outcome"]) == ("better", "identical")
    assert (len(better["changes"]), len(same["changes"])) == (30, 0)
    assert [test["metric"] for test in better["tests"]] == ["BLEU", "chrF2", "TER"]
    assert [test["randomization_p"] for test in same["tests"]] == [None] * 3
    sizes = [abs(change["difference"]) for change in better["changes"]]
    assert sizes == sorted(sizes, reverse=True)
    assert better["changes"][0].keys() >= {"line", "source", "ref", "baseline_hyp", "hyp"}


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ("ref latin-1 --ref ref", "latin-1: line 2 is not UTF-8"),
        ("ref ref --ref latin-1", "latin-1: line 2 is not UTF-8"),
        ("ref short --ref ref", "short: 3 "),
    ],
)
def test_files_of_another_encoding_or_length_are_not_scored(
    workspace: Workspace, ref: Path, files: str, named: str
) -> None:
    ref.with_name("latin-1").write_text("Zwei.\nZwölf Hunde.\n", encoding="latin-1")
    write(ref.with_name("short"), REFS[:3])
    outcome = workspace.call("compare", *files.split(), cwd=ref.parent)
    assert (outcome.code, outcome.out) == (3, b"")
    assert named in outcome.err


def test_comparing_leaves_the_scores_of_the_runs(
    workspace: Workspace, run: Path, tmp_path: Path
) -> None:
    baseline = workspace.copy_run(tmp_path / "baseline")
    evaluate(workspace, run)
    kept = json.loads(kept_of(run).joinpath("scores.json").read_text())
    assert workspace.call("compare", baseline, run, "--split", "test").code == 0
    again = json.loads(kept_of(run).joinpath("scores.json").read_text())
    assert again["split"] == kept["split"] == "test"


def test_own_files_are_translated_and_compared(workspace: Workspace, run: Path) -> None:
    files = ("--src", "corpus/val.de", "--ref", "corpus/val.en")
    assert document(workspace.call("compare", run, run, *files, "--json"))["n"] == 20
    assert len(list(run.joinpath("eval").glob("val-????????-greedy"))) == 1


def test_runs_of_two_directions_are_not_compared(workspace: Workspace, run: Path) -> None:
    config = (run / "config.toml").read_bytes()
    rehash(run, "config.toml", config.replace(b'src_lang = "de"', b'src_lang = "fr"'))
    outcome = workspace.call("compare", "runs/tiny", run)
    assert (outcome.code, outcome.out) == (2, b"")
    assert f"{run}: fr to en" in outcome.err
    assert not (run / "eval").exists()


def test_several_trainings_of_each_are_compared_in_groups(
    workspace: Workspace, ref: Path, worse: Path, tmp_path: Path
) -> None:
    bad = [worse, write(tmp_path / "worse2", WORSE)]
    good = [ref, write(tmp_path / "good2", REFS)]
    groups = (*bad, "--with", *good)
    found = document(workspace.call("compare", *groups, "--ref", ref, "--json"))
    bleu = found["tests"][0]
    assert (found["baseline"], found["system"]) == (list(map(str, bad)), list(map(str, good)))
    assert bleu["system"]["mean"] == pytest.approx(100)
    assert bleu["difference"] == pytest.approx(100 - bleu["baseline"]["mean"])
    assert "±0.00" in workspace.call("compare", *groups, "--ref", ref).text
    outcome = workspace.call("compare", worse, worse, "--with", *good, "--ref", ref)
    assert (outcome.code, "twice" in outcome.err) == (2, True)


# score

PAIR_FILES = ("--src", "corpus/train.de", "--tgt", "corpus/train.en")


def score(workspace: Workspace, *args: object, stdin: bytes = b"") -> Outcome:
    return workspace.call("score", "runs/tiny", *args, stdin=stdin)


def test_scores_are_those_that_translate_gives_its_own_output(
    workspace: Workspace, tmp_path: Path
) -> None:
    search = ("--beam-size", 2, "--length-penalty", 0, "--with-score", "-i", "corpus/val.de")
    translated = [
        line.split("\t") for line in workspace.call("translate", "runs/tiny", *search).lines
    ]
    out = tmp_path / "out.en"
    out.write_text("".join(f"{text}\n" for _, text in translated), encoding="utf-8")
    found = score(workspace, "--src", "corpus/val.de", "--tgt", out).lines
    # The first line exceeds the model's limit: `translate` splits it, and a pair cannot be split.
    assert found[0] == "-inf"
    expected = [float(score) for score, _ in translated[1:]]
    assert [float(score) for score in found[1:]] == pytest.approx(expected, abs=2e-4)


def test_one_line_for_each_pair_whatever_it_holds(workspace: Workspace, tmp_path: Path) -> None:
    src, tgt = tmp_path / "src", tmp_path / "tgt"
    src.write_bytes(b"Ein Hund.\n\nEin\xff Mann.\r\n" + b"Ein " * 500 + b"\n\nEin Hund.")
    tgt.write_bytes(b"A dog.\n\n\nA man.\nA dog.\nA dog.\n")
    outcome = score(workspace, "--src", src, "--tgt", tgt)
    first, nothing, _, too_long, from_nothing, last = outcome.lines
    assert (nothing, too_long, from_nothing) == ("0.0000", "-inf", "-inf")
    assert float(first) == pytest.approx(float(last), abs=2e-4)
    assert "warning: line 4: " in outcome.err
    assert "warning: source line 3: " in outcome.err


def test_json_is_a_document_a_line_and_has_no_infinity(workspace: Workspace) -> None:
    documents = [json.loads(line) for line in score(workspace, *PAIR_FILES, "--json").lines]
    assert documents[0]["score"] is None
    assert list(documents[1]) == ["source", "translation", "score", "log_prob", "tokens"]
    sources = workspace.corpus("train.de").read_text(encoding="utf-8").splitlines()
    assert [each["source"] for each in documents] == sources


@pytest.mark.parametrize("place", [1, 3], ids=["sources", "targets"])
def test_either_side_may_come_from_stdin(workspace: Workspace, place: int) -> None:
    flags = list(PAIR_FILES)
    stdin = (workspace.folder / flags[place]).read_bytes()
    flags[place] = "-"
    assert score(workspace, *flags, stdin=stdin) == score(workspace, *PAIR_FILES)


def test_files_of_unequal_length_exit_3_before_anything_is_printed(workspace: Workspace) -> None:
    outcome = score(workspace, "--src", "corpus/train.de", "--tgt", "corpus/test.en")
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.startswith("error: corpus/test.en: 20 ")


def test_several_references_score_as_by_the_library(
    workspace: Workspace, run: Path, tmp_path: Path
) -> None:
    first = workspace.corpus("test.en")
    second = tmp_path / "second.en"
    second.write_text(first.read_text().replace("The ", "That "))
    refs = ("--ref", first, "--ref", second)
    outcome = evaluate(workspace, run, "--src", "corpus/test.de", *refs, "--json")
    bleu = json.loads(outcome.out)["splits"]["files"]["bleu"]
    assert "nrefs:2" in bleu["signature"]
    hyps = lines_in(kept_of(run) / "hyp.txt")
    by_library = by_sacrebleu.BLEU().corpus_score(hyps, [lines_in(first), lines_in(second)])
    assert bleu["score"] == pytest.approx(by_library.score)
    assert lines_in(kept_of(run) / "ref2.txt") == lines_in(second)


@pytest.mark.parametrize("odd", ["", "a tab\tin it"], ids=["empty", "tab"])
def test_references_that_mislead_are_refused(
    workspace: Workspace, tmp_path: Path, odd: str
) -> None:
    path = tmp_path / "odd.en"
    path.write_text(f"{odd}\n" * len(lines_in(workspace.corpus("test.en"))))
    refs = ("--ref", "corpus/test.en", "--ref", path)
    outcome = workspace.call("evaluate", "runs/tiny", "--src", "corpus/test.de", *refs)
    assert outcome.code == 3
    assert str(path) in outcome.err


def test_nothing_is_written_beside_the_model_that_comes_along(workspace: Workspace) -> None:
    before = sorted(READY_MODEL.rglob("*"))
    card = READY_MODEL.joinpath("README.md").read_bytes()
    outcome = workspace.call("evaluate", READY_MODEL.name, *TEST_FILES)
    assert outcome.code == 0
    assert (sorted(READY_MODEL.rglob("*")), READY_MODEL.joinpath("README.md").read_bytes()) == (
        before,
        card,
    )
