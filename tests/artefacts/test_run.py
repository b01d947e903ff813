"""Run folders: made once, opened only when they are what they were, and found by name."""

import errno
import json
import os
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch
from damage import IMPOSTORS, accepted_flips, replace_by, without_seal
from learned import learn_tokenizers
from tiny import TINY, random_ids, randomised, tiny_model

from mt_cli.artefacts.checkpoint import CheckpointState, checkpoint_name, save_checkpoint
from mt_cli.artefacts.json_files import sealed, write_json
from mt_cli.artefacts.run import Run, build_model, open_run
from mt_cli.artefacts.run_creation import created_run
from mt_cli.artefacts.run_lock import locked
from mt_cli.artefacts.run_manifest import PreparedReference, RunManifest, write_run_manifest
from mt_cli.config import Config, DataConfig, TokenizerConfig
from mt_cli.errors import DataError, ResourceError, UsageError

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


# Making and opening


def test_a_run_opens_as_it_was_made(run: Run) -> None:
    opened = open_run(run.folder)
    assert opened.config == CONFIG
    assert opened.prepared == PREPARED
    assert opened == run


def test_a_run_holds_its_tokenizers_files(run: Run) -> None:
    found = {path.name: path.read_bytes() for path in (run.folder / "tokenizer").iterdir()}
    assert found == TOKENIZER_FILES


def test_a_run_notes_its_environment(run: Run) -> None:
    environment = json.loads((run.folder / "env.json").read_text(encoding="utf-8"))
    assert environment == sealed({"torch": "2.x", "threads": 2})


def test_a_run_can_be_moved(run: Run) -> None:
    moved = run.folder.parent / "elsewhere"
    run.folder.rename(moved)
    assert open_run(moved).config == CONFIG


