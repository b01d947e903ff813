"""Runs that others need: `train --init-from`, on other data or with fewer layers, and teachers."""

import shutil
from pathlib import Path

import pytest
import torch
from trained import checkpoint, records, sets, weights
from workspace import Outcome, Workspace

from mt_cli.runs.checkpoint import read_state
from mt_cli.runs.opening import open_run

FEW = ("--max-steps", "6", *sets("training.validate_every=3", "training.peak_lr=1e-4"))
CUT_SHORT = ("--time-limit", "0.001s", "--no-validate")


@pytest.fixture
def folder(workspace: Workspace, tmp_path: Path) -> Path:
    """A folder with the tiny run, its corpus, and fine.toml, which takes its tokenizer."""
    shutil.copytree(workspace.folder / "corpus", tmp_path / "corpus")
    workspace.copy_run(tmp_path / "runs" / "tiny")
    text = workspace.folder.joinpath("tiny.toml").read_text()
    # Half of the training pairs, the same validation pairs.
    for lang in ("de", "en"):
        lines = tmp_path.joinpath(f"corpus/train.{lang}").read_bytes().splitlines(keepends=True)
        tmp_path.joinpath(f"corpus/some.{lang}").write_bytes(b"".join(lines[1:13]))
    text = text.replace("corpus/train.", "corpus/some.")
    text = text.replace("[tokenizer]\n", '[tokenizer]\nfrom_run = "runs/tiny"\n')
    tmp_path.joinpath("fine.toml").write_text(text)
    return tmp_path


@pytest.fixture
def prepared(workspace: Workspace, folder: Path) -> Path:
    """The same, with the data of fine.toml."""
    assert workspace.call("prepare", "fine.toml", cwd=folder).code == 0
    return folder


def train(workspace: Workspace, folder: Path, *args: object) -> Outcome:
    return workspace.call("train", "fine.toml", *args, cwd=folder)


def card(run: Path) -> str:
    return run.joinpath("README.md").read_text()


def losses(folder: Path, name: str) -> list[tuple[int, float]]:
    """Step and loss of each validation of a run."""
    return [(each["step"], each["nll"]) for each in records(folder / "runs" / name, "validation")]


INIT = ("--init-from", "runs/tiny")
DISTIL = sets('training.distil_from="runs/tiny"')


def test_run_starts_at_the_score_of_its_parent_says_so_and_goes_on(
    workspace: Workspace, prepared: Path
) -> None:
    outcome = train(workspace, prepared, *INIT, *FEW)
    assert (outcome.code, outcome.lines) == (0, ["runs/fine"]), outcome.err
    tiny, fine = prepared / "runs" / "tiny", prepared / "runs" / "fine"
    found = records(fine, "validation")
    assert [record["step"] for record in found] == [0, 3, 6]
    best = read_state(checkpoint(tiny, "best")).best_step
    (at_best,) = [each for each in records(tiny, "validation") if each["step"] == best]
    assert found[0]["bleu"] == at_best["bleu"]
    assert found[0]["nll"] == pytest.approx(at_best["nll"], rel=1e-6)
    assert found[1]["nll"] != found[0]["nll"]
    run = open_run(fine)
    parent = run.manifest.init_from
    assert parent is not None
    assert (parent.folder, parent.checkpoint) == ("runs/tiny", checkpoint(tiny, "best").name)
    assert parent.sha256 == open_run(tiny).weights_sha256("best")
    assert run.config.tokenizer.from_run == Path("runs/tiny")
    layers = "layers: 1 in the encoder, 1 in the decoder"
    assert f"| initialized from | runs/tiny, {parent.checkpoint}, {layers} |" in card(fine)


@pytest.mark.parametrize("start", [INIT, DISTIL], ids=["parent", "teacher"])
def test_run_is_resumed_to_the_same_weights(
    workspace: Workspace, prepared: Path, start: tuple[str, ...]
) -> None:
    """A parent may be gone by then; what a teacher says is part of the loss."""
    assert train(workspace, prepared, "--run", "runs/plain", *FEW).code == 0
    assert train(workspace, prepared, *start, *FEW).code == 0
    pieces = ("--run", "runs/pieces", *FEW)
    assert train(workspace, prepared, *pieces, *start, *CUT_SHORT).code == 0
    again = start if start == DISTIL else ()
    if start == INIT:
        prepared.joinpath("runs/tiny").rename(prepared / "runs/moved")
    resumed = train(workspace, prepared, *pieces, *again, "--resume")
    assert resumed.code == 0, resumed.err
    assert losses(prepared, "pieces") == losses(prepared, "fine") != losses(prepared, "plain")
    runs = prepared / "runs"
    assert weights(runs / "pieces") == weights(runs / "fine") != weights(runs / "plain")


def test_another_model_exits_2_and_names_the_keys(workspace: Workspace, prepared: Path) -> None:
    other = sets("model.d_ff=128", "model.dropout=0.3")
    outcome = train(workspace, prepared, *INIT, *other)
    assert (outcome.code, outcome.out) == (2, b"")
    assert "model.d_ff is 64, not 128" in outcome.err
    assert "dropout" not in outcome.err
    assert not prepared.joinpath("runs/fine").exists()


