"""The `translate` command: one line out for each line in, whatever the lines and the options."""

import json
import os
import re
import resource
import shlex
from pathlib import Path
from typing import Any

import pexpect
import pytest
from workspace import MT_CLI, READY_MODEL, Outcome, Workspace

from mt_cli import Translator
from mt_cli.translation.streams import open_target

RUN = "runs/tiny"
LINES = "Ein Hund.\n\nEin Mann schläft auf einer Bank.\n".encode()
AWKWARD = b"Ein Mann schl\xc3\xa4ft.\n\n\xff\xfe kaputt\nZwei Hunde spielen im Schnee."


def translate(workspace: Workspace, *args: object, stdin: bytes = LINES) -> Outcome:
    return workspace.call("translate", RUN, *args, stdin=stdin)


def lines_of(workspace: Workspace, *args: object, stdin: bytes = LINES) -> list[str]:
    outcome = translate(workspace, *args, stdin=stdin)
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.lines


def records_of(workspace: Workspace, *args: object, stdin: bytes = LINES) -> list[dict[str, Any]]:
    outcome = translate(workspace, "--json", "--quiet", *args, stdin=stdin)
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.lines]


# Lines


def test_locale_does_not_matter(workspace: Workspace) -> None:
    ascii_locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    outcome = workspace.execute("translate", RUN, stdin=AWKWARD, env=ascii_locale)
    assert outcome == translate(workspace, stdin=AWKWARD)
    assert (outcome.code, [line == "" for line in outcome.lines]) == (0, [0, 1, 0, 0])
    assert outcome.err.startswith("warning: line 3: ")


@pytest.mark.parametrize(
    ("source", "count"),
    [
        (b"", 0),
        (b"\n\n\n", 3),
        (b"Ein Hund.", 1),
        (b"Ein Hund.\r\nZwei Hunde.\r\n", 2),
        ("Ein\u2028Hund\x0bund\x85noch\x1eein\x0cHund\rbellt\n".encode(), 1),
        ("<s> </s> <pad> <unk>\n犬が走る🐶\n\0\0 Ein \x1b[31m Hund\n".encode(), 3),
        (b"." * 5000 + b"\n", 1),
    ],
    ids=["nothing", "empty", "unterminated", "DOS", "Unicode ends", "odd", "very long"],
)
def test_number_of_lines_is_kept(workspace: Workspace, source: bytes, count: int) -> None:
    outcome = translate(workspace, stdin=source)
    assert (outcome.code, len(outcome.lines)) == (0, count)


def test_run_folder_is_all_that_is_needed(workspace: Workspace, tmp_path: Path) -> None:
    workspace.copy_run(tmp_path / "moved")
    there = workspace.call("translate", "moved", stdin=LINES, cwd=tmp_path)
    assert there.lines == lines_of(workspace)


