"""The `evaluate` command: scores with signatures, and the files they can be checked with."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from damage import rehash
from sacrebleu_command import command_scores
from workspace import Outcome, Workspace

from mt_cli.decoding import Sampling
from mt_cli.evaluation.evaluate import System, open_evaluation
from mt_cli.evaluation.overview import summarise_runs
from mt_cli.runs.run import open_run
from mt_cli.translation.translator import DecodingOptions, Translator

BLEU = r"BLEU \d+\.\d\d  nrefs:1\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:[\d.]+"
TER = r"TER \d+\.\d\d  nrefs:1\|case:lc\|tok:tercom\|norm:no\|punct:yes\|asian:no\|version:[\d.]+"
CHRF = r"chrF2 \d+\.\d\d  nrefs:1\|case:mixed\|eff:yes\|nc:6\|nw:0\|space:no\|version:[\d.]+"


@pytest.fixture
def run(workspace: Workspace, tmp_path: Path) -> Path:
    """A run of one's own, since evaluating writes into it."""
    return workspace.copy_run(tmp_path / "run")


def evaluate(workspace: Workspace, run: Path, *args: object, cwd: Path | None = None) -> Outcome:
    return workspace.call("evaluate", run, "--quiet", *args, cwd=cwd)


def scores_in(outcome: Outcome, split: str) -> dict[str, float]:
    """All scores of a `--json` outcome."""
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)["splits"][split]
    return {name: found[name]["score"] for name in ("bleu", "chrf", "ter")}


def lines_in(path: Path) -> list[str]:
    *lines, rest = path.read_bytes().decode().split("\n")
    assert rest == ""
    return lines


def test_score_is_printed_with_its_signature(workspace: Workspace, run: Path) -> None:
    outcome = workspace.call("evaluate", run)
    bleu, chrf, ter, *_ = outcome.lines
    assert outcome.code == 0
    assert re.fullmatch(f"test  {BLEU}", bleu)
    assert re.fullmatch(f"test  {CHRF}", chrf)
    assert re.fullmatch(f"test  {TER}", ter)
    pattern = (
        rf"test: 20 sentences, \d+ a second, translations in {re.escape(str(run))}/eval/test-greedy"
    )
    assert re.search(pattern, outcome.err)


def test_evaluating_again_changes_no_file(workspace: Workspace, run: Path) -> None:
    assert evaluate(workspace, run).code == 0
    before = {path: path.read_bytes() for path in run.joinpath("eval").rglob("*") if path.is_file()}
    assert evaluate(workspace, run).code == 0
    assert before == {path: path.read_bytes() for path in before}


def test_files_give_the_sacrebleu_command_the_same_score(
    workspace: Workspace, run: Path, tmp_path: Path
) -> None:
    scores = scores_in(evaluate(workspace, run, "--json"), "test")
    folder = run / "eval" / "test-greedy"
    by_command = command_scores(
        tmp_path, lines_in(folder / "hyp.txt"), lines_in(folder / "ref.txt")
    )
    assert by_command == {
        "BLEU": f"{scores['bleu']:.10f}",
        "chrF2": f"{scores['chrf']:.10f}",
        "TER": f"{scores['ter']:.10f}",
    }
    assert scores["bleu"] > 0.1
    assert folder.joinpath("ref.txt").read_bytes() == workspace.corpus("test.en").read_bytes()
    assert folder.joinpath("src.txt").read_bytes() == workspace.corpus("test.de").read_bytes()


