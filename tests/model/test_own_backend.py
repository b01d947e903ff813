"""A registered backend is what validation, evaluation, translation and scores use."""

import json
from pathlib import Path

import pytest
from trained import records, sets, train
from workspace import Workspace

from mt_cli import Translator
from mt_cli.config.schema import BACKENDS
from mt_cli.serving.api import ServedModel
from mt_cli.translation.options import DecodingOptions


def test_what_was_trained_is_what_is_validated_scored_and_used(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The recipe of docs/design.md: a module, and a line in `BACKENDS`.
    monkeypatch.setitem(BACKENDS, "own", ("own_backend", "OwnBackend"))
    run = tmp_path / "own"
    trained = train(workspace, run, *sets("model.backend=own"), "--max-steps", 120)
    assert trained.code == 0, trained.err

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
    assert max(each["bleu"] for each in records(run, "validation")) == pytest.approx(bleu)

    files = ("--src", workspace.corpus("val.de"), "--tgt", workspace.corpus("val.en"))
    scores = [float(line) for line in workspace.call("score", run, *files).lines]
    assert scores == pytest.approx(as_trained.score(lines, refs), abs=1e-4)
