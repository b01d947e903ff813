"""Figures that README and the headers of configs name: those of the records."""

import re
from pathlib import Path
from statistics import mean

import pytest
from records.record import Evaluation, Record, read_records

ROOT = Path(__file__).resolve().parents[2]
OF_ALL_SEEDS = [
    record for record in read_records(ROOT / "docs" / "records").values() if record.device == "cpu"
]
RECORDS = {record.config_name: record for record in OF_ALL_SEEDS if record.seed == 1}
TESTS = ("test_2016_flickr", "test_2017_flickr")
SCORED = re.compile(
    r"test_2016_flickr (?P<a>\S+), test_2017_flickr (?P<b>\S+) BLEU "
    r"\(greedy, cased, sacreBLEU 13a; seed 1, bf16\), "
    r"(?P<c>\S+) and (?P<d>\S+) with --beam-size 5 --length-penalty (?P<alpha>[\d.]+) "
    r"\(95 %: (?P<least>[\d.]+) to (?P<most>[\d.]+) either way\), after (?P<minutes>\d+) minutes"
)


MEANS = re.compile(
    r"Mean of (?P<seeds>\w+) seeds: (?P<a>[\d.]+) and (?P<b>[\d.]+), (?P<c>[\d.]+) and (?P<d>[\d.]+)\."
)
TOGETHER = re.compile(
    r"Together with multi30k-strong\.toml, 20 beams reranked by multi30k-reverse\.toml: "
    r"(?P<a>\S+) and (?P<b>[\d.]+); with multi30k-strong\.toml's third seed too: "
    r"(?P<c>\S+) and (?P<d>[\d.]+)\."
)
SYSTEMS = [
    f"beam20-alpha1.4, with {models}, reranked by multi30k-reverse (0.3, 0.25)"
    for models in ("multi30k-strong", "multi30k-strong and strong-seed3")
]


def header(name: str) -> str:
    """The comments above the first table of a config, as one line."""
    lines = (ROOT / "configs" / f"{name}.toml").read_text(encoding="utf-8").splitlines()
    return " ".join(line.removeprefix("# ") for line in lines if line.startswith("#"))


def evaluation(record: Record, split: str, search: str) -> Evaluation:
    (found,) = [each for each in record.evaluations if (each.split, each.search) == (split, search)]
    return found


@pytest.mark.parametrize("name", RECORDS)
def test_header_of_a_config_has_the_figures_of_its_record(name: str) -> None:
    said = SCORED.search(header(name))
    assert said is not None
    searches = ("greedy", f"beam5-alpha{said['alpha']}")
    found = [evaluation(RECORDS[name], split, search) for search in searches for split in TESTS]
    assert [said[letter] for letter in "abcd"] == [f"{each.bleu.score:.2f}" for each in found]
    widths = [each.bleu.half_width for each in found if each.bleu.half_width is not None]
    assert (said["least"], said["most"]) == (f"{min(widths):.1f}", f"{max(widths):.1f}")
    assert said["minutes"] == f"{float(str(RECORDS[name].status['elapsed_s'])) / 60:.0f}"


@pytest.mark.parametrize("name", RECORDS)
def test_header_of_a_config_has_the_means_of_its_seeds(name: str) -> None:
    records = [record for record in OF_ALL_SEEDS if record.config_name == name]
    said = MEANS.search(header(name))
    assert (said is not None) == (len(records) > 1)
    if said is None:
        return
    assert said["seeds"] == {2: "two", 3: "three"}[len(records)]
    scored = SCORED.search(header(name))
    assert scored is not None
    expected = [
        mean(evaluation(record, split, search).bleu.score for record in records)
        for search in ("greedy", f"beam5-alpha{scored['alpha']}")
        for split in TESTS
    ]
    assert [said[letter] for letter in "abcd"] == [f"{score:.2f}" for score in expected]


def test_header_of_the_best_config_has_the_scores_of_its_systems() -> None:
    said = TOGETHER.search(header("multi30k-best"))
    assert said is not None
    found = [evaluation(RECORDS["multi30k-best"], split, search) for search in SYSTEMS for split in TESTS]
    assert [said[letter] for letter in "abcd"] == [f"{each.bleu.score:.2f}" for each in found]


def test_rows_of_the_front_page_are_those_of_the_records() -> None:
    rows = [
        line
        for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
        if "| `configs/" in line
    ]
    checked = 0
    for row in rows:
        config, parameters, minutes, *scores = [cell.strip() for cell in row.strip("|").split("|")]
        record = RECORDS.get(Path(config.strip("`")).stem)
        if record is None:
            continue
        (beam,) = {
            each.search for each in record.evaluations if re.fullmatch(r"beam5-alpha[\d.]+", each.search)
        }
        bleus = [evaluation(record, TESTS[0], search).bleu for search in ("greedy", beam)]
        assert scores == [f"{bleu.score:.1f} ± {bleu.half_width:.1f}" for bleu in bleus]
        assert parameters == f"{record.parameters / 1e6:.1f}M"
        assert minutes.startswith(f"{float(str(record.status['elapsed_s'])) / 60:.0f} min")
        checked += 1
    assert checked == len(RECORDS)