def test_an_empty_folder_may_become_a_run(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    assert create(tmp_path / "x").config == CONFIG


# Existing folders


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


@pytest.mark.parametrize(
    ("overwrite", "complaint"), [(False, "run exists"), (True, "another process is training there")]
)
def test_a_new_run_is_its_makers_alone(tmp_path: Path, overwrite: bool, complaint: str) -> None:
    with creating(tmp_path / "run") as run:
        with pytest.raises(UsageError, match=complaint):
            create(tmp_path / "run", overwrite=overwrite)
        assert open_run(run.folder) == run
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_new_run_is_locked_from_its_first_moment_to_its_makers_last(tmp_path: Path) -> None:
    with (
        creating(tmp_path / "run") as run,
        pytest.raises(UsageError, match="another process is training there"),
        run.locked(),
    ):
        pass
    with run.locked():
        pass


@pytest.mark.parametrize("overwrite", [True, False])
def test_of_two_that_begin_at_once_one_gets_the_folder(
    tmp_path: Path, overwrite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def another_is_faster(folder: Path, manifest: RunManifest) -> None:
        monkeypatch.undo()
        write_run_manifest(folder, manifest)
        create(tmp_path / "run", config=Config())

    monkeypatch.setattr("mt_cli.artefacts.run_creation.write_run_manifest", another_is_faster)
    with pytest.raises(UsageError, match=r"run: another process is training there; wait for its end"):
        create(tmp_path / "run", overwrite=overwrite)
    assert open_run(tmp_path / "run").config == Config()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_disk_that_fails_once_a_run_has_its_name_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("mt_cli.artefacts.folders.sync_folder", fail)
    with pytest.raises(ResourceError, match=r"run: cannot be written: Input/output error"):
        create(tmp_path / "run")
    assert open_run(tmp_path / "run").config


def test_a_run_that_was_replaced_while_it_was_locked_is_not_gone_on_with(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def after_a_replacement(file: object, operation: int) -> None:
        monkeypatch.undo()
        create(run.folder, overwrite=True)

    monkeypatch.setattr("fcntl.flock", after_a_replacement)
    with pytest.raises(UsageError, match="another process is training there"), run.locked():
        pass


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize("name", [".", ".."])
def test_the_folder_that_one_is_in_is_not_replaced(
    run: Run, name: str, overwrite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = run.folder / "tokenizer" if name == ".." else run.folder
    monkeypatch.chdir(inside)
    with pytest.raises(UsageError, match=r"exists|take the place of the one you are in; name another"):
        create(Path(name), overwrite=overwrite)
    assert open_run(run.folder) == run


def test_an_empty_folder_that_one_is_in_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"take the place of the one you are in"):
        create(Path())


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_folder_of_something_else_is_never_overwritten(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("dear", encoding="utf-8")
    with pytest.raises(UsageError, match=r"thesis (exists|is not a run folder, so --overwrite leaves it)"):
        create(tmp_path / "thesis", overwrite=overwrite)
    assert (tmp_path / "thesis" / "chapter.txt").read_text(encoding="utf-8") == "dear"


def test_a_prepared_folder_is_not_overwritten_for_a_run(tmp_path: Path) -> None:
    # It has a manifest.json too.
    (tmp_path / "sample").mkdir()
    (tmp_path / "sample" / "manifest.json").write_text('{"format": 1, "sha256": {}}', encoding="utf-8")
    with pytest.raises(
        UsageError, match=r"is not a run folder, so --overwrite leaves it alone; name another"
    ):
        create(tmp_path / "sample", overwrite=True)
    assert (tmp_path / "sample" / "manifest.json").is_file()


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_file_is_never_overwritten_by_a_run(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "x").write_text("dear", encoding="utf-8")
    with pytest.raises(UsageError, match=r"x (exists|is not a run folder)"):
        create(tmp_path / "x", overwrite=overwrite)
    assert (tmp_path / "x").read_text(encoding="utf-8") == "dear"


# What is no run, or no longer


def test_a_missing_run_is_named_with_those_there_are(run: Run) -> None:
    with pytest.raises(UsageError, match=r"runs/second: no such run folder; found: .*runs/first$"):
        open_run(run.folder.parent / "second")


def test_without_any_run_the_error_says_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"x: no such run folder; mt-cli train CONFIG makes one"):
        open_run(tmp_path / "x")


def test_a_folder_without_manifest_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(UsageError, match=r"x: no run folder \(it has no manifest.json\)"):
        open_run(tmp_path / "x")


@pytest.mark.parametrize("name", ["config.toml", "tokenizer/tokenizer.json", "tokenizer/joint.model"])
def test_an_altered_file_is_named(run: Run, name: str) -> None:
    with (run.folder / name).open("ab") as file:
        file.write(b"\n")
    with pytest.raises(DataError, match=rf"first/{name}: altered or damaged"):
        open_run(run.folder)


@pytest.mark.parametrize("name", ["config.toml", "tokenizer/joint.model"])
def test_a_missing_file_is_named(run: Run, name: str) -> None:
    (run.folder / name).unlink()
    with pytest.raises(DataError, match=rf"first/{name}: missing"):
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


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"sha256": {"config.toml": 5}}, r"'sha256\.config\.toml' is not what belongs there"),
        ({"sha256": {}}, r"lists no config\.toml"),
        ({"prepared": {"folder": "data"}}, r"'prepared\.sha256' is not what belongs there"),
        ({"prepared": {"folder": "f" * 5000, "sha256": ""}}, "the path of its data is too long"),
        ({"init_from": {"folder": 5, "checkpoint": "", "sha256": ""}}, r"'init_from\.folder' is not what"),
        (
            {"init_from": {"folder": "f" * 5000, "checkpoint": "", "sha256": ""}},
            "the path of the run that it started with is too long",
        ),
        (
            {"init_from": {"folder": "", "checkpoint": "f" * 5000, "sha256": ""}},
            "the checkpoint that it started with has too long a name",
        ),
        ({"sha256": {"f" * 5000: 5}}, r"'sha256\.f{248}' is not what"),
    ],
    ids=["hash", "config", "data", "path", "parent", "path of parent", "checkpoint of parent", "name"],
)
def test_a_manifest_with_a_wrong_value_is_refused(run: Run, changes: dict[str, object], told: str) -> None:
    manifest = json.loads((run.folder / "manifest.json").read_bytes())
    write_json(run.folder / "manifest.json", sealed({**manifest, **changes}))
    with pytest.raises(DataError, match=rf"manifest\.json: {told}"):
        open_run(run.folder)


def test_a_path_of_data_may_have_bytes_that_are_no_utf_8(tmp_path: Path) -> None:
    reference = PreparedReference("data/caf\udce9", "0" * 64)
    with created_run(
        tmp_path / "run", CONFIG, tokenizer_files=TOKENIZER_FILES, prepared=reference, environment={}
    ) as run:
        assert run.prepared == reference


# Checkpoints by name


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


@pytest.mark.parametrize("name", ["best", "last", "step-00000100"])
def test_an_untrained_run_says_that_it_has_no_checkpoint(run: Run, name: str) -> None:
    with pytest.raises(UsageError, match=rf"first: no checkpoint '{name}'; training saved none yet"):
        run.checkpoint_folder(name)


def test_pointers_follow_the_training(trained: Run) -> None:
    trained.point("best", step=200)
    assert trained.pointer("best") == trained.pointer("last") == "step-00000200"


def test_an_untrained_run_points_nowhere(run: Run) -> None:
    assert run.pointer("best") is None


def test_only_unused_checkpoints_are_removed(trained: Run) -> None:
    add_checkpoint(trained, 150)
    trained.remove_unused_checkpoints(last=200)
    left = sorted(path.name for path in (trained.folder / "checkpoints").iterdir())
    assert left == ["step-00000100", "step-00000200"]


# Notes


def test_status_is_replaced(run: Run) -> None:
    run.write_status({"state": "running", "step": 1})
    run.write_status({"state": "finished"})
    assert json.loads((run.folder / "status.json").read_text(encoding="utf-8")) == sealed(
        {"state": "finished"}
    )


