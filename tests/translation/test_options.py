"""Options of `Translator.load`: wrong ones are named, and each search has a name of its own."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from workspace import Workspace

from mt_cli.config.load import parse_config
from mt_cli.errors import UsageError
from mt_cli.evaluation.evaluate import System
from mt_cli.runs.opening import open_run
from mt_cli.translation.options import DecodingOptions
from mt_cli.translation.translator import Translator


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"beam_size": 0}, "decoding.beam_size: "),
        ({"length_penalty": float("nan")}, "decoding.length_penalty: "),
        ({"precision": "fp8"}, "decoding.precision: "),
        ({"temperature": 1.0, "beam_size": 4}, "decoding: .*temperature.*beam_size"),
        ({"top_k": 3}, "decoding: .*top_k"),
        ({"seed": 3}, "seed .*temperature"),
        ({"rerank_weights": (1, 1)}, "rerank_weights .*rerank_with"),
        ({"device": "gpu"}, "runtime.device: "),
        ({"backend": "tf"}, "model.backend: "),
        ({"threads": -1}, "runtime.threads: "),
        ({"checkpoint": ["best", "last"]}, "checkpoint: "),
        ({"beam_sise": 3}, "decoding: .*'beam_sise'.*'beam_size'"),
    ],
    ids=str,
)
def test_wrong_option_is_named(workspace: Workspace, options: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=f"^{named}"):
        Translator.load(**{"run": workspace.run, "device": "cpu", **options})


@pytest.mark.parametrize("asked", [{"temperature": 1.0}, {"beam_size": 1}, {"beam_size": 2}])
def test_a_kind_of_search_replaces_that_of_the_run(
    workspace: Workspace, asked: dict[str, object]
) -> None:
    run = open_run(workspace.run)
    for own in ({"beam_size": 5, "rerank_with": "runs/other"}, {"temperature": 2.0, "top_k": 3}):
        config = parse_config({"decoding": own})
        found = DecodingOptions.of(asked).config_of(replace(run, config=config))
        assert found.temperature == asked.get("temperature", 0.0)
        assert found.beam_size == asked.get("beam_size", 1)


SEARCHES: list[dict[str, object]] = [
    {},
    {"beam_size": 2},
    {"max_len_factor": 0.5},
    {"max_len_extra": 3},
    {"temperature": 1.0},
    {"temperature": 1.0, "seed": 2},
    {"temperature": 1.0, "top_k": 3},
    {"backend": "torch"},
    {"checkpoint": "last"},
]


def test_each_search_has_a_name_of_its_own(workspace: Workspace) -> None:
    names = [System([workspace.run], DecodingOptions.of(each)).decoding for each in SEARCHES]
    assert names[0] == "greedy"
    assert len(set(names)) == len(SEARCHES)
    same = DecodingOptions.of({"checkpoint": ["best"], "backend": None})
    assert System([workspace.run], same).decoding == "greedy"


def test_a_glossary_is_named_by_what_is_in_it(workspace: Workspace, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.tsv", "b.tsv", "c.tsv")]
    for path, content in zip(paths, ("Hund\tdog\n", "Hund\tcat\n", "Hund\tdog\n"), strict=True):
        path.write_text(content, encoding="utf-8")
    dog, cat, also_dog = (
        System([workspace.run], DecodingOptions.of({"glossary": path})).decoding for path in paths
    )
    assert dog == also_dog
    assert dog != cat
