"""The report on a corpus: its counts against counts by hand."""

import json

import pytest

from mt_cli.data import report as report_module
from mt_cli.data.report import CorpusReport, SideReport, SplitReport, describe_side, format_report
from mt_cli.data.split import Sentences


def side(lengths: dict[str, int]) -> SideReport:
    return SideReport(tokens=100, unknown=3, unknown_rate=0.03, lengths=lengths)


REPORT = CorpusReport(
    src_vocab_size=8000,
    tgt_vocab_size=7000,
    splits={
        "train": SplitReport(
            lines=29000,
            pairs=28990,
            dropped={"empty": 1, "too long": 9},
            duplicates=3,
            src_in_train=None,
            pairs_in_train=None,
            src=side({"50": 14, "90": 22, "99": 32, "100": 54}),
            tgt=side({"50": 13, "90": 21, "99": 30, "100": 40}),
        ),
        "test": SplitReport(
            lines=1000,
            pairs=1000,
            dropped={},
            duplicates=0,
            src_in_train=2,
            pairs_in_train=1,
            src=side({"50": 1, "90": 2, "99": 3, "100": 4}),
            tgt=side({"50": 1, "90": 2, "99": 3, "100": 4}),
        ),
    },
)


def test_lengths_are_those_of_real_lines() -> None:
    sentences = [[4] * length for length in range(1, 101)]
    described = describe_side(Sentences.of(sentences, vocab_size=10))
    assert described.lengths == {"50": 51, "90": 91, "99": 100, "100": 100}
    assert described.tokens == 5050


def test_unknown_tokens_are_counted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_module, "COUNTED_TOGETHER", 2)
    described = describe_side(Sentences.of([[1, 4, 1], [5, 6], [1, 4, 4]], vocab_size=10))
    assert described.unknown == 3
    assert described.unknown_rate == pytest.approx(3 / 8)


def test_empty_split_has_a_report() -> None:
    assert describe_side(Sentences.of([], vocab_size=10)).lengths == {"50": 0, "90": 0, "99": 0, "100": 0}
    assert describe_side(Sentences.of([[]], vocab_size=10)).unknown_rate == 0


def test_report_survives_json() -> None:
    assert CorpusReport.model_validate_json(json.dumps(REPORT.as_json())) == REPORT


def test_table_is_aligned_and_says_what_was_dropped() -> None:
    lines = format_report(REPORT).split("\n")
    header, train, test = lines[:3]
    assert header.split()[:3] == ["split", "lines", "pairs"]
    assert train.startswith("train  29,000  28,990")
    assert test.startswith("test    1,000   1,000")
    assert "14/22/32/54" in train
    assert "vocabulary  src 8,000  tgt 7,000" in lines
    assert "train: 9 pairs dropped: too long" in lines
    assert "test: 2 of 1,000 sources occur in train (1 with the same target)" in lines
