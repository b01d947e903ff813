"""An exported model as a run: the commands that take it, and what the others say."""

import json
import re
import shutil
from pathlib import Path

import pytest
from workspace import Workspace

RUN = "runs/tiny"
HOSTILE = (
    b"Ein Mann schl\xc3\xa4ft.\n\n\xff\xfe kaputt\n<s> </s> <pad> <unk>\n"
    + "Ein\u2028Hund\x0bund\x85noch\x1eein\x0cHund\n\u200b\ufeff\nEin\rHund\n犬が走る 🐶\n".encode()
    + b"\0\0 Ein \x1b[31m Hund\nEin Hund.\r\n"
    + b"." * 5000
    + b"\n"
    + b"Ein Mann. " * 50
    + b"\nZwei Hunde spielen im Schnee."
)
MAX_LEN = 48
"""Positions of the workspace's model."""
BLEU = re.compile(r"^(\S+)  BLEU (\d+\.\d\d)  nrefs:1", re.M)


@pytest.fixture
def own(exported: Path, tmp_path: Path) -> Path:
    """An exported model of one's own, to change at will."""
    shutil.copytree(exported, tmp_path / "own")
    return tmp_path / "own"


def test_hostile_lines_are_translated_as_by_the_run(workspace: Workspace, exported: Path) -> None:
    ours = workspace.call("translate", RUN, "--threads", 1, stdin=HOSTILE)
    theirs = workspace.call("translate", exported, "--threads", 1, stdin=HOSTILE)
    assert theirs == ours
    assert (theirs.code, len(theirs.lines)) == (0, HOSTILE.count(b"\n") + 1)


def test_evaluation_is_that_of_the_run_and_kept_in_the_folder(
    workspace: Workspace, own: Path, tmp_path: Path
) -> None:
    run = workspace.copy_run(tmp_path / "run")
    scores = {
        folder: BLEU.findall(workspace.call("evaluate", folder, "--quiet").text)
        for folder in (run, own)
    }
    assert scores[own] == scores[run] != []
    kept = own / "eval" / "test-greedy"
    hyps = [folder.joinpath("eval/test-greedy/hyp.txt").read_bytes() for folder in (run, own)]
    assert hyps[0] == hyps[1]
    assert json.loads(kept.joinpath("scores.json").read_text())["checkpoint"].startswith("step-")
    assert "exported by mt-cli" in own.joinpath("README.md").read_text()


@pytest.mark.parametrize(
    "name",
    ["model.bin", "config.json", "config.toml", "shared_vocabulary.json", "tokenizer/joint.model"],
)
def test_altered_file_exits_3_and_is_named(workspace: Workspace, own: Path, name: str) -> None:
    with own.joinpath(name).open("ab") as file:
        file.write(b" ")
    outcome = workspace.call("translate", own, "--text", "Ein Hund.")
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.startswith(f"error: {own}/{name}: altered or damaged: sha256 ")


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format": 2}'], ids=["empty", "list", "bare", "newer"]
)
def test_damaged_manifest_exits_3(workspace: Workspace, own: Path, content: str) -> None:
    own.joinpath("manifest.json").write_text(content)
    outcome = workspace.call("translate", own, "--text", "Ein Hund.")
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.startswith(f"error: {own}/manifest.json: ")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("inspect", "EXPORTED"), "here, name the run that it was exported from"),
        (("inspect", "EXPORTED", "--text", "Hund"), "an exported model only translates"),
        (("inspect", "EXPORTED", "--shapes"), "an exported model only translates"),
        (("inspect", "EXPORTED", "--masks", "masks.png"), "an exported model only translates"),
        (("inspect", "EXPORTED", "--attention", "-"), "an exported model only translates"),
        (("doctor", "EXPORTED"), "here, name the run that it was exported from"),
        (("plot", "EXPORTED", "-o", "new.png"), "here, name the run that it was exported from"),
        (("report", "EXPORTED", "-o", "new.html"), "here, name the run that it was exported from"),
        (("train", "tiny.toml", "--run", "new", "--init-from", "EXPORTED"), "here, name the run"),
        (
            ("score", "EXPORTED", "--src", "corpus/test.de", "--tgt", "corpus/test.en"),
            "here, name the run",
        ),
        (("export", "EXPORTED", "--to", "ctranslate2", "new"), "here, name the run"),
        (("translate", "EXPORTED", RUN, "--text", "Hund"), "an exported model translates alone"),
        (("evaluate", "EXPORTED", "EXPORTED"), "an exported model translates alone"),
        (("translate", "EXPORTED", "--text", "Hund", "--backend", "torch"), "leave out --backend"),
        (("evaluate", "EXPORTED", "--backend", "torch"), "leave out --backend"),
        (
            ("translate", "EXPORTED", "--text", "Hund", "--precision", "bf16"),
            "leave out --precision bf16",
        ),
        (
            ("translate", "EXPORTED", "--text", "Hund", "--checkpoint", "last"),
            "leave out --checkpoint",
        ),
        (("evaluate", "EXPORTED", "--checkpoint", "last"), "leave out --checkpoint"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_it_cannot_do_is_said_in_a_sentence_and_exits_2(
    workspace: Workspace, exported: Path, args: tuple[str, ...], message: str
) -> None:
    outcome = workspace.call(*(exported if arg == "EXPORTED" else arg for arg in args))
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, b"", 1)
    assert message in outcome.err
    assert not any(workspace.folder.glob("new*"))
