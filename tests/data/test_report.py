"""The report on a corpus: its counts against counts by hand."""

from mt_cli.data.prepared import CorpusReport, Sentences, SideReport, SplitReport, describe_side


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
