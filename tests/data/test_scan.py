"""Pairs that are left out by their text: which, how many, and that nothing is learned from them."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from small import WORDS, Pairs, config_of

from mt_cli.config.schema import FilterConfig
from mt_cli.data.prepare import Inputs, prepare_corpus
from mt_cli.data.prepared import Prepared, SplitReport, open_prepared
from mt_cli.data.scan import drop_reason
from mt_cli.text.tokenizers import TextOptions

GOOD = [
    ("Ein Hund läuft über die Wiese.", "A dog runs across the meadow."),
    ("Zwei Männer stehen vor einem alten Haus.", "Two men stand in front of an old house."),
    ("Die Frau kauft Brot in der Stadt.", "The woman buys bread in the city."),
]
BAD = {
    "copies": ("Sonderwort heute", "Sonderwort heute"),
    "max_ratio": ("Ja.", "The answer to this question is most certainly yes."),
    "languages": ("Une femme achète du pain dans la ville.", "A woman buys bread in the city."),
}
FILTER = {"duplicates": True, "copies": True, "languages": True, "max_ratio": 3.0}
ONCE = {"duplicates": True}


def prepare(
    folder: Path,
    train: Pairs,
    kept: Mapping[str, object],
    *,
    val: Pairs = (*GOOD, BAD["copies"]),
    tokenizer: Mapping[str, object] = WORDS,
) -> tuple[Prepared, dict[str, SplitReport]]:
    folder.mkdir(exist_ok=True)
    config = config_of(folder, {"train": train, "val": val}, tokenizer=tokenizer, filter=kept)
    report, _ = prepare_corpus(Inputs(config), folder / "out")
    return open_prepared(folder / "out"), report.splits


@pytest.mark.parametrize("reason", BAD)
def test_each_key_leaves_out_its_pairs_alone(reason: str) -> None:
    options, config = TextOptions("de", "en", lowercase=False), FilterConfig.model_validate(FILTER)
    assert drop_reason(*BAD[reason], config, options) == reason
    assert drop_reason(*BAD[reason], FilterConfig(), options) == ""
    assert [drop_reason(*pair, config, options) for pair in GOOD] == ["", "", ""]


def test_what_is_left_out_is_counted_and_teaches_nothing(tmp_path: Path) -> None:
    pairs = [*GOOD, GOOD[0], *BAD.values(), ("", "."), GOOD[0]]
    prepared, report = prepare(tmp_path, pairs, FILTER)
    assert report["train"].dropped == dict.fromkeys(BAD, 1) | {"duplicates": 2, "empty": 1}
    assert prepared.lines("train", "src") == [src for src, _ in GOOD]
    assert len(prepared.split("val")) == len(GOOD) + 1
    unknown, known = prepared.tokenizers.src.encode(["Sonderwort Hund"])[0]
    assert unknown == 1 != known


def test_repeats_are_found_across_the_parts_that_workers_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mt_cli.data.scan.PAIRS_PER_JOB", 2)
    rng = np.random.default_rng(0)
    pairs = [(f"Wort {n} heute", f"word {n} today") for n in rng.integers(0, 5, 12)]
    prepared, _ = prepare(tmp_path, pairs, ONCE)
    assert prepared.lines("train", "src") == list(dict.fromkeys(src for src, _ in pairs))


def test_what_is_left_out_gives_no_test_sentence_away(tmp_path: Path) -> None:
    pairs = [*GOOD, BAD["max_ratio"]]
    _, report = prepare(tmp_path, pairs, {"max_ratio": 3.0}, val=pairs[3:])
    assert (report["val"].src_in_train, report["train"].duplicates) == (0, 0)


@pytest.mark.parametrize(
    ("singles", "doubles", "common"),
    [(0, 30, 2), (200, 1800, 2), (2000, 60, 1), (1990, 300, 2), (38, 2, 2), (39, 1, 1)],
)
def test_what_is_common_is_told_from_a_part_of_the_lines(
    tmp_path: Path, singles: int, doubles: int, common: int
) -> None:
    """A number of sentences that 5 % of the lines have, wherever they are."""
    single = ("Ein Hund läuft.", "A dog runs.")
    double = ("Ein Hund läuft. Er bellt.", "A dog runs. It barks.")
    prepared, _ = prepare(tmp_path, [single] * singles + [double] * doubles, {})
    assert prepared.manifest.lengths.sentences == common
