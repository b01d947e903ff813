"""The report on a corpus: its counts against counts by hand."""

from mt_cli.data.prepared import Sentences, SideReport


def test_lengths_are_those_of_real_lines() -> None:
    sentences = [[4] * length for length in (500, *range(1, 101), 500)]
    described = SideReport.of(Sentences.of(sentences), 1, 101)
    assert described.lengths == {"50": 51, "90": 91, "99": 100, "100": 100}
    assert described.tokens == 5050
