"""Runs that others need: `train --init-from`, on other data or with fewer layers, and teachers."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from damage import change_json
from tiny import BACKENDS, randomised, tiny_model
from workspace import Outcome, Workspace

from mt_cli.runs.checkpoint import read_state
from mt_cli.runs.opening import open_run
from mt_cli.text import PAD_ID
from mt_cli.training.other_runs import kept_layers, weights_of_layers

FEW = ("--max-steps", "6", "--set", "training.validate_every=3", "--set", "training.peak_lr=1e-4")


@pytest.fixture
def folder(workspace: Workspace, tmp_path: Path) -> Path:
    """A folder with the tiny run and its corpus, and a config that takes that run's tokenizer."""
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


def prepare(workspace: Workspace, folder: Path) -> Outcome:
    return workspace.call("prepare", "fine.toml", cwd=folder)


def train(workspace: Workspace, folder: Path, *args: object) -> Outcome:
    return workspace.call("train", "fine.toml", *args, cwd=folder)


def validations(run: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in run.joinpath("metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "validation"]


def forget_checkpoints(run: Path) -> None:
    """Leave the run as if it had been killed before its first checkpoint."""
    shutil.rmtree(run / "checkpoints")
    for name in ("best.txt", "last.txt"):
        run.joinpath(name).unlink()
    run.joinpath("checkpoints").mkdir()


def test_run_starts_at_the_score_of_its_parent_and_goes_on(
    workspace: Workspace, folder: Path
) -> None:
    assert prepare(workspace, folder).code == 0
    outcome = train(workspace, folder, "--init-from", "runs/tiny", *FEW)
    assert (outcome.code, outcome.lines) == (0, ["runs/fine"]), outcome.err
    parent, fine = folder / "runs" / "tiny", folder / "runs" / "fine"
    found = validations(fine)
    assert [record["step"] for record in found] == [0, 3, 6]
    best = read_state(open_run(parent).checkpoint_folder("best")).best_step
    (at_best,) = [record for record in validations(parent) if record["step"] == best]
    assert found[0]["bleu"] == at_best["bleu"]
    assert found[0]["nll"] == pytest.approx(at_best["nll"], rel=1e-6)
    assert found[1]["nll"] != found[0]["nll"]
    assert workspace.call("translate", fine, "--text", "Ein Mann.").code == 0


def test_run_says_which_weights_it_started_with(workspace: Workspace, folder: Path) -> None:
    prepare(workspace, folder)
    assert train(workspace, folder, "--init-from", "runs/tiny", "--max-steps", 1).code == 0
    run = open_run(folder / "runs" / "fine")
    best = (
        folder
        / "runs"
        / "tiny"
        / "checkpoints"
        / folder.joinpath("runs/tiny/best.txt").read_text().strip()
    )
    listed = json.loads(best.joinpath("manifest.json").read_text())["sha256"]["model.safetensors"]
    assert run.init_from is not None
    assert (run.init_from.folder, run.init_from.checkpoint) == ("runs/tiny", best.name)
    assert run.init_from.sha256 == listed
    assert run.config.tokenizer.from_run == Path("runs/tiny")
    started = (
        f"| started with | runs/tiny, {best.name}, layers: 1 in the encoder, 1 in the decoder |"
    )
    assert started in run.folder.joinpath("README.md").read_text()


def test_resumed_run_continues_without_its_parent(workspace: Workspace, folder: Path) -> None:
    prepare(workspace, folder)
    pieces = ("--init-from", "runs/tiny", *FEW)
    assert train(workspace, folder, *pieces).code == 0
    limited = ("--run", "runs/pieces", *pieces, "--time-limit", "0.001s", "--no-validate")
    assert train(workspace, folder, *limited).code == 0
    folder.joinpath("runs/tiny").rename(folder / "runs/moved")
    assert train(workspace, folder, "--run", "runs/pieces", *FEW, "--resume").code == 0
    whole, resumed = (validations(folder / "runs" / name) for name in ("fine", "pieces"))
    assert [(v["step"], v["nll"]) for v in resumed] == [(v["step"], v["nll"]) for v in whole]


def test_weights_that_changed_since_are_refused(workspace: Workspace, folder: Path) -> None:
    prepare(workspace, folder)
    assert train(workspace, folder, "--init-from", "runs/tiny", *FEW).code == 0
    run = folder / "runs" / "fine"
    parent = json.loads(run.joinpath("manifest.json").read_text())["init_from"]
    change_json(run / "manifest.json", init_from={**parent, "sha256": "0" * 64})
    forget_checkpoints(run)
    outcome = train(workspace, folder, *FEW, "--resume")
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.endswith(
        ": not the weights that it had when this run began; runs/fine starts with them: put that "
        "right, or train anew with --init-from\n"
    )


def test_another_model_exits_2_and_names_the_keys(workspace: Workspace, folder: Path) -> None:
    prepare(workspace, folder)
    other = ("--set", "model.d_ff=64", "--set", "model.dropout=0.3")
    outcome = train(workspace, folder, "--init-from", "runs/tiny", *other)
    assert (outcome.code, outcome.out) == (2, b"")
    assert (
        "runs/tiny has another model: model.d_ff is 64, there 128; give the config" in outcome.err
    )
    assert not folder.joinpath("runs/fine").exists()


def test_new_config_for_a_run_is_prepared_and_trained_without_a_flag(
    workspace: Workspace, folder: Path
) -> None:
    new = (
        "config",
        "new",
        "--train",
        "corpus/train.en",
        "corpus/train.de",
        "--val",
        "corpus/val.en",
    )
    outcome = workspace.call(
        *new, "corpus/val.de", "--init-from", "runs/tiny", "-o", "back.toml", cwd=folder
    )
    assert outcome.code == 0
    other_way = "warning: runs/tiny translates from de to en, and this config is from en to de"
    assert other_way in outcome.err
    outcome = workspace.call("prepare", "back.toml", cwd=folder)
    assert outcome.code == 0
    assert other_way in outcome.err
    outcome = workspace.call("train", "back.toml", "--max-steps", 1, cwd=folder)
    assert (outcome.code, outcome.lines) == (0, ["runs/back"]), outcome.err
    assert "training makes only" not in outcome.err
    assert "the vocabulary of" not in outcome.err
    assert validations(folder / "runs/back")[0]["step"] == 0
    run = open_run(folder / "runs/back")
    assert run.init_from is not None
    assert (run.init_from.folder, run.tokenizers.options.src_lang) == ("runs/tiny", "en")


def train_deep(workspace: Workspace, folder: Path) -> None:
    """Train the parent `runs/deep`, of more layers than fine.toml has, and another seed."""
    depths = ("--set", "model.encoder_layers=3", "--set", "model.decoder_layers=2")
    options = ("--seed", 7, "--max-steps", 3, "--set", "training.peak_lr=1e-2")
    assert train(workspace, folder, "--run", "runs/deep", *depths, *options).code == 0


def test_model_with_fewer_layers_starts_with_some_of_its_parents(
    workspace: Workspace, folder: Path
) -> None:
    prepare(workspace, folder)
    train_deep(workspace, folder)
    fewer = ("--set", "model.encoder_layers=2", "--max-steps", 1, "--set", "training.peak_lr=1e-12")
    outcome = train(workspace, folder, "--init-from", "runs/deep", *fewer)
    assert (outcome.code, outcome.lines) == (0, ["runs/fine"]), outcome.err
    assert "; encoder layers 1, 3 of 3; decoder layers 1 of 2\n" in (
        folder.joinpath("runs/fine/train.log").read_text()
    )
    run = open_run(folder / "runs" / "fine")
    assert run.init_from is not None
    assert (run.init_from.encoder_layers, run.init_from.decoder_layers) == (3, 2)
    said = f"| runs/deep, {run.init_from.checkpoint}, layers: 3 in the encoder, 2 in the decoder |"
    assert said in run.folder.joinpath("README.md").read_text()
    parent = dict(open_run(folder / "runs" / "deep").load_model().named_parameters())
    for name, weight in run.load_model().named_parameters():
        of_parent = parent[name.replace("backend.encoder.layers.1.", "backend.encoder.layers.2.")]
        torch.testing.assert_close(weight, of_parent, rtol=0, atol=1e-9, msg=name)
    fresh = run.build_model(seed=run.config.runtime.seed)
    assert all(not torch.equal(weight, parent[name]) for name, weight in fresh.named_parameters())


# Which layers


@pytest.mark.parametrize(
    ("num_layers", "num_kept", "kept"),
    [
        (4, 1, [0]),
        (4, 2, [0, 3]),
        (4, 4, [0, 1, 2, 3]),
        (5, 3, [0, 2, 4]),
        (12, 3, [0, 6, 11]),
        (1, 1, [0]),
    ],
)
def test_kept_layers_by_hand(num_layers: int, num_kept: int, kept: list[int]) -> None:
    assert kept_layers(num_layers, num_kept) == kept


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("tie", ["none", "all"])
def test_without_layers_that_change_nothing_the_model_computes_the_same(
    backend: str, tie: str
) -> None:
    """A pre-norm layer whose sublayers put out zeros returns what it is given."""
    deep = randomised(tiny_model(backend, encoder_layers=5, decoder_layers=4, norm="pre", tie=tie))
    weights = dict(deep.named_parameters())
    dropped = {"encoder": {"1", "3"}, "decoder": {"1", "2"}}
    with torch.no_grad():
        for name, weight in weights.items():
            match name.split("."):
                case ["backend", stack, "layers", layer, *rest] if layer in dropped[stack]:
                    if "out_proj" in rest or "linear2" in rest:
                        weight.zero_()
    shallow = tiny_model(backend, encoder_layers=3, decoder_layers=2, norm="pre", tie=tie)
    names = dict(shallow.named_parameters()).keys()
    kept = {"encoder": kept_layers(5, 3), "decoder": kept_layers(4, 2)}
    shallow.load_state_dict(weights_of_layers(weights, kept, names=names), strict=False)
    src = torch.tensor([[5, 6, 7, PAD_ID], [8, 9, 4, 5]])
    tgt = torch.tensor([[4, 5, 6], [7, 8, 9]])
    with torch.no_grad():
        torch.testing.assert_close(shallow(src, tgt), deep(src, tgt))


# Teachers


DISTIL = ("--set", 'training.distil_from="runs/tiny"')


def test_run_learns_from_a_teacher_and_resumes_to_the_same_weights(
    workspace: Workspace, folder: Path
) -> None:
    prepare(workspace, folder)
    assert train(workspace, folder, *FEW).code == 0
    plain = validations(folder / "runs" / "fine")
    shutil.rmtree(folder / "runs" / "fine")
    assert train(workspace, folder, *DISTIL, *FEW).code == 0
    limited = ("--run", "runs/pieces", *DISTIL, *FEW, "--time-limit", "0.001s", "--no-validate")
    assert train(workspace, folder, *limited).code == 0
    resumed = train(workspace, folder, "--run", "runs/pieces", *DISTIL, *FEW, "--resume")
    assert resumed.code == 0, resumed.err
    runs = [open_run(folder / "runs" / name) for name in ("fine", "pieces")]
    found = [[(v["step"], v["nll"]) for v in validations(run.folder)] for run in runs]
    assert found[0] == found[1]
    assert found[0] != [(v["step"], v["nll"]) for v in plain]
    for run in runs:
        (teacher,) = run.distil_from
        assert teacher.folder == "runs/tiny"
        assert run.config.training.distil_from == (Path("runs/tiny"),)
        assert f"| learnt from | runs/tiny, {teacher.checkpoint} |" in (
            run.folder.joinpath("README.md").read_text()
        )


def test_another_or_a_missing_teacher_ends_a_resumed_training(
    workspace: Workspace, folder: Path
) -> None:
    prepare(workspace, folder)
    assert train(workspace, folder, *DISTIL, "--max-steps", 1).code == 0
    outcome = train(workspace, folder, "--max-steps", 2, "--resume")
    assert outcome.code == 2
    assert "was started with training.distil_from" in outcome.err
    again = (*DISTIL, "--max-steps", 2, "--resume")
    teacher = folder / "runs" / "tiny"
    teacher.rename(folder / "runs" / "moved")
    outcome = train(workspace, folder, *again)
    assert outcome.code == 3
    assert "runs/fine learns from it: put that right, or train anew" in outcome.err
    finished = train(workspace, folder, *DISTIL, "--max-steps", 1, "--resume")
    assert finished.code == 0, finished.err  # nothing is left to learn
    folder.joinpath("runs", "moved").rename(teacher)
    assert train(workspace, folder, *again).code == 0


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("--run", "runs/tiny", "--overwrite"), "cannot learn from the one that it replaces"),
        (("--set", "model.max_len=300"), "a teacher has to read what the model reads"),
        (("--set", 'training.distil_from=["runs/tiny", "runs/none"]'), "no such run folder"),
        (("--set", "training.distil_share=1.5"), "training.distil_share"),
    ],
    ids=["itself", "longer", "missing", "share"],
)
def test_a_teacher_that_does_not_fit_is_refused(
    workspace: Workspace, folder: Path, args: tuple[str, ...], reason: str
) -> None:
    prepare(workspace, folder)
    outcome = train(workspace, folder, *DISTIL, *args)
    assert (outcome.code, outcome.out) == (2, b"")
    assert reason in outcome.err
    assert open_run(folder / "runs" / "tiny").checkpoints


def test_a_teacher_of_the_other_direction_is_refused(workspace: Workspace, folder: Path) -> None:
    swapped = ("--set", "data.src_lang=en", "--set", "data.tgt_lang=de")
    assert workspace.call("prepare", "fine.toml", *swapped, cwd=folder).code == 0
    outcome = train(workspace, folder, *DISTIL, *swapped, *FEW)
    assert outcome.code == 2
    assert "training.distil_from: runs/tiny translates from de to en" in outcome.err


def test_a_teacher_with_another_tokenizer_is_refused(workspace: Workspace, folder: Path) -> None:
    text = folder.joinpath("fine.toml").read_text()
    folder.joinpath("fine.toml").write_text(text.replace('from_run = "runs/tiny"\n', ""))
    prepare(workspace, folder)
    outcome = train(workspace, folder, *DISTIL, *FEW)
    assert outcome.code == 2
    assert "was prepared with another tokenizer than that of runs/tiny" in outcome.err
