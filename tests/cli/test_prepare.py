"""The training data used twice: a model's own translations of them, trained on beside the
originals.
"""

import json
from pathlib import Path

from workspace import Workspace


def test_a_models_translations_train_the_next_one(workspace: Workspace, tmp_path: Path) -> None:
    tmp_path.joinpath("corpus").symlink_to(workspace.folder / "corpus")
    made = tmp_path / "made.en"
    outcome = workspace.call(
        "translate", "runs/tiny", "-i", workspace.corpus("train.de"), "-o", made
    )
    assert outcome.code == 0, outcome.err
    text = workspace.folder.joinpath("tiny.toml").read_text(encoding="utf-8")
    text += '\n[data.more.forward]\nsrc = "corpus/train.de"\ntgt = "made.en"\nshare = 0.5\ntag = "auto"\n'
    tmp_path.joinpath("student.toml").write_text(text, encoding="utf-8")
    prepared = workspace.call("prepare", "student.toml", "--json", cwd=tmp_path)
    assert prepared.code == 0, prepared.err
    report = json.loads(prepared.text)["report"]["splits"]
    assert (
        0 < report["train+forward"]["pairs"] <= report["train+forward"]["lines"] == 25
    )  # some are too long
    few = ("--set", "training.max_epochs=1", "--set", "training.log_every=1", "--json")
    trained = workspace.call("train", "student.toml", *few, cwd=tmp_path)
    assert trained.code == 0, trained.err
    plain = workspace.call(
        "train", "tiny.toml", "--run", tmp_path / "plain", "--data", workspace.prepared, *few
    )
    # An epoch has half as many pairs more, of the same lengths or nearly.
    steps, fewer = json.loads(trained.text)["step"], json.loads(plain.text)["step"]
    assert fewer < steps <= 2 * fewer
    assert (
        workspace.call("evaluate", "runs/student", "--split", "train+forward", cwd=tmp_path).code
        == 2
    )
    teacher = workspace.copy_run(tmp_path / "teacher")
    files = ("--src", "corpus/val.de", "--ref", "corpus/val.en")
    scored = workspace.call("evaluate", teacher, "runs/student", *files, cwd=tmp_path)
    assert scored.code == 0, scored.err  # one vocabulary: that of the corpus's own pairs