def test_a_foreign_language_is_doubted_once(workspace: Workspace, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("A dog runs through the snow.\n" * 300)  # comes in two portions
    outcome = translate(workspace, "-i", source)
    assert (outcome.code, outcome.err.count("look like en")) == (0, 1)


# Files


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "german.txt"
    path.write_bytes(LINES)
    return path


@pytest.mark.parametrize("name", ["english.txt", "new/english.txt", "german.txt"])
def test_output_goes_to_a_file_which_may_be_the_input(
    workspace: Workspace, source: Path, name: str
) -> None:
    target = source.parent / name
    assert translate(workspace, "-i", source, "-o", target) == Outcome(0, b"", "")
    assert target.read_bytes() == translate(workspace).out
    assert {path for path in source.parent.rglob("*") if path.is_file()} == {source, target}


def test_interrupted_translation_keeps_its_lines_beside_the_old_output(
    workspace: Workspace, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, kept = source.with_name("english.txt"), source.with_name("english.txt.partial2")
    of_earlier = source.with_name("english.txt.partial")
    for path in (target, of_earlier):
        path.write_text("precious\n")
    source.write_text("Ein Hund.\n" * 200)  # comes in two portions
    translate_lines, portions = Translator.translate_n_best, iter([1])

    def interrupted(self: Translator, lines: list[str], **given: Any) -> Any:  # noqa: ANN401
        if next(portions, None) is None:
            raise KeyboardInterrupt
        return translate_lines(self, lines, **given)

    monkeypatch.setattr(Translator, "translate_n_best", interrupted)
    outcome = translate(workspace, "-i", source, "-o", target)
    assert (outcome.code, outcome.out) == (130, b"")
    assert str(kept) in outcome.err
    assert 0 < len(kept.read_text().splitlines()) < 200
    assert target.read_text() == of_earlier.read_text() == "precious\n"
    assert set(source.parent.iterdir()) == {source, target, of_earlier, kept}


def test_a_file_that_the_shell_has_opened_is_added_to(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("precious\n")
    with log.open("ab") as opened, open_target(f"/dev/fd/{opened.fileno()}") as out:
        out.write(b"One.\n")
    assert log.read_text() == "precious\nOne.\n"


def test_a_full_disk_keeps_whole_lines(tmp_path: Path) -> None:
    kept = tmp_path / "english.txt.partial"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def write_lines() -> None:
        with open_target(str(tmp_path / "english.txt")) as out:
            out.write(b"One.\nTwo.\n")
            resource.setrlimit(resource.RLIMIT_FSIZE, (13, before[1]))  # like a full disk
            out.write(b"Three.\n")

    try:
        with pytest.raises(OSError, match="too large"):
            write_lines()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert kept.read_bytes() == b"One.\nTwo.\n"
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.parametrize(
    ("options", "code", "named"),
    [
        ("-i missing.txt", 3, "missing.txt: "),
        ("-i .", 3, ".: "),
        ("-o tiny.toml/english.txt", 5, "tiny.toml/english.txt: "),
        ("-o .", 5, ".: "),
        ("-o out.gz", 2, "out.gz: "),
        ("--text Hund -i memory.tmx", 2, "--text"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_code_of_its_side(
    workspace: Workspace, options: str, code: int, named: str
) -> None:
    outcome = translate(workspace, *options.split())
    assert (outcome.code, outcome.out) == (code, b"")
    assert outcome.err.startswith("error: ")
    assert named in outcome.err


# What stands in a line


def test_each_line_has_as_many_lines_as_asked_for(workspace: Workspace) -> None:
    lines = lines_of(workspace, "--beam-size", 3, "--n-best", 3)
    assert len(lines) == 9
    assert lines[3:6] == ["", "", ""]


def test_score_and_alignment_stand_around_each_translation(workspace: Workspace) -> None:
    flags = ("--with-score", "--with-alignment")
    fields = [line.split("\t") for line in lines_of(workspace, *flags)]
    assert [text for _, text, _ in fields] == lines_of(workspace)
    assert all(float(score) <= 0 for score, _, _ in fields)
    pairs = [" ".join(f"{s}-{t}" for s, t in each["alignment"]) for each in records_of(workspace)]
    assert [alignment for _, _, alignment in fields] == pairs


def test_json_holds_all_that_is_known_of_a_line(workspace: Workspace) -> None:
    first, empty, third = records_of(workspace)
    assert list(third) == [*empty]
    assert " ".join(each["word"] for each in third["words"]) == third["translation"]
    assert third["score"] / (len(third["tokens"]["translation"]) + 1) == third["mean_log_prob"] < 0
    assert third["source"] == "Ein Mann schläft auf einer Bank."
    tokens = third["tokens"]
    assert "".join(tokens["translation"]).replace("▁", " ").strip() == third["translation"]
    assert "".join(tokens["source"]).replace("▁", " ").strip() == third["source"]
    assert [tgt for _, tgt in third["alignment"]] == list(range(len(tokens["translation"])))
    assert {src for src, _ in third["alignment"]} <= set(range(len(tokens["source"])))
    assert first["n_best"] == [{"translation": first["translation"], "score": first["score"]}]
    assert empty == {
        "source": "",
        "translation": "",
        "score": 0.0,
        "n_best": [{"translation": "", "score": 0.0}],
        "tokens": {"source": [], "translation": []},
        "alignment": [],
        "mean_log_prob": 0.0,
        "words": [],
        "changed_number": False,
        "missing_terms": [],
        "doubled_terms": [],
        "unlearnt_letters": [],
        "language": None,
        "is_split": False,
        "is_cut": False,
        "is_broken": False,
    }


# Options of the search


def test_a_glossary_and_a_prefix_are_followed(workspace: Workspace, tmp_path: Path) -> None:
    terms = tmp_path / "terms.tsv"
    terms.write_text("schläft\tnods off\n", encoding="utf-8")
    dog, _, man = lines_of(workspace, "--glossary", terms, "--prefix", "Some")
    assert dog.startswith("Some")
    assert re.match("Some.*nods off", man)
    terms.write_text("schläft\n", encoding="utf-8")
    outcome = translate(workspace, "--glossary", terms)
    assert (outcome.code, outcome.out) == (3, b"")
    assert f"{terms}: line 1: " in outcome.err


def test_seed_decides_the_samples(workspace: Workspace) -> None:
    sample = ("--sample", "--temperature", 2, "--n-best", 4)
    first, again, other = (
        translate(workspace, *sample, "--seed", seed).out.decode().split("\n") for seed in (7, 7, 8)
    )
    assert len(first) == 3 * 4 + 1
    assert len(set(first[:4])) > 1
    assert first[4:8] == [""] * 4
    assert first == again
    assert first != other


RERANK = f"--rerank-with {RUN} --beam-size 2"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--n-best 2", "--beam-size"),
        ("--top-p 0.9", "temperature"),
        ("--sample --beam-size 2", "beam_size"),
        ("--sample --top-k -1", "decoding.top_k"),
        ("--no-repeat-ngram two", "decoding.no_repeat_ngram"),
        (f"{RERANK} --rerank-weights nan,0", "decoding.rerank_weights"),
        (f"--rerank-with {RUN} --beam-size 1", "rerank_with"),
        (RERANK, f"--rerank-with: {RUN}"),
        ("--rerank-with runs/none --beam-size 2", "runs/none"),
    ],
)
def test_wrong_option_is_named_and_exits_2(workspace: Workspace, options: str, named: str) -> None:
    outcome = translate(workspace, *options.split())
    assert (outcome.code, outcome.out) == (2, b"")
    assert named in outcome.err


# Several runs, Python, a terminal


def test_runs_of_other_vocabularies_are_refused(workspace: Workspace) -> None:
    outcome = translate(workspace, READY_MODEL.name)
    assert (outcome.code, outcome.out) == (2, b"")
    assert READY_MODEL.name in outcome.err


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({"beam_size": 3, "length_penalty": 0.6}, "--beam-size 3 --length-penalty 0.6"),
        ({"temperature": 2.0, "top_k": 9, "seed": 5}, "--temperature 2 --top-k 9 --seed 5"),
    ],
    ids=["beams", "samples"],
)
def test_python_gives_what_the_command_prints(
    workspace: Workspace, options: dict[str, Any], flags: str
) -> None:
    odd = ["", "Ein Mann schläft. " * 20, "<s> 犬 $1 & <b>"]
    lines = [*workspace.corpus("test.de").read_text(encoding="utf-8").splitlines(), *odd]
    source = "".join(f"{line}\n" for line in lines).encode()
    search = (*flags.split(), "--n-best", 2, "--device", "cpu", "--threads", 1)
    printed = records_of(workspace, *search, stdin=source)
    translator = Translator.load(workspace.run, device="cpu", threads=1, **options)
    for ours, theirs in zip(
        translator.translate_n_best(lines, n_best=2, with_alignment=True), printed, strict=True
    ):
        assert [{"translation": one.text, "score": one.score} for one in ours] == theirs["n_best"]
        assert list(ours[0].src_tokens) == theirs["tokens"]["source"]
        assert list(ours[0].tokens) == theirs["tokens"]["translation"]
        assert [list(pair) for pair in ours[0].alignment] == theirs["alignment"]


@pytest.mark.processes
@pytest.mark.parametrize("target", ["", "> {0}", "-o {0}", "| cat > {0}"])
def test_typed_lines_are_answered_at_a_prompt_wherever_the_translations_go(
    workspace: Workspace, tmp_path: Path, target: str
) -> None:
    sentences, file = ["Ein Hund bellt.", "Zwei Frauen singen."], tmp_path / "out"
    expected = lines_of(workspace, stdin="\n".join(sentences).encode())
    with pexpect.spawn(
        "/bin/sh",
        ["-c", f"{shlex.join(map(str, MT_CLI))} translate {RUN} {target.format(file)}"],
        cwd=str(workspace.folder),
        env={**os.environ, "TERM": "xterm", "PYTHONIOENCODING": "utf-8"},
        encoding="utf-8",
        timeout=60,
    ) as session:
        session.expect_exact("Ctrl-D")
        for sentence, translation in zip(sentences, expected, strict=True):
            session.expect_exact("> ")
            session.sendline(sentence)
            session.expect_exact(f"{sentence}\r\n" + ("" if target else f"{translation}\r\n"))
        session.expect_exact("> ")  # before it, Ctrl-D would be lost
        session.sendeof()
        session.expect(pexpect.EOF)
    assert session.exitstatus == 0
    assert not target or file.read_text().splitlines() == expected


def test_without_a_run_the_model_that_comes_along_translates(
    workspace: Workspace, tmp_path: Path
) -> None:
    outcome = workspace.call("translate", "--text", "Ein Hund schläft.", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert "dog" in outcome.text
    assert READY_MODEL.name in outcome.err
    named = workspace.call("translate", READY_MODEL.name, "--text", "Ein Hund schläft.", "-q")
    assert (named.text, named.err) == (outcome.text, "")


def test_where_there_are_runs_one_has_to_be_named(workspace: Workspace) -> None:
    outcome = workspace.call("translate", "--text", "Ein Hund schläft.")
    assert (outcome.code, outcome.out) == (2, b"")
    assert "runs/tiny" in outcome.err
