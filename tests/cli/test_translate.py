"""The `translate` command: one line out for each line in, whatever the lines and the options."""

import json
import os
import resource
import shlex
import shutil
from pathlib import Path
from typing import Any

import pexpect
import pytest
from workspace import MT_CLI, TIMEOUT_S, Outcome, Workspace

from mt_cli import Translator
from mt_cli.decoding.search import Sampling
from mt_cli.errors import ResourceError
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


def test_awkward_lines_give_as_many_lines(workspace: Workspace) -> None:
    outcome = translate(workspace, stdin=AWKWARD)
    first, empty, third, last = outcome.lines
    assert outcome.code == 0
    assert empty == ""
    assert "" not in (first, third, last)
    assert outcome.err.startswith("warning: line 3: ")


def test_locale_does_not_matter(workspace: Workspace) -> None:
    ascii_locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    outcome = workspace.execute("translate", RUN, stdin=AWKWARD, env=ascii_locale)
    assert outcome == translate(workspace, stdin=AWKWARD)


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


def test_line_that_is_empty_after_normalisation_stays_empty(workspace: Workspace) -> None:
    empty = [
        " ",
        "\t \u00a0",
        "\u200b\u200c\u200d\ufeff",
        "\u202a\u202c\u2066",
        "\x00\x1b",
        "\u2028",
    ]
    source = "\n".join([*empty, "Ein Hund."]).encode()
    *found, filled = lines_of(workspace, stdin=source)
    assert found == [""] * len(empty)
    assert filled != ""


def test_run_folder_is_all_that_is_needed(workspace: Workspace, tmp_path: Path) -> None:
    workspace.copy_run(tmp_path / "moved")
    there = workspace.call("translate", "moved", stdin=LINES, cwd=tmp_path)
    assert there.lines == lines_of(workspace)


def test_a_foreign_language_is_doubted_once(workspace: Workspace, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("A dog runs through the snow.\n" * 300)  # comes in two portions
    outcome = translate(workspace, "-i", source)
    assert (outcome.code, outcome.err.count("looks like en")) == (0, 1)


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
    translate_lines, portions = Translator.translate, iter([1])

    def interrupted(self: Translator, lines: list[str], **given: Any) -> list[str]:  # noqa: ANN401
        if next(portions, None) is None:
            raise KeyboardInterrupt
        return translate_lines(self, lines, **given)

    monkeypatch.setattr(Translator, "translate", interrupted)
    outcome = translate(workspace, "-i", source, "-o", target)
    assert (outcome.code, outcome.out) == (130, b"")
    assert str(kept) in outcome.err
    assert 0 < len(kept.read_text().splitlines()) < 200
    assert target.read_text() == of_earlier.read_text() == "precious\n"
    assert set(source.parent.iterdir()) == {source, target, of_earlier, kept}


def test_a_full_disk_keeps_whole_lines(tmp_path: Path) -> None:
    kept = tmp_path / "english.txt.partial"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def write_lines() -> None:
        with open_target(str(tmp_path / "english.txt")) as out:
            out.write(b"One.\nTwo.\n")
            resource.setrlimit(resource.RLIMIT_FSIZE, (13, before[1]))  # like a full disk
            out.write(b"Three.\n")

    try:
        with pytest.raises(ResourceError):
            write_lines()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert kept.read_bytes() == b"One.\nTwo.\n"
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.parametrize("name", ["missing.txt", "."], ids=["missing", "a folder"])
def test_input_that_cannot_be_read_exits_3(workspace: Workspace, name: str) -> None:
    outcome = translate(workspace, "-i", name)
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.startswith(f"error: {name}: ")


@pytest.mark.parametrize(
    "name", ["tiny.toml/english.txt", ".", "x" * 300], ids=["below a file", "a folder", "too long"]
)
def test_output_that_cannot_be_written_exits_5(workspace: Workspace, name: str) -> None:
    outcome = translate(workspace, "-o", name)
    assert (outcome.code, outcome.out) == (5, b"")
    assert outcome.err.startswith(f"error: {name}: ")


# What stands in a line


def test_each_line_has_as_many_lines_as_asked_for(workspace: Workspace) -> None:
    lines = lines_of(workspace, "--beam-size", 3, "--n-best", 3)
    assert len(lines) == 9
    assert lines[3:6] == ["", "", ""]


def test_score_and_a_tab_stand_before_each_translation(workspace: Workspace) -> None:
    scored = [line.split("\t") for line in lines_of(workspace, "--with-score")]
    assert [text for _, text in scored] == lines_of(workspace)
    assert all(float(score) <= 0 for score, _ in scored)


def test_alignment_and_a_tab_stand_after_each_translation(workspace: Workspace) -> None:
    fields = [line.split("\t") for line in lines_of(workspace, "--with-alignment")]
    assert [text for text, _ in fields] == lines_of(workspace)
    pairs = [" ".join(f"{s}-{t}" for s, t in each["alignment"]) for each in records_of(workspace)]
    assert [alignment for _, alignment in fields] == pairs


def test_json_holds_all_that_is_known_of_a_line(workspace: Workspace) -> None:
    first, empty, third = records_of(workspace)
    assert list(third) == ["source", "translation", "score", "n_best", "tokens", "alignment"]
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
    }


