"""Run folders: made once, opened only when they are what they were, and found by name."""

from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch
from learned import learn_tokenizers
from tiny import TINY, random_ids, randomised

from mt_cli.config.schema import Config, DataConfig, TokenizerConfig
from mt_cli.errors import DataError, UsageError
from mt_cli.runs.checkpoint import CheckpointState, checkpoint_name, save_checkpoint
from mt_cli.runs.run import PreparedReference, Run, build_model, created_run, open_run

CONFIG = Config(model=TINY, data=DataConfig(max_len=14))
PREPARED = PreparedReference("data/prepared/sample", "abc123")
TOKENIZER_FILES = {"tokenizer.json": b'{"format": 1}', "joint.model": b"\x00\xffmodel"}


def creating(
    folder: Path, *, overwrite: bool = False, config: Config = CONFIG
) -> AbstractContextManager[Run]:
    return created_run(
        folder,
        config,
        tokenizer_files=TOKENIZER_FILES,
        prepared=PREPARED,
        environment={"torch": "2.x", "threads": 2},
        overwrite=overwrite,
    )


def create(folder: Path, *, overwrite: bool = False, config: Config = CONFIG) -> Run:
    with creating(folder, overwrite=overwrite, config=config) as run:
        return run


def add_checkpoint(run: Run, step: int) -> None:
    folder = run.folder / "checkpoints" / checkpoint_name(step)
    model = build_model(run.config.model, src_vocab_size=11, tgt_vocab_size=11, seed=step)
    save_checkpoint(folder, model, tensors={}, state=CheckpointState(step, 0, step))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return create(tmp_path / "runs" / "first")


def test_a_run_opens_as_it_was_made(run: Run) -> None:
    opened = open_run(run.folder)
    assert opened.config == CONFIG
    assert opened.prepared == PREPARED
    assert opened == run


def test_an_existing_run_is_not_touched_unasked(run: Run) -> None:
    with pytest.raises(
        UsageError, match=r"first exists; --resume goes on with it, --overwrite starts anew, --run names"
    ):
        create(run.folder, config=Config())
    assert open_run(run.folder).config == CONFIG


def test_overwriting_leaves_nothing_of_the_old_run(run: Run) -> None:
    add_checkpoint(run, 3)
    run.point("best", step=3)
    run.append_metrics({"kind": "step", "step": 3})
    anew = create(run.folder, overwrite=True, config=Config())
    assert anew.config == Config()
    assert sorted(path.name for path in run.folder.iterdir()) == [
        "config.toml",
        "env.json",
        "manifest.json",
        "tokenizer",
        "train.log",
    ]


def test_a_new_run_is_locked_from_its_first_moment_to_its_makers_last(tmp_path: Path) -> None:
    with (
        creating(tmp_path / "run") as run,
        pytest.raises(UsageError, match="another process is training there"),
        run.locked(),
    ):
        pass
    with run.locked():
        pass


def test_a_prepared_folder_is_not_overwritten_for_a_run(tmp_path: Path) -> None:
    # It has a manifest.json too.
    (tmp_path / "sample").mkdir()
    (tmp_path / "sample" / "manifest.json").write_text('{"format": 1, "sha256": {}}', encoding="utf-8")
    with pytest.raises(
        UsageError, match=r"is not a run folder, so --overwrite leaves it alone; name another"
    ):
        create(tmp_path / "sample", overwrite=True)
    assert (tmp_path / "sample" / "manifest.json").is_file()


@pytest.mark.parametrize("name", ["config.toml", "tokenizer/tokenizer.json", "tokenizer/joint.model"])
def test_an_altered_file_is_named(run: Run, name: str) -> None:
    with (run.folder / name).open("ab") as file:
        file.write(b"\n")
    with pytest.raises(DataError, match=rf"first/{name}: altered or damaged"):
        open_run(run.folder)


@pytest.mark.parametrize(
    "manifest",
    [
        "{}",
        '{"format": 2, "sha256": {}, "prepared": {}}',
        '{"format": 1, "sha256": [], "prepared": {}}',
        '{"format": 1, "sha256": {}}',
    ],
    ids=["empty", "other format", "no hashes", "no data"],
)
def test_a_manifest_of_another_kind_is_refused(run: Run, manifest: str) -> None:
    (run.folder / "manifest.json").write_text(manifest, encoding="utf-8")
    with pytest.raises(DataError, match=r"manifest\.json: not a run manifest of format 1"):
        open_run(run.folder)


@pytest.fixture
def trained(run: Run) -> Run:
    add_checkpoint(run, 100)
    add_checkpoint(run, 200)
    run.point("best", step=100)
    run.point("last", step=200)
    return run


@pytest.mark.parametrize(
    ("name", "folder"),
    [("best", "step-00000100"), ("last", "step-00000200"), ("step-00000100", "step-00000100")],
)
def test_checkpoints_are_found_by_name(trained: Run, name: str, folder: str) -> None:
    assert trained.checkpoint_folder(name) == trained.folder / "checkpoints" / folder


@pytest.mark.parametrize("name", ["newest", "step-00000300", "", "..", "../tokenizer"])
def test_an_unknown_checkpoint_is_refused_with_those_there_are(trained: Run, name: str) -> None:
    complaint = rf"first: no checkpoint '{name}'; it has best, last, step-00000100, step-00000200$"
    with pytest.raises(UsageError, match=complaint):
        trained.checkpoint_folder(name)


@pytest.fixture
def real(tmp_path: Path) -> Run:
    """A run with tokenizers that can be read."""
    pairs = [("ein hund schläft", "a dog sleeps"), ("zwei hunde spielen", "two dogs play")]
    tokenizers = learn_tokenizers(
        pairs,
        TokenizerConfig(kind="spacy", min_freq=1, joint=False),
        src_lang="de",
        tgt_lang="en",
        lowercase=False,
    )
    with created_run(
        tmp_path / "run", CONFIG, tokenizer_files=tokenizers.to_files(), prepared=PREPARED, environment={}
    ) as run:
        return run


@pytest.mark.parametrize("backend", ["torch", "scratch", None])
def test_trained_model_is_loaded_in_eval_mode_on_either_backend(real: Run, backend: None) -> None:
    model = randomised(real.build_model())
    folder = real.folder / "checkpoints" / checkpoint_name(5)
    save_checkpoint(folder, model, tensors={}, state=CheckpointState(5, 1, 0))
    real.point("best", step=5)
    loaded = real.load_model(backend=backend)
    assert not loaded.training
    src_ids, tgt_in = random_ids(1, 3, vocab_size=6), random_ids(1, 2, vocab_size=6)
    torch.testing.assert_close(loaded(src_ids, tgt_in), model(src_ids, tgt_in), rtol=1e-4, atol=1e-5)
