"""Scores against sacreBLEU's own command."""

import json
import subprocess
from pathlib import Path

import pytest
from sacrebleu_command import command_intervals, command_scores

from mt_cli.evaluation.scoring import score

SAMPLE = (
    Path(__file__).parents[2].joinpath("data/sample/test.en").read_text(encoding="utf-8").splitlines()[:60]
)
SHUFFLED = [" ".join(sorted(line.split(), key=len)) for line in SAMPLE]
REFS = ["A man is sleeping on a bench.", "Two dogs, playing in the snow!", "Don't  walk - run.", "", "Äpfel"]
HYPS = ["A man sleeps on a bench.", "two dogs playing in the snow!", "Don't walk - run.", "Nothing", ""]


@pytest.mark.parametrize("lowercase", [False, True], ids=["cased", "lower-cased"])
def test_scores_equal_those_of_the_command_to_ten_digits(tmp_path: Path, lowercase: bool) -> None:
    scores = score(HYPS, REFS, lowercase=lowercase)
    flags = ["-lc", "--chrf-lowercase"] if lowercase else []
    assert {each.name: f"{each.score:.10f}" for each in scores.metrics.values()} == command_scores(
        tmp_path, HYPS, REFS, *flags
    )


def test_case_counts_unless_lower_casing_is_asked_for() -> None:
    hyps, refs = ["A MAN SLEEPS ON A BENCH"], ["a man sleeps on a bench"]
    assert score(hyps, refs).metrics["bleu"].score < 50
    assert score(hyps, refs, lowercase=True).metrics["bleu"].score == pytest.approx(100)


@pytest.mark.parametrize(("lowercase", "case"), [(False, "case:mixed"), (True, "case:lc")])
def test_signature_says_how_it_was_scored(lowercase: bool, case: str) -> None:
    scores = score(HYPS, REFS, lowercase=lowercase)
    assert {case, "tok:13a", "smooth:exp", "nrefs:1"} < set(scores.metrics["bleu"].signature.split("|"))
    assert {case, "nc:6", "nw:0"} < set(scores.metrics["chrf"].signature.split("|"))


def test_json_has_the_keys_of_sacrebleu_and_every_digit() -> None:
    scores = score(SHUFFLED, SAMPLE)
    document = json.loads(json.dumps(scores.as_json()))
    assert document["n"] == len(SAMPLE)
    assert document["bleu"]["score"] == scores.metrics["bleu"].score
    assert document["chrf"]["score"] == scores.metrics["chrf"].score
    assert document["bleu"]["signature"] == scores.metrics["bleu"].signature
    assert {"name", "signature", "verbose_score", "nrefs", "case", "tok", "smooth"} <= set(document["bleu"])
    assert {"confidence", "confidence_mean", "confidence_var", "bs", "seed"} <= set(document["ter"])


def test_intervals_equal_those_of_the_command_to_the_printed_digits(tmp_path: Path) -> None:
    printed = {each.name: str(each.interval) for each in score(SHUFFLED, SAMPLE).metrics.values()}
    assert printed == command_intervals(tmp_path, SHUFFLED, SAMPLE)
    assert "bs:1000|seed:12345" in printed["BLEU"]


def test_no_interval_is_given_where_the_command_fails(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):  # some resamples score 0
        command_intervals(tmp_path, HYPS, REFS)
    assert any(each.interval is None for each in score(HYPS, REFS).metrics.values())