def test_case_does_not_count_where_the_corpus_is_lower_case(
    workspace: Workspace, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = run.joinpath("config.toml").read_text(encoding="utf-8")
    assert config.count("lowercase = false") == 1
    rehash(run, "config.toml", config.replace("lowercase = false", "lowercase = true").encode())
    refs = [line.lower() for line in lines_in(workspace.corpus("test.en"))]
    monkeypatch.setattr(Translator, "translate", lambda *_, **__: refs)
    files = ("--src", workspace.corpus("test.de"), "--ref", workspace.corpus("test.en"))
    outcome = evaluate(workspace, run, *files)
    assert outcome.code == 0, outcome.err
    assert "  BLEU 100.00  nrefs:1|case:lc|" in outcome.lines[0]


def test_json_is_one_document_by_split(workspace: Workspace, run: Path) -> None:
    outcome = evaluate(workspace, run, "--json", "--split", "val", "--split", "test")
    document = json.loads(outcome.out)
    stored = json.loads(run.joinpath("eval/val-greedy/scores.json").read_bytes())
    assert outcome.code == 0
    assert list(document) == ["splits"]
    assert list(document["splits"]) == ["val", "test"]
    assert stored.pop("checkpoint") == run.joinpath("best.txt").read_text().strip()
    assert document["splits"]["val"].items() <= stored.items()
    assert (stored["n"], stored["bleu"]["name"], stored["chrf"]["name"]) == (20, "BLEU", "chrF2")
    assert stored["bleu"]["signature"].startswith("nrefs:1|case:mixed|")


def test_translations_are_those_of_translate(workspace: Workspace, run: Path) -> None:
    evaluate(workspace, run)
    translated = workspace.call("translate", run, "-i", "corpus/test.de")
    assert run.joinpath("eval/test-greedy/hyp.txt").read_bytes() == translated.out


def test_score_seen_in_training_is_the_score_given(workspace: Workspace, run: Path) -> None:
    records = [json.loads(line) for line in lines_in(run / "metrics.jsonl")]
    seen = [record["bleu"] for record in records if record["kind"] == "validation"]
    scores = scores_in(evaluate(workspace, run, "--json", "--split", "val"), "val")
    assert scores["bleu"] == max(seen)


def test_own_files_score_as_the_split_that_they_equal(workspace: Workspace, run: Path) -> None:
    files = ("--src", "corpus/test.de", "--ref", "corpus/test.en")
    assert scores_in(evaluate(workspace, run, *files, "--json"), "files") == scores_in(
        evaluate(workspace, run, "--json"), "test"
    )


def test_references_with_awkward_lines_score_as_by_the_command(
    workspace: Workspace, run: Path, tmp_path: Path
) -> None:
    awkward = ["A dog\u2028runs. ", " Two\u00a0 dogs\x0b", "", "\ufeffA man.", "B\x85c"]
    src, ref = tmp_path / "src.txt", tmp_path / "ref.txt"
    src.write_bytes(b"Ein Hund.\nZwei Hunde.\n\nEin Mann.\nB")
    ref.write_bytes("\n".join(awkward).encode())
    scores = scores_in(evaluate(workspace, run, "--src", src, "--ref", ref, "--json"), "files")
    (folder,) = run.joinpath("eval").glob("src-????????-greedy")
    assert lines_in(folder / "ref.txt") == awkward
    by_command = command_scores(tmp_path, lines_in(folder / "hyp.txt"), awkward)
    assert (by_command["BLEU"], by_command["chrF2"]) == (
        f"{scores['bleu']:.10f}",
        f"{scores['chrf']:.10f}",
    )


@pytest.mark.parametrize(
    ("flag", "complaint"),
    [("--src", "--src needs --ref"), ("--ref", "name the sources of --ref with --src FILE")],
)
def test_one_file_alone_exits_2(workspace: Workspace, flag: str, complaint: str) -> None:
    outcome = evaluate(workspace, workspace.run, flag, "corpus/test.de")
    assert (outcome.code, outcome.out, complaint in outcome.err) == (2, b"", True)


def test_files_of_unequal_length_exit_3_with_both_numbers(workspace: Workspace) -> None:
    outcome = evaluate(
        workspace, workspace.run, "--src", "corpus/test.de", "--ref", "corpus/train.en"
    )
    message = "error: corpus/train.en: 25 lines, but corpus/test.de has 20; the files must align line by line\n"
    assert outcome == Outcome(3, b"", message)


def test_unknown_split_exits_2_and_lists_those_there(workspace: Workspace) -> None:
    outcome = evaluate(workspace, workspace.run, "--split", "tset")
    assert outcome == Outcome(2, b"", "error: unknown split 'tset'; the run has train, val, test\n")


def test_data_that_have_moved_are_named_with_a_flag(
    workspace: Workspace, run: Path, tmp_path: Path
) -> None:
    lost = evaluate(workspace, run, cwd=tmp_path)
    assert (lost.code, lost.out) == (3, b"")
    assert "where the data that" in lost.err
    assert "--data DIR" in lost.err
    shutil.copytree(workspace.prepared, tmp_path / "elsewhere")
    found = evaluate(workspace, run, "--data", "elsewhere", cwd=tmp_path)
    assert found == evaluate(workspace, run)


def test_altered_data_exit_3_and_the_file_is_named(workspace: Workspace, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(workspace.prepared, data)
    with data.joinpath("test.tgt.txt").open("ab") as file:
        file.write(b"One more.\n")
    outcome = evaluate(workspace, workspace.run, "--data", data)
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.startswith(f"error: {data}/test.tgt.txt: altered or damaged")


def test_an_evaluation_is_read_as_it_was_kept_or_not_at_all(
    workspace: Workspace, run: Path
) -> None:
    assert open_evaluation(run / "eval" / "val-greedy") is None
    assert evaluate(workspace, run, "--split", "val").code == 0
    folder = run / "eval" / "val-greedy"
    found = open_evaluation(folder)
    assert found is not None
    assert (len(found.sources), len(found.refs), found.record["n"]) == (20, 20, 20)
    assert folder.joinpath("hyp.txt").read_text(encoding="utf-8").split("\n")[:-1] == found.hyps
    for name in ("src.txt", "ref.txt", "hyp.txt"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole.replace(b"a", b"b", 1))
        assert open_evaluation(folder) is None, name
        (folder / name).write_bytes(whole)


def test_kept_texts_never_stand_for_data_that_are_gone(
    workspace: Workspace, run: Path, tmp_path: Path
) -> None:
    assert evaluate(workspace, run, "--split", "val").code == 0
    assert evaluate(workspace, run, "--split", "val", cwd=tmp_path).code == 3


def test_each_search_keeps_its_translations_apart(run: Path) -> None:
    searches: list[dict[str, Any]] = [
        {}, {"beam_size": 2}, {"max_len_factor": 0.5}, {"max_len_extra": 3}, {"min_len": 4},
        {"sampling": Sampling()}, {"sampling": Sampling(), "seed": 2}, {"sampling": Sampling(top_k=3)},
        {"backend": "torch"}, {"checkpoint": "last"},
    ]  # fmt: skip
    found = [System([run], DecodingOptions.of(options)).decoding for options in searches]
    assert found[0] == "greedy"
    assert len(set(found)) == len(searches)
    assert (
        System([run], DecodingOptions.of({"checkpoint": ["best"], "backend": None})).decoding
        == "greedy"
    )


def test_what_a_kill_left_is_no_evaluation_and_no_run(workspace: Workspace, run: Path) -> None:
    assert evaluate(workspace, run).code == 0
    known = open_run(run).kept_evaluations()
    shutil.copytree(known[0], known[0].with_name(".other-greedy.partial"))
    workspace.copy_run(run.with_name(".run.old"))
    assert open_run(run).kept_evaluations() == known
    assert [each.folder for each in summarise_runs(run.parent)] == [run]


def test_a_split_that_is_named_twice_is_scored_once(workspace: Workspace, run: Path) -> None:
    outcome = evaluate(workspace, run, "--split", "val", "--split", "val")
    assert outcome.code == 0
    assert (
        len([line for line in outcome.lines if "chrF2 " in line]) == 2
    )  # the score and its interval
