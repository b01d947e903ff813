"""The `prepare` command, and training on what a model made of the training data."""

import json
from pathlib import Path

import pytest
from workspace import Workspace

FORWARD = """
[data.more.forward]
src = "corpus/train.de"
tgt = "made.en"
share = 0.5
"""


def test_json_is_one_document(workspace: Workspace) -> None:
    outcome = workspace.call("prepare", "tiny.toml", "--json", "--quiet")
    document = json.loads(outcome.out)
    assert (outcome.code, outcome.err) == (0, "")
    assert document["folder"] == "data/prepared/tiny"
    assert document["is_new"] is False
    assert document["report"]["splits"]["test"]["pairs"] == 20


@pytest.mark.parametrize("flags", [("--shard", "1/2", "--join"), ("--shard", "3/2")], ids=str)
def test_a_share_and_the_whole_or_a_share_that_is_none_are_refused(
    workspace: Workspace, flags: tuple[str, ...]
) -> None:
    outcome = workspace.call("prepare", "tiny.toml", *flags)
    assert (outcome.code, outcome.out) == (2, b"")
    assert "--shard" in outcome.err


def test_a_folder_for_files_that_the_config_names_is_refused(workspace: Workspace) -> None:
    outcome = workspace.call("prepare", "tiny.toml", "--from", "nowhere")
    assert outcome.code == 2
    assert "[data.files]" in outcome.err


def test_a_models_translations_train_the_next_one(workspace: Workspace, tmp_path: Path) -> None:
    tmp_path.joinpath("corpus").symlink_to(workspace.folder / "corpus")
    source, made = workspace.corpus("train.de"), tmp_path / "made.en"
    assert workspace.call("translate", "runs/tiny", "-i", source, "-o", made).code == 0
    text = workspace.folder.joinpath("tiny.toml").read_text(encoding="utf-8") + FORWARD
    tmp_path.joinpath("student.toml").write_text(text, encoding="utf-8")
    prepared = workspace.call("prepare", "student.toml", "--json", cwd=tmp_path)
    assert prepared.code == 0, prepared.err
    added = json.loads(prepared.text)["report"]["splits"]["train+forward"]
    assert 0 < added["pairs"] <= added["lines"] == 25  # some are too long
    epoch = ("--set", "training.max_epochs=1", "--set", "training.log_every=1", "--json")
    student = workspace.call("train", "student.toml", *epoch, cwd=tmp_path)
    plain = workspace.call("train", "tiny.toml", "--run", tmp_path / "plain", *epoch)
    # An epoch has half as many pairs more, of the same lengths or nearly.
    steps, fewer = json.loads(student.text)["step"], json.loads(plain.text)["step"]
    assert fewer < steps <= 2 * fewer
    teacher = workspace.copy_run(tmp_path / "teacher")
    files = ("--src", "corpus/val.de", "--ref", "corpus/val.en")
    together = workspace.call("evaluate", teacher, "runs/student", *files, cwd=tmp_path)
    assert together.code == 0, together.err  # one vocabulary: that of the corpus's own pairs
