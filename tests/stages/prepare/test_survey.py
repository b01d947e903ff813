"""The first pass over a corpus: its counts, and the sample that tokenizers learn from."""

from pathlib import Path

import numpy as np

from mt_cli.artefacts.corpora import CorpusFile, CorpusSplit
from mt_cli.stages.prepare.survey import Survey, SurveyJob, count_common, survey_split
from mt_cli.text.tokenizer import TextOptions

SRC = "ein Hund\nein  Hund \n\nein Ball\nein Hund\n"
TGT = "a dog\na dog\na dog\na ball\nthe dog\n"


def survey(
    folder: Path, *, counts_words: bool = False, samples_pairs: bool = False, lowercase: bool = False
) -> Survey:
    paths = {"src": folder / "src", "tgt": folder / "tgt"}
    paths["src"].write_text(SRC)
    paths["tgt"].write_text(TGT)
    job = SurveyJob(
        TextOptions("de", "en", lowercase), counts_words=counts_words, samples_pairs=samples_pairs
    )
    split = CorpusSplit(CorpusFile(paths["src"], ""), CorpusFile(paths["tgt"], ""))
    return survey_split(split, job, label="", workers=1)


def test_lines_and_duplicates_are_counted(tmp_path: Path) -> None:
    found = survey(tmp_path)
    assert found.lines == 5
    assert found.duplicates == 1  # the second line, once normalised


def test_only_what_is_asked_for_is_gathered(tmp_path: Path) -> None:
    found = survey(tmp_path)
    assert found.pairs == []
    assert not found.counts.src


def test_sample_leaves_out_pairs_with_an_empty_side(tmp_path: Path) -> None:
    pairs = survey(tmp_path, samples_pairs=True).pairs
    assert pairs == [
        ("ein Hund", "a dog"),
        ("ein Hund", "a dog"),
        ("ein Ball", "a ball"),
        ("ein Hund", "the dog"),
    ]


def test_tokenizers_learn_from_lower_case_where_that_is_asked_for(tmp_path: Path) -> None:
    found = survey(tmp_path, counts_words=True, samples_pairs=True, lowercase=True)
    assert found.pairs[:3] == [("ein hund", "a dog"), ("ein hund", "a dog"), ("ein ball", "a ball")]
    assert found.counts.src == {"ein": 4, "hund": 3, "ball": 1}


def test_words_are_counted(tmp_path: Path) -> None:
    counts = survey(tmp_path, counts_words=True).counts
    assert counts.src == {"ein": 4, "Hund": 3, "Ball": 1}
    assert counts.tgt == {"a": 3, "dog": 3, "ball": 1, "the": 1}


def test_common_hashes_are_counted_with_repetitions() -> None:
    known = np.array([2, 5, 9], np.uint64)
    found = np.array([1, 2, 2, 9, 10], np.uint64)
    assert count_common(found, [known]) == 3
    assert count_common(found, [known, np.array([2, 10], np.uint64)]) == 4
    assert count_common(np.array([1], np.uint64), [np.empty(0, np.uint64)]) == 0
    assert count_common(found, []) == 0
