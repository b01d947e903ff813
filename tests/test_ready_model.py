"""The small model that comes with the repository: small, whole, and without texts of the corpus."""

import gzip
import random
import subprocess
from pathlib import Path

import pytest
from workspace import READY_MODEL

from mt_cli import Translator
from mt_cli.data.fetch import PINS, Pin
from mt_cli.errors import DataError
from mt_cli.evaluation.evaluate import System
from mt_cli.evaluation.test_sets import EvalChoice
from mt_cli.machine.files import sha256_bytes
from mt_cli.model.numpy_model import num_parameters
from mt_cli.runs.opening import open_run
from mt_cli.runs.reports import read_metrics
from mt_cli.translation.options import DecodingOptions
from mt_cli.translation.result import unlike_training

MAX_BYTES = 10_000_000
MAX_PARAMETERS = 5_000_000
MAX_MISSED = 3
"""Of fifty sentences."""
NEWS = (
    "Das Bundesverfassungsgericht verhandelte gestern über die Rechtmäßigkeit der umstrittenen "
    "Haushaltsbeschlüsse, gegen die mehrere Oppositionsfraktionen Verfassungsbeschwerde eingelegt "
    "hatten; ein Sprecher des Finanzministeriums bezeichnete die Einwände als unbegründet."
)
EVERYDAY = Path(__file__).with_name("everyday.tsv")
"""Sentences, a tab, and what their translations must have: `|` is between alternatives."""


def files() -> list[Path]:
    """What is in the repository, beside what evaluations have written since."""
    listed = subprocess.run(
        ["git", "ls-files", "."], cwd=READY_MODEL, capture_output=True, text=True, check=True
    )
    return [READY_MODEL / name for name in listed.stdout.split()]


def test_the_ready_model_is_small_and_was_trained_to_its_end() -> None:
    assert sum(path.stat().st_size for path in files()) < MAX_BYTES
    assert num_parameters(open_run(READY_MODEL).parameter_shapes) < MAX_PARAMETERS
    assert open_run(READY_MODEL).is_finished
    _, validations = read_metrics(open_run(READY_MODEL).metrics_path)
    assert validations


def test_the_ready_model_holds_no_text_of_the_corpus() -> None:
    of_run = {"config.toml", "env.json", "manifest.json", "metrics.jsonl", "status.json"}
    of_model = {"model.safetensors", "state.json", "tokenizer.json", "joint.model"}
    others = {"README.md", "best.txt", "last.txt", "scores.json"}
    assert {path.name for path in files()} == of_run | of_model | others


def test_the_ready_model_is_scored_on_the_corpus_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    system, choice = (
        System([READY_MODEL], DecodingOptions()),
        EvalChoice(["test_2016_flickr"], data=tmp_path),
    )
    with pytest.raises(DataError, match="original files"):
        system.test_sets(EvalChoice(["test_2016_flickr"]))
    with pytest.raises(DataError, match=r"test_2016_flickr\.de"):
        system.test_sets(choice)
    texts = {
        "test_2016_flickr.de": b"Ein Hund.\r\nEin Mann.\n",
        "test_2016_flickr.en": b"A dog.\nA man.\n",
    }
    for name, text in texts.items():
        tmp_path.joinpath(f"{name}.gz").write_bytes(gzip.compress(text, mtime=0))
    with pytest.raises(DataError, match=r"test_2016_flickr\.de\.gz: not the published file"):
        system.test_sets(choice)
    for name, text in texts.items():
        monkeypatch.setitem(PINS, f"multi30k/{name}", Pin(sha256_bytes(text)))
    (test_set,) = system.test_sets(choice)
    assert (test_set.sources, test_set.refs) == (["Ein Hund.", "Ein Mann."], [["A dog.", "A man."]])


def test_the_ready_model_reads_text_that_nobody_tidied() -> None:
    translator = Translator.load(READY_MODEL, device="cpu")
    typed = ["mann in blauem hemd repariert ein auto", "EINE FRAU KAUFT BLUMEN AUF DEM MARKT."]
    man, woman = translator.translate(typed)
    assert {"man", "blue", "shirt"} <= set(man.lower().strip(".").split())
    assert {"woman", "flowers", "market"} <= set(woman.lower().strip(".").split())


def test_the_ready_model_knows_what_people_say_every_day() -> None:
    rows = [row.split("\t") for row in EVERYDAY.read_text("utf-8").splitlines()]
    translator = Translator.load(READY_MODEL, device="cpu")
    missed = []
    for (source, wanted), text in zip(
        rows, translator.translate([source for source, _ in rows]), strict=True
    ):
        found = text.lower().replace("’", "'")
        words = [alternatives.split("|") for alternatives in wanted.split()]
        if not all(any(word in found for word in alternatives) for alternatives in words):
            missed.append((source, text))
    assert len(missed) <= MAX_MISSED, missed


def test_the_ready_model_keeps_numbers() -> None:
    rng = random.Random(1)
    sources = []
    for _ in range(20):
        small, large = rng.randint(11, 99), rng.randint(101, 9999)
        sources += [
            f"Ich habe {small} Bücher gelesen.",
            f"{small} Menschen warten vor dem Laden.",
            f"Der Zug fährt um {rng.randint(10, 23)}:{small % 60:02} Uhr ab.",
            f"Die Tasche kostet {large} Euro.",
            f"Wir treffen uns in Zimmer {large}.",
        ]
    translator = Translator.load(READY_MODEL, device="cpu")
    found = [best for (best,) in translator.translate_n_best(sources)]
    changed = [each for each in found if each.changed_number]
    assert len(changed) <= 0.05 * len(sources), changed


def test_the_ready_model_says_that_a_newspaper_is_far_from_its_training() -> None:
    run = open_run(READY_MODEL)
    assert unlike_training([NEWS], run) is not None
    everyday = [row.split("\t")[0] for row in EVERYDAY.read_text("utf-8").splitlines()]
    assert unlike_training(everyday, run) is None