# Options of the search


def test_no_token_occurs_twice_where_none_may(workspace: Workspace) -> None:
    known = workspace.corpus("train.de").read_bytes().splitlines(keepends=True)[1:]
    source = b"".join(known)
    tokens = [
        each["tokens"]["translation"]
        for each in records_of(workspace, "--no-repeat-ngram", 1, stdin=source)
    ]
    assert [each for each in tokens if len(set(each)) < len(each)] == []
    usual = [each["tokens"]["translation"] for each in records_of(workspace, stdin=source)]
    assert [each for each in usual if len(set(each)) < len(each)] != []


def test_seed_decides_the_samples(workspace: Workspace) -> None:
    sample = ("--sample", "--temperature", 2, "--n-best", 4)
    lines = lines_of(workspace, *sample, "--seed", 7)
    assert len(lines) == 3 * 4
    assert len(set(lines[:4])) > 1
    assert lines[4:8] == [""] * 4
    assert lines == lines_of(workspace, *sample, "--seed", 7)
    assert lines != lines_of(workspace, *sample, "--seed", 8)


RERANK = f"--rerank-with {RUN} --beam-size 2"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--n-best 2", "--beam-size"),
        ("--temperature 1", "--sample"),
        ("--top-k 1", "--sample"),
        ("--top-p 1", "--sample"),
        ("--seed 1", "--sample"),
        ("--sample --temperature 0", "--temperature"),
        ("--sample --temperature inf", "--temperature"),
        ("--sample --top-k -1", "--top-k"),
        ("--sample --top-p 1.1", "--top-p"),
        ("--sample --seed -1", "--seed"),
        ("--no-repeat-ngram two", "--no-repeat-ngram"),
        ("--rerank-weights 1,0", "--rerank-with"),
        (f"{RERANK} --rerank-weights 1", "--rerank-weights"),
        (f"{RERANK} --rerank-weights nan,0", "--rerank-weights"),
        (f"{RERANK} --beam-size 1", "--beam-size"),
        (f"{RERANK} --n-best 2", "--n-best"),
        (f"{RERANK} --json", "--json"),
        (RERANK, "en to de"),
        ("--rerank-with runs/none --beam-size 2", "runs/none"),
    ],
)
def test_wrong_option_is_named_and_exits_2(workspace: Workspace, options: str, named: str) -> None:
    outcome = translate(workspace, *options.split())
    assert (outcome.code, outcome.out) == (2, b"")
    assert named in outcome.err


