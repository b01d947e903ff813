"""An exported model as a run: the commands that take it, and what the others say."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import ctranslate2
import pytest
from damage import rehash
from sacrebleu_command import command_scores
from sentencepiece import SentencePieceProcessor
from workspace import Outcome, Workspace

from mt_cli.artefacts.exported_run import open_exported_run
from mt_cli.config import Precision
from mt_cli.errors import UsageError
from mt_cli.translation.engine import check_engine_options

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


def test_json_says_as_much_as_of_a_run(workspace: Workspace, exported: Path) -> None:
    ours, theirs = (
        json.loads(workspace.call("translate", run, "--json", "--text", "Ein Hund.").out)
        for run in (RUN, exported)
    )
    assert theirs.pop("score") == pytest.approx(ours.pop("score"), abs=1e-3)
    assert [len(each.pop("n_best")) for each in (ours, theirs)] == [1, 1]
    assert theirs == ours


def test_folder_is_all_that_translating_needs(workspace: Workspace, own: Path, tmp_path: Path) -> None:
    own.rename(tmp_path / "moved")
    outcome = workspace.call("translate", "moved", "--text", "Ein Hund.", cwd=tmp_path)
    assert outcome == workspace.call("translate", RUN, "--text", "Ein Hund.")


def test_evaluation_is_that_of_the_run_and_kept_in_the_folder(
    workspace: Workspace, own: Path, tmp_path: Path
) -> None:
    run = workspace.copy_run(tmp_path / "run")
    scores = {
        folder: BLEU.findall(workspace.call("evaluate", folder, "--quiet").text) for folder in (run, own)
    }
    assert scores[own] == scores[run] != []
    kept = own / "eval" / "test-greedy"
    hyps = [folder.joinpath("eval/test-greedy/hyp.txt").read_bytes() for folder in (run, own)]
    assert hyps[0] == hyps[1]
    assert json.loads(kept.joinpath("scores.json").read_text())["checkpoint"].startswith("step-")
    assert "exported by mt-cli" in own.joinpath("README.md").read_text()


def test_score_is_that_of_ctranslate2_by_hand_and_of_sacrebleus_command(
    workspace: Workspace, own: Path, tmp_path: Path
) -> None:
    pieces = SentencePieceProcessor(model_file=str(own / "tokenizer" / "joint.model"))
    columns = [
        workspace.corpus(f"test.{side}").read_text(encoding="utf-8").split("\n") for side in ("de", "en")
    ]
    fitting = [
        pair for pair in zip(*columns, strict=True) if 0 < len(pieces.encode(pair[0])) < MAX_LEN
    ]  # CTranslate2 does not split
    src, refs = zip(*fitting, strict=True)
    for name, lines in (("src", src), ("ref", refs)):
        tmp_path.joinpath(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    results = ctranslate2.Translator(str(own)).translate_batch(
        pieces.encode(list(src), out_type=str), beam_size=1, disable_unk=True, max_decoding_length=MAX_LEN - 1
    )
    hyps = [pieces.decode(result.hypotheses[0]) for result in results]
    assert len(set(hyps)) > 5
    files = ("--src", tmp_path / "src", "--ref", tmp_path / "ref")
    outcome = workspace.call("evaluate", own, *files, "--json", "--quiet")
    ((_, scores),) = json.loads(outcome.text)["splits"].items()
    assert f"{scores['bleu']['score']:.10f}" == command_scores(tmp_path, hyps, refs)["BLEU"]


def test_what_was_kept_does_not_keep_it_from_being_opened(workspace: Workspace, own: Path) -> None:
    workspace.call("evaluate", own, "--quiet")
    own.joinpath("README.md").write_text("a note of mine")
    assert workspace.call("evaluate", own, "--quiet").code == 0
    assert own.joinpath("README.md").read_text() == "a note of mine"


def test_data_that_have_moved_are_named_with_a_flag(workspace: Workspace, own: Path, tmp_path: Path) -> None:
    lost = workspace.call("evaluate", own, cwd=tmp_path)
    assert (lost.code, lost.out) == (3, b"")
    assert f"the data that {own} was trained on are not here; say where with --data DIR" in lost.err
    found = workspace.call("evaluate", own, "--data", workspace.prepared, "--quiet", cwd=tmp_path)
    assert (found.code, len(BLEU.findall(found.text))) == (0, 1)


def test_run_and_its_export_are_compared(workspace: Workspace, own: Path, tmp_path: Path) -> None:
    run = workspace.copy_run(tmp_path / "run")
    outcome = workspace.call("compare", run, own, "--resamples", 100, "--trials", 100, "--quiet")
    assert outcome.code == 0, outcome.err
    assert str(own) in outcome.text


def test_int8_translates_and_is_scored(workspace: Workspace, tmp_path: Path) -> None:
    workspace.call("export", RUN, "--to", "ctranslate2", tmp_path / "int8", "--quantization", "int8", "-q")
    outcome = workspace.call("translate", tmp_path / "int8", "--quiet", stdin=HOSTILE)
    assert (outcome.code, len(outcome.lines)) == (0, HOSTILE.count(b"\n") + 1)
    ((_, bleu),) = BLEU.findall(workspace.call("evaluate", tmp_path / "int8", "--quiet").text)
    assert float(bleu) > 20


# What is damaged, or older


@pytest.mark.parametrize(
    "name", ["model.bin", "config.json", "config.toml", "shared_vocabulary.json", "tokenizer/joint.model"]
)
def test_altered_file_exits_3_and_is_named(workspace: Workspace, own: Path, name: str) -> None:
    with own.joinpath(name).open("ab") as file:
        file.write(b" ")
    outcome = workspace.call("translate", own, "--text", "Ein Hund.")
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.startswith(f"error: {own}/{name}: altered or damaged: sha256 ")


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("model.bin", b"", "CTranslate2 cannot load it: "),
        ("model.bin", b"\xff" * 9999, "CTranslate2 cannot load it: "),
        ("config.json", b"[" * 10**5, "not valid JSON (more than 32 levels deep)"),
        ("shared_vocabulary.json", b"[]", "not the vocabulary of "),
        ("shared_vocabulary.json", b"[" * 10**5, "not valid JSON (more than 32 levels deep)"),
    ],
)
def test_file_that_a_stranger_wrote_and_listed_exits_3(
    workspace: Workspace, own: Path, name: str, content: bytes, complaint: str
) -> None:
    rehash(own, name, content)
    outcome = workspace.call("translate", own, "--text", "Ein Hund.")
    assert (outcome.code, outcome.out) == (3, b"")
    assert complaint in outcome.err


def test_weights_without_end_are_refused_unread(workspace: Workspace, own: Path) -> None:
    with own.joinpath("model.bin").open("r+b") as file:
        file.truncate(1 << 40)  # holes, which take no room
    outcome = workspace.call("translate", own, "--text", "Ein Hund.")
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.startswith(f"error: {own}/model.bin: more than ")


@pytest.mark.parametrize("name", ["model.bin", "config.toml", "tokenizer/tokenizer.json"])
def test_missing_file_exits_3_and_is_named(workspace: Workspace, own: Path, name: str) -> None:
    own.joinpath(name).unlink()
    outcome = workspace.call("translate", own, "--text", "Ein Hund.")
    message = f"error: {own}/{name}: missing, though {own}/manifest.json lists it\n"
    assert outcome == Outcome(3, b"", message)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 2}'], ids=["empty", "list", "bare", "newer"])
def test_damaged_manifest_exits_3(workspace: Workspace, own: Path, content: str) -> None:
    own.joinpath("manifest.json").write_text(content)
    outcome = workspace.call("translate", own, "--text", "Ein Hund.")
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.startswith(f"error: {own}/manifest.json: ")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip_a_bit(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)


@pytest.mark.parametrize("command", ["translate", "evaluate"])
@pytest.mark.parametrize("damage", [cut, flip_a_bit, Path.unlink], ids=["cut", "a bit", "missing"])
@pytest.mark.parametrize("what", ["weights", "config.toml", "tokenizer/joint.model"])
def test_damage_exits_as_it_does_for_a_run(
    workspace: Workspace, own: Path, tmp_path: Path, command: str, damage: Callable[[Path], None], what: str
) -> None:
    run = workspace.copy_run(tmp_path / "run")
    best = run.joinpath("best.txt").read_text().strip()
    weights = {own: own / "model.bin", run: run / "checkpoints" / best / "model.safetensors"}
    for folder in (own, run):
        damage(weights[folder] if what == "weights" else folder / what)
    options = ["--text", "Ein Hund."] if command == "translate" else []
    ends = [workspace.call(command, folder, *options) for folder in (own, run)]
    assert [(end.code, end.out) for end in ends] == [(3, b"")] * 2, ends


def test_export_of_an_earlier_version_says_how_to_export_it_again(workspace: Workspace, own: Path) -> None:
    own.joinpath("manifest.json").unlink()
    own.joinpath("config.toml").unlink()
    outcome = workspace.call("translate", own, "--text", "Ein Hund.")
    again = f"mt-cli export RUN --to ctranslate2 {own} --overwrite"
    message = (
        f"error: {own}: an exported model without manifest.json, which earlier versions did not write; "
        f"export it again: {again}\n"
    )
    assert outcome == Outcome(2, b"", message)
    _, *words = again.replace("RUN", RUN).split()
    assert workspace.call(*words, "--quiet").code == 0
    assert workspace.call("translate", own, "--text", "Ein Hund.").code == 0


def test_missing_package_exits_5_with_the_command_that_installs_it(
    workspace: Workspace, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    outcome = workspace.call("translate", exported, "--text", "Ein Hund.")
    assert (outcome.code, outcome.out) == (5, b"")
    assert outcome.err.startswith(f"error: {exported}, an exported model, needs the package ctranslate2, ")
    assert outcome.err.endswith("run: pip install 'mt_cli[export]'\n")


# What it cannot do


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("inspect", "EXPORTED"), "here, name the run that it was exported from"),
        (("inspect", "EXPORTED", "--text", "Hund"), "nobody can look into an exported model"),
        (("inspect", "EXPORTED", "--shapes"), "nobody can look into an exported model"),
        (("inspect", "EXPORTED", "--masks", "masks.png"), "nobody can look into an exported model"),
        (("inspect", "EXPORTED", "--attention", "-"), "nobody can look into an exported model"),
        (("inspect", "EXPORTED", "--seal"), "here, name the run that it was exported from"),
        (("doctor", "EXPORTED"), "here, name the run that it was exported from"),
        (("plot", "EXPORTED", "-o", "new.png"), "here, name the run that it was exported from"),
        (("report", "EXPORTED", "-o", "new.html"), "report on the run that it was exported from"),
        (("train", "tiny.toml", "--run", "new", "--init-from", "EXPORTED"), "here, name the run"),
        (("score", "EXPORTED", "--src", "corpus/test.de", "--tgt", "corpus/test.en"), "here, name the run"),
        (("export", "EXPORTED", "--to", "ctranslate2", "new"), "here, name the run"),
        (("translate", "EXPORTED", RUN, "--text", "Hund"), "an exported model translates alone"),
        (("evaluate", "EXPORTED", "EXPORTED"), "an exported model translates alone"),
        (("translate", "EXPORTED", "--text", "Hund", "--backend", "torch"), "leave out --backend"),
        (("evaluate", "EXPORTED", "--backend", "torch"), "leave out --backend"),
        (("translate", "EXPORTED", "--text", "Hund", "--precision", "bf16"), "leave out --precision bf16"),
        (("translate", "EXPORTED", "--text", "Hund", "--checkpoint", "last"), "leave out --checkpoint"),
        (("evaluate", "EXPORTED", "--checkpoint", "last"), "leave out --checkpoint"),
        (("translate", "EXPORTED", "--text", "Hund", "--attention", "-"), "nobody can look into"),
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


@pytest.mark.parametrize(
    ("quantization", "own", "other"), [("none", "fp32", "bf16"), ("bfloat16", "bf16", "fp32")]
)
def test_precision_that_it_computes_in_may_be_named_and_no_other(
    exported: Path, quantization: str, own: Precision, other: Precision
) -> None:
    run = replace(open_exported_run(exported), quantization=quantization)
    check_engine_options(run, {"precision": own}, backend=None)
    with pytest.raises(UsageError, match=f"exported to compute in {own}; leave out precision='{other}'"):
        check_engine_options(run, {"precision": other}, backend=None)


def test_training_never_takes_its_place(workspace: Workspace, own: Path) -> None:
    outcome = workspace.call("train", "tiny.toml", "--run", own, "--overwrite")
    message = f"error: {own} is not a run folder, so --overwrite leaves it alone; name another\n"
    assert outcome.code == 2
    assert outcome.err.endswith(message)
    assert own.joinpath("model.bin").is_file()
