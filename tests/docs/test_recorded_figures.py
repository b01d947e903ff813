"""Figures that README and the headers of configs name: those of the records, of the training with seed 1."""

import re
from pathlib import Path

import pytest
from records.record import Evaluation, Record, read_records

ROOT = Path(__file__).resolve().parents[2]
RECORDS = {
    record.config_name: record
    for record in read_records(ROOT / "docs" / "records").values()
    if record.seed == 1 and record.device == "cpu"
}
TESTS = ("test_2016_flickr", "test_2017_flickr")
SCORED = re.compile(
    r"test_2016_flickr (?P<a>\S+), test_2017_flickr (?P<b>\S+) BLEU "
    r"\(greedy, cased, sacreBLEU 13a; seed 1, bf16\), "
    r"(?P<c>\S+) and (?P<d>\S+) with --beam-size 5 --length-penalty (?P<alpha>[\d.]+) "
    r"\(95 %: (?P<least>[\d.]+) to (?P<most>[\d.]+) either way\), after (?P<minutes>\d+) minutes"
)


def evaluation(record: Record, split: str, search: str) -> Evaluation:
    (found,) = [each for each in record.evaluations if (each.split, each.search) == (split, search)]
    return found


@pytest.mark.parametrize("name", RECORDS)
def test_header_of_a_config_has_the_figures_of_its_record(name: str) -> None:
    comments = [
        line.removeprefix("# ")
        for line in (ROOT / "configs" / f"{name}.toml").read_text(encoding="utf-8").splitlines()
        if line.startswith("#")
    ]
    said = SCORED.search(" ".join(comments))
    assert said is not None
    searches = ("greedy", f"beam5-alpha{said['alpha']}")
    found = [evaluation(RECORDS[name], split, search) for search in searches for split in TESTS]
    assert [said[letter] for letter in "abcd"] == [f"{each.bleu.score:.2f}" for each in found]
    widths = [each.bleu.half_width for each in found if each.bleu.half_width is not None]
    assert (said["least"], said["most"]) == (f"{min(widths):.1f}", f"{max(widths):.1f}")
    assert said["minutes"] == f"{float(str(RECORDS[name].status['elapsed_s'])) / 60:.0f}"


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
