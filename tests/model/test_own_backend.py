"""A registered backend is what validation, evaluation, translation and scores use."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tiny import random_ids, randomised, tiny_model
from workspace import Workspace

from mt_cli import Translator
from mt_cli.config.schema import BACKENDS
from mt_cli.errors import UsageError
from mt_cli.serving.server import ServedModel
from mt_cli.translation.options import DecodingOptions


@pytest.fixture(scope="module")
def registered() -> Iterator[None]:
    """The recipe of docs/design.md: a module, and a line in `BACKENDS`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BACKENDS, "own", ("own_backend", "OwnBackend"))
        yield


@pytest.fixture(scope="module")
def run(registered: None, workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own") / "own"
    settings = ("--set", "model.backend=own", "--set", "data.max_len=40")
    outcome = workspace.call(
        "train", "tiny.toml", *settings, "--max-steps", 120, "--run", folder,
        "--data", workspace.prepared,
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    return folder


def test_what_was_trained_is_what_is_validated_scored_and_used(
    workspace: Workspace, run: Path
) -> None:
    lines = workspace.corpus("val.de").read_text().splitlines()
    refs = workspace.corpus("val.en").read_text().splitlines()
    as_trained = Translator.load(run, backend="own", device="cpu")
    hyps = as_trained.translate(lines)
    assert hyps != Translator.load(run, backend="scratch", device="cpu").translate(lines)

    assert Translator.load(run, device="cpu").translate(lines) == hyps
    stdin = "\n".join(lines).encode()
    assert workspace.call("translate", run, stdin=stdin).lines == hyps
    assert ServedModel.of([run], DecodingOptions(device="cpu")).translator.translate(lines) == hyps

    outcome = workspace.call("evaluate", run, "--split", "val", "--json")
    bleu = json.loads(outcome.out)["splits"]["val"]["bleu"]["score"]
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    validations = [each for each in records if each["kind"] == "validation"]
    assert max(each["bleu"] for each in validations) == pytest.approx(bleu)

    files = ("--src", workspace.corpus("val.de"), "--tgt", workspace.corpus("val.en"))
    scores = [float(line) for line in workspace.call("score", run, *files).lines]
    assert scores == pytest.approx(as_trained.score(lines, refs), abs=1e-4)


def test_it_is_searched_as_it_was_trained(registered: None) -> None:
    model = randomised(tiny_model("own"))
    src_ids = random_ids(3, 6, lengths=[6, 2, 4])
    tgt_in = random_ids(3, 5, seed=1)
    with torch.no_grad():
        state = model.start(src_ids)
        steps = [model.step(ids.unsqueeze(1), state) for ids in tgt_in.unbind(1)]
        torch.testing.assert_close(torch.cat(steps, dim=1), model(src_ids, tgt_in))


def test_an_unknown_backend_is_told_with_those_that_are_known(run: Path) -> None:
    with pytest.raises(UsageError, match="own"):
        Translator.load(run, backend="jax")
