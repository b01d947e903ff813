"""Run folders: made once, opened only when they are what they were, and what is found in them."""

import shutil
from pathlib import Path

import pytest
import torch
from runs_made import StandIn, add_checkpoint, making
from tiny import TINY, random_ids

from mt_cli.config.schema import Config, DataConfig
from mt_cli.errors import DataError, UsageError
from mt_cli.machine.files import write_json
from mt_cli.runs.opening import open_run
from mt_cli.runs.run import ENVIRONMENT, STATUS, Run, append_metrics, read_metrics

CONFIG = Config(model=TINY, data=DataConfig(max_len=14))


def create(folder: Path, *, overwrite: bool = False, config: Config = CONFIG) -> Run:
    with making(folder, config, overwrite=overwrite) as run:
        return run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return create(tmp_path / "runs" / "first")


def test_a_run_opens_as_it_was_made(run: Run) -> None:
    opened = open_run(run.folder)
    assert opened.config == CONFIG
    assert opened.prepared.sha256 == StandIn.sha256
    assert opened.lengths == StandIn.manifest.lengths
    assert opened == run


def test_an_existing_run_is_not_touched_unasked(run: Run) -> None:
    with pytest.raises(UsageError, match=r"first .*--resume .*--overwrite .*--run "):
        create(run.folder, config=Config())
    assert open_run(run.folder).config == CONFIG


def test_overwriting_leaves_nothing_of_the_old_run(run: Run) -> None:
    add_checkpoint(run, 3, pointers=("best",))
    append_metrics(run.metrics_path, {"kind": "step", "step": 3})
    anew = create(run.folder, overwrite=True, config=Config())
    assert anew.config == Config()
    assert not (run.folder / "checkpoints").exists()
    assert not (run.folder / "best.txt").exists()
    assert read_metrics(anew.metrics_path) == []


def test_a_prepared_folder_is_not_overwritten_for_a_run(tmp_path: Path) -> None:
    # It has a manifest.json too.
    (tmp_path / "sample").mkdir()
    (tmp_path / "sample" / "manifest.json").write_text(
        '{"format": 1, "sha256": {}}', encoding="utf-8"
    )
    with pytest.raises(UsageError, match="sample "):
        create(tmp_path / "sample", overwrite=True)
    assert (tmp_path / "sample" / "manifest.json").is_file()


@pytest.mark.parametrize("name", ["config.toml", "tokenizer/tokenizer.json"])
def test_an_altered_file_is_named(run: Run, name: str) -> None:
    with (run.folder / name).open("ab") as file:
        file.write(b"\n")
    with pytest.raises(DataError, match=f"first/{name}: "):
        open_run(run.folder)


@pytest.mark.parametrize(
    "manifest",
    [
        "{}",
        '{"format": 2, "sha256": {}, "prepared": {}}',
        '{"format": 1, "sha256": [], "prepared": {}}',
        '{"format": 1, "sha256": {}}',
    ],
)
def test_a_manifest_of_another_kind_is_refused(run: Run, manifest: str) -> None:
    (run.folder / "manifest.json").write_text(manifest, encoding="utf-8")
    with pytest.raises(DataError, match=r"manifest\.json: "):
        open_run(run.folder)


# Checkpoints


@pytest.fixture
def trained(run: Run) -> Run:
    add_checkpoint(run, 100, pointers=("best",))
    add_checkpoint(run, 150)
    add_checkpoint(run, 200, pointers=("last",))
    return run


def test_the_newest_checkpoint_has_the_highest_number(run: Run) -> None:
    for step in (100_000_000, 99_999_999):
        add_checkpoint(run, step)
    assert run.checkpoints == ["step-99999999", "step-100000000"]
    assert run.pointer("last") == "step-100000000"


@pytest.mark.parametrize(
    ("name", "folder"),
    [("best", "step-00000100"), ("last", "step-00000200"), ("step-00000150", "step-00000150")],
)
def test_checkpoints_are_found_by_name(trained: Run, name: str, folder: str) -> None:
    assert trained.checkpoint_folder(name) == trained.folder / "checkpoints" / folder


@pytest.mark.parametrize(
    "name",
    ["newest", "step-00000300", "", "..", "step-00000100\n", "step-\0", "step-" + "1" * 5000],
    ids=["other", "not there", "empty", "above", "line end", "NUL", "long"],
)
def test_an_unknown_checkpoint_is_refused_with_those_there_are(trained: Run, name: str) -> None:
    with pytest.raises(UsageError, match="best, last, step-00000100, step-00000150, step-0000020"):
        trained.checkpoint_folder(name)


def test_pointer_to_what_is_gone_is_damage(trained: Run) -> None:
    shutil.rmtree(trained.folder / "checkpoints" / "step-00000100")
    with pytest.raises(DataError, match=r"best\.txt: .*step-00000100"):
        trained.checkpoint_folder("best")


def test_last_is_the_newest_whatever_its_pointer_says(trained: Run) -> None:
    (trained.folder / "last.txt").unlink()
    assert trained.resolve_checkpoint("last") == "step-00000200"


def test_newer_checkpoint_than_the_one_just_saved_is_unused(trained: Run) -> None:
    trained.remove_unused_checkpoints(last="step-00000150")
    assert trained.checkpoints == ["step-00000100", "step-00000150"]


@pytest.mark.parametrize("backend", ["torch", "scratch", None])
def test_trained_model_is_loaded_in_eval_mode_on_either_backend(
    trained: Run, backend: None
) -> None:
    loaded = trained.load_model(backend=backend)
    assert not loaded.training
    src_ids, tgt_in = random_ids(1, 3, vocab_size=6), random_ids(1, 2, vocab_size=6)
    model = trained.build_model(seed=100).eval()
    torch.testing.assert_close(
        loaded(src_ids, tgt_in), model(src_ids, tgt_in), rtol=1e-4, atol=1e-5
    )


# What training says of itself

START_FACTS = {"commit": "a", "threads": 2, "gpu": "H"}
LATER_FACTS = {"commit": "b", "threads": 2, "amx": True}


def test_each_resumption_notes_what_differs_from_the_one_before(run: Run) -> None:
    assert run.read_facts(STATUS) == {}
    write_json(run.folder / ENVIRONMENT, START_FACTS)
    for step in (0, 5):
        run.note_environment(START_FACTS, after_step=step)
    assert run.read_facts(ENVIRONMENT) == START_FACTS
    for step in (10, 20):  # the second time, nothing is new
        run.note_environment(LATER_FACTS, after_step=step)
    run.note_environment(START_FACTS, after_step=30)
    noted = [
        {"after_step": 10, "commit": "b", "amx": True},
        {"after_step": 30, "commit": "a"},
    ]
    assert run.read_facts(ENVIRONMENT) == START_FACTS | {"resumed": noted}