def test_notes_do_not_make_a_run_look_altered(run: Run) -> None:
    run.append_metrics({"loss": 1})
    run.write_status({"state": "running"})
    assert open_run(run.folder) == run


# Models


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


def test_model_has_the_vocabularies_of_the_tokenizers(real: Run) -> None:
    model = real.build_model()
    assert model.src_embedding.num_embeddings == real.tokenizers.src.vocab_size
    assert model.tgt_embedding.num_embeddings == real.tokenizers.tgt.vocab_size


def test_same_seed_builds_the_same_model(real: Run) -> None:
    first, second = real.build_model(seed=3), real.build_model(seed=3, backend="torch")
    torch.testing.assert_close(
        dict(first.named_parameters()), dict(second.named_parameters()), rtol=0, atol=0
    )


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


# Damage


def test_no_flipped_bit_of_the_manifest_goes_unnoticed(run: Run) -> None:
    assert accepted_flips(run.folder / "manifest.json", lambda: open_run(run.folder)) == []


def test_a_run_of_before_seals_opens_with_a_warning(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    without_seal(run.folder / "manifest.json")
    assert open_run(run.folder) == run
    (message,) = caplog.messages
    assert message.endswith(f"to check and seal it: mt-cli inspect {run.folder} --seal")


@pytest.mark.parametrize("name", ["manifest.json", "config.toml", "tokenizer/joint.model"])
@pytest.mark.parametrize("kind", IMPOSTORS)
def test_only_real_files_make_a_run(run: Run, name: str, kind: str) -> None:
    replace_by(kind, run.folder / name)
    with pytest.raises(DataError, match=rf"first/{name}: (a link|not a regular file)"):
        open_run(run.folder)


@pytest.mark.parametrize("kind", IMPOSTORS)
def test_the_log_and_the_metrics_are_real_files(run: Run, kind: str) -> None:
    replace_by(kind, run.folder / "train.log")
    replace_by(kind, run.metrics_path)
    with pytest.raises((DataError, ResourceError), match=r"train\.log: (a link|not a|cannot)"), run.locked():
        pass
    with pytest.raises((DataError, ResourceError), match=r"metrics\.jsonl: (a link|not a|cannot)"):
        run.append_metrics({"step": 1})
    with pytest.raises(DataError, match=r"metrics\.jsonl: (a link|not a)"):
        run.forget_metrics_after(1)


def test_a_linked_tokenizer_folder_is_refused(run: Run, tmp_path: Path) -> None:
    (run.folder / "tokenizer").rename(tmp_path / "elsewhere")
    (run.folder / "tokenizer").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="first/tokenizer: a link"):
        open_run(run.folder)


def test_a_link_to_a_run_is_a_run(run: Run, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run.folder)
    assert open_run(tmp_path / "link").config == CONFIG


# Kills


def test_a_run_that_was_moved_aside_by_a_killed_process_opens(run: Run) -> None:
    run.folder.rename(run.folder.with_name(".first.old"))
    assert open_run(run.folder) == run
    assert [path.name for path in run.folder.parent.iterdir()] == ["first"]


def test_what_killed_processes_left_of_a_run_goes_and_what_is_being_made_stays(tmp_path: Path) -> None:
    dead, alive, new = (tmp_path / f".run.{letter * 32}.partial" for letter in "abc")
    for folder in (dead, alive, new):
        folder.mkdir()
    (dead / "train.log").touch()
    with locked(alive):
        create(tmp_path / "run")
    assert sorted(path.name for path in tmp_path.iterdir()) == [alive.name, new.name, "run"]
    os.utime(new, (0, 0))
    (tmp_path / "run" / ".best.txt.9999999999.partial").touch()
    create(tmp_path / "run", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_leftovers_inside_a_run_are_removed(run: Run) -> None:
    (run.folder / ".best.txt.9999999999.partial").touch()
    (run.folder / f".last.txt.{os.getppid()}.partial").touch()
    run.remove_leftovers()
    assert [path.name for path in run.folder.glob(".*")] == [f".last.txt.{os.getppid()}.partial"]


# Models that no machine holds


def test_weights_are_refused_before_a_model_is_built(real: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = real.folder / "checkpoints" / checkpoint_name(5)
    save_checkpoint(folder, tiny_model(), tensors={}, state=CheckpointState(5, 1, 0))
    real.point("best", step=5)
    monkeypatch.setattr("mt_cli.artefacts.run.build_model", lambda *args, **options: pytest.fail("built"))
    with pytest.raises(DataError, match="not the weights of this model"):
        real.load_model()


def test_a_model_larger_than_memory_is_not_built() -> None:
    config = TINY.model_copy(update={"d_model": 1 << 20})
    with pytest.raises(ResourceError, match=r"the model does not fit: .* parameters take .* GiB"):
        build_model(config, src_vocab_size=8, tgt_vocab_size=8, seed=1)