@pytest.fixture(scope="module")
def few_words(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose vocabulary is so small that nearly every word is unknown."""
    folder = tmp_path_factory.mktemp("few-words")
    shutil.copytree(workspace.folder / "corpus", folder / "corpus")
    shutil.copy(workspace.folder / "tiny.toml", folder / "words.toml")
    words = ("--set", "tokenizer.kind=spacy", "--set", "tokenizer.vocab_size=12")
    assert workspace.call("prepare", "words.toml", *words, cwd=folder).code == 0
    train = ("train", "words.toml", *words, "--max-steps", 10)
    assert workspace.call(*train, cwd=folder).code == 0
    return folder / "runs" / "words"


def test_words_of_the_source_stand_for_unknown_ones_unless_switched_off(
    workspace: Workspace, few_words: Path
) -> None:
    def line(*args: object) -> str:
        (found,) = workspace.call("translate", few_words, *args, "--text", "Xylophon Giraffe").lines
        return found

    assert {"Xylophon", "Giraffe"} & set(line().split())
    assert not {"Xylophon", "Giraffe"} & set(line("--no-replace-unk").split())
    assert "<unk>" not in line() + line("--no-replace-unk")
    assert line("--replace-unk") == line()


# Several runs, Python, a terminal


@pytest.mark.parametrize(
    "search", [(), ("--beam-size", 2, "--n-best", 2), ("--backend", "torch"), ("--sample",)]
)
def test_a_run_and_its_copy_translate_like_the_run(
    workspace: Workspace, tmp_path: Path, search: tuple[object, ...]
) -> None:
    copy = workspace.copy_run(tmp_path / "copy")
    assert lines_of(workspace, copy, *search) == lines_of(workspace, *search)


def test_runs_of_other_vocabularies_are_refused(workspace: Workspace, few_words: Path) -> None:
    outcome = translate(workspace, few_words)
    assert (outcome.code, outcome.out) == (2, b"")
    assert str(few_words) in outcome.err


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        (
            {"beam_size": 3, "length_penalty": 0.6},
            ("--beam-size", 3, "--length-penalty", 0.6),
        ),
        (
            {"sampling": Sampling(temperature=2.0, top_k=9), "seed": 5},
            ("--sample", "--temperature", 2, "--top-k", 9, "--seed", 5),
        ),
    ],
    ids=["beams", "samples"],
)
def test_python_gives_what_the_command_prints(
    workspace: Workspace, options: dict[str, Any], flags: tuple[object, ...]
) -> None:
    odd = ["", "Ein Mann schläft. " * 20, "<s> 犬 $1 & <b>"]
    lines = [*workspace.corpus("test.de").read_text(encoding="utf-8").splitlines(), *odd]
    source = "".join(f"{line}\n" for line in lines).encode()
    flags = (*flags, "--n-best", 2, "--device", "cpu", "--threads", 1)
    printed = records_of(workspace, *flags, stdin=source)
    translator = Translator.load(workspace.run, device="cpu", threads=1, **options)
    for ours, theirs in zip(
        translator.translate_n_best(lines, n_best=2, with_alignment=True), printed, strict=True
    ):
        assert [{"translation": one.text, "score": one.score} for one in ours] == theirs["n_best"]
        assert list(ours[0].src_tokens) == theirs["tokens"]["source"]
        assert list(ours[0].tokens) == theirs["tokens"]["translation"]
        assert [list(pair) for pair in ours[0].alignment] == theirs["alignment"]


def terminal_with(workspace: Workspace, command: str) -> "pexpect.spawn[str]":
    session = pexpect.spawn(
        "/bin/sh",
        ["-c", f"{shlex.join(map(str, MT_CLI))} {command}"],
        cwd=str(workspace.folder),
        env={**os.environ, "TERM": "xterm", "PYTHONIOENCODING": "utf-8"},
        encoding="utf-8",
        timeout=TIMEOUT_S,
    )
    session.expect_exact("Ctrl-D")
    return session


@pytest.mark.processes
def test_at_a_terminal_each_line_is_answered(workspace: Workspace) -> None:
    sentences = ["Ein Hund bellt.", "Zwei Frauen singen."]
    expected = lines_of(workspace, stdin="\n".join(sentences).encode())
    session = terminal_with(workspace, f"translate {RUN}")
    for sentence, translation in zip(sentences, expected, strict=True):
        session.expect_exact("> ")
        session.sendline(sentence)
        session.expect_exact(f"{sentence}\r\n{translation}\r\n")
    session.expect_exact("> ")
    session.send("\x1b[A")  # arrow up: the line before
    session.expect_exact(sentences[-1])
    session.sendline("")
    session.expect_exact(f"{expected[-1]}\r\n")
    session.expect_exact("> ")  # before it, Ctrl-D would be lost
    session.sendeof()
    session.expect(pexpect.EOF)
    session.close()
    assert session.exitstatus == 0


@pytest.mark.processes
@pytest.mark.parametrize("target", ["> {0}", "-o {0}", "| cat > {0}"])
def test_typed_lines_have_a_prompt_wherever_the_translations_go(
    workspace: Workspace, tmp_path: Path, target: str
) -> None:
    sentences = ["Ein Hund bellt.", "Zwei Frauen singen."]
    file = tmp_path / "out"
    session = terminal_with(workspace, f"translate {RUN} {target.format(file)}")
    for sentence in sentences:
        session.expect_exact("> ")
        session.sendline(sentence)
    session.expect_exact("> ")
    session.sendeof()
    session.expect(pexpect.EOF)
    expected = lines_of(workspace, stdin="\n".join(sentences).encode())
    assert file.read_text().splitlines() == expected


def test_without_a_run_the_model_that_comes_along_translates(
    workspace: Workspace, tmp_path: Path
) -> None:
    outcome = workspace.call("translate", "--text", "Ein Hund schläft.", cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert outcome.text.startswith("A dog ")
    assert "multi30k-tiny" in outcome.err
    named = workspace.call("translate", "multi30k-tiny", "--text", "Ein Hund schläft.", "-q")
    assert (named.text, named.err) == (outcome.text, "")


def test_where_there_are_runs_one_has_to_be_named(workspace: Workspace) -> None:
    outcome = workspace.call("translate", "--text", "Ein Hund schläft.")
    assert (outcome.code, outcome.out) == (2, b"")
    assert "runs/tiny" in outcome.err


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["-i", "none.tmx"], "none.tmx"),
        (["--text", "Ein Hund.", "-o", "out.gz"], "out.gz"),
        (["--text", "Ein Hund.", "-i", "memory.tmx"], "--text"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    workspace: Workspace, args: list[str], named: str
) -> None:
    outcome = workspace.call("translate", "runs/tiny", *args)
    assert outcome.code in (2, 3)
    assert outcome.err.startswith("error: ")
    assert named in outcome.err