def test_new_config_for_a_run_is_prepared_and_trained_without_a_flag(
    workspace: Workspace, folder: Path
) -> None:
    """In the other direction, which is warned of, for its subwords are joint."""
    train_and_val = "--train corpus/train.en corpus/train.de --val corpus/val.en corpus/val.de"
    words = ("config", "new", *train_and_val.split(), *INIT, "-o", "back.toml")
    other_way = "warning: runs/tiny translates from de to en, "
    for args in (words, ("prepare", "back.toml")):
        outcome = workspace.call(*args, cwd=folder)
        assert outcome.code == 0, outcome.err
        assert other_way in outcome.err
    outcome = workspace.call("train", "back.toml", "--max-steps", 1, cwd=folder)
    assert (outcome.code, outcome.lines) == (0, ["runs/back"]), outcome.err
    assert "most models need a thousand or more" not in outcome.err
    assert losses(folder, "back")[0][0] == 0
    run = open_run(folder / "runs/back")
    assert run.manifest.init_from is not None
    assert run.tokenizers.options.src_lang == "en"


def test_model_with_fewer_layers_starts_with_some_of_its_parents(
    workspace: Workspace, prepared: Path
) -> None:
    deeper = sets("model.encoder_layers=3", "model.decoder_layers=2", "training.peak_lr=1e-2")
    deep = ("--run", "runs/deep", "--seed", 7, "--max-steps", 3)
    assert train(workspace, prepared, *deep, *deeper).code == 0
    fewer = (*sets("model.encoder_layers=2", "training.peak_lr=1e-12"), "--max-steps", 1)
    outcome = train(workspace, prepared, "--init-from", "runs/deep", *fewer)
    assert (outcome.code, outcome.lines) == (0, ["runs/fine"]), outcome.err
    run = open_run(prepared / "runs" / "fine")
    log = run.folder.joinpath("train.log").read_text()
    assert "; encoder layers 1, 3 of 3; decoder layers 1 of 2\n" in log
    assert ", layers: 3 in the encoder, 2 in the decoder |" in card(run.folder)
    parent = dict(open_run(prepared / "runs" / "deep").load_model().named_parameters())
    for name, weight in run.load_model().named_parameters():
        of_parent = parent[name.replace("backend.encoder.layers.1.", "backend.encoder.layers.2.")]
        torch.testing.assert_close(weight, of_parent, rtol=0, atol=1e-9, msg=name)
    fresh = run.build_model(seed=run.config.runtime.seed)
    assert all(not torch.equal(weight, parent[name]) for name, weight in fresh.named_parameters())


# Teachers


def test_another_or_a_missing_teacher_ends_a_resumed_training(
    workspace: Workspace, prepared: Path
) -> None:
    assert train(workspace, prepared, *DISTIL, "--max-steps", 1).code == 0
    (teacher,) = open_run(prepared / "runs" / "fine").manifest.distil_from
    assert f"| distilled from | runs/tiny, {teacher.checkpoint} |" in card(
        prepared / "runs" / "fine"
    )
    outcome = train(workspace, prepared, "--max-steps", 2, "--resume")
    assert outcome.code == 2
    assert "was started with training.distil_from" in outcome.err
    prepared.joinpath("runs/tiny").rename(prepared / "runs/moved")
    outcome = train(workspace, prepared, *DISTIL, "--max-steps", 2, "--resume")
    assert outcome.code == 3
    assert "runs/fine needs it: restore it, or train again" in outcome.err
    finished = train(workspace, prepared, *DISTIL, "--max-steps", 1, "--resume")
    assert finished.code == 0, finished.err  # nothing is left to learn


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("--run", "runs/tiny", "--overwrite"), "would overwrite this run"),
        (sets("model.max_len=300"), "model.max_len of 300"),
        (sets('training.distil_from=["runs/tiny", "runs/none"]'), "runs/none: not a run folder"),
        (sets("training.distil_share=1.5"), "training.distil_share"),
    ],
    ids=["itself", "longer", "missing", "share"],
)
def test_a_teacher_that_does_not_fit_is_refused(
    workspace: Workspace, prepared: Path, args: tuple[str, ...], reason: str
) -> None:
    names_a_teacher = any("distil_from" in arg for arg in args)
    outcome = train(workspace, prepared, *(() if names_a_teacher else DISTIL), *args)
    assert (outcome.code, outcome.out) == (2, b"")
    assert reason in outcome.err
    assert open_run(prepared / "runs" / "tiny").checkpoints


def test_a_teacher_of_another_tokenizer_is_refused(workspace: Workspace, folder: Path) -> None:
    config = folder / "fine.toml"
    config.write_text(config.read_text().replace('from_run = "runs/tiny"', ""))
    assert workspace.call("prepare", "fine.toml", cwd=folder).code == 0
    outcome = train(workspace, folder, *DISTIL, *FEW)
    assert outcome.code == 2
    assert "has a different tokenizer than runs/tiny" in outcome.err
