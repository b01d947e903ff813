"""The `translate` command: one line out for each line in, whatever the lines and the streams."""

import gzip
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workspace import Outcome, Workspace

from mt_cli.text.normalize import decode_line
from mt_cli.translation.lines import line_chunks
from mt_cli.translation.translator import Translator

AWKWARD = b"Ein Mann schl\xc3\xa4ft.\n\n\xff\xfe kaputt\nZwei Hunde spielen im Schnee."
RUN = "runs/tiny"


class Pieces(io.BufferedIOBase):
    """A stream whose bytes arrive in the given pieces."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    def read1(self, size: int = -1, /) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


def lines_of(data: bytes) -> list[bytes]:
    r"""Lines by the rule: only `\n` ends one, and an unterminated last one counts."""
    parts = data.split(b"\n")
    return parts if parts[-1] else parts[:-1]


text_bytes = st.lists(
    st.sampled_from(
        [b"\n", b"\r\n", b"a", b" ", b"\xff", "ä".encode(), "\u2028".encode(), b"\x0b", b"\x85"]
    )
).map(b"".join)


@given(text_bytes, st.lists(st.integers(min_value=0, max_value=9)))
def test_stream_gives_its_lines_in_order_however_they_arrive(data: bytes, sizes: list[int]) -> None:
    pieces, rest = [], data
    for size in sizes:
        pieces.append(rest[:size])
        rest = rest[size:]
    sources = [decode_line(line) for line in lines_of(data)]
    assert [line for lines in line_chunks(Pieces([*pieces, rest])) for line in lines] == sources


def test_lines_are_handed_on_before_the_next_ones_are_asked_for() -> None:
    handed_on, seen = 0, []

    class Typist(Pieces):
        def read1(self, size: int = -1, /) -> bytes:
            seen.append(handed_on)
            return super().read1(size)

    # A piece that fills a pipe, too: whoever sent it may wait for the answer.
    for lines in line_chunks(Typist([b"a\n", b"b\nc", b"\n", b"x" * 65535 + b"\n"])):
        handed_on += len(lines)
    assert seen == [0, 1, 2, 3, 4]


def test_awkward_lines_give_as_many_lines(workspace: Workspace) -> None:
    outcome = workspace.call("translate", RUN, stdin=AWKWARD)
    first, empty, third, last = outcome.lines
    assert outcome.code == 0
    assert empty == ""
    assert "" not in (first, third, last)
    assert outcome.err == "warning: line 3: not valid UTF-8; what could not be read was left out\n"


def test_locale_does_not_matter(workspace: Workspace) -> None:
    ascii_locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    outcome = workspace.execute("translate", RUN, stdin=AWKWARD, env=ascii_locale)
    assert outcome == workspace.call("translate", RUN, stdin=AWKWARD)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        pytest.param(b"", 0, id="nothing"),
        pytest.param(b"\n", 1, id="empty line"),
        pytest.param(b"\n\n\n", 3, id="empty lines"),
        pytest.param(b"Ein Hund.", 1, id="unterminated"),
        pytest.param(b"Ein Hund.\n", 1, id="terminated"),
        pytest.param(b"Ein Hund.\r\nZwei Hunde.\r\n", 2, id="DOS"),
        pytest.param(
            "Ein\u2028Hund\x0bund\x85noch\x1eein\x0cHund\n".encode(), 1, id="Unicode line ends"
        ),
        pytest.param(b"Ein\rHund\n", 1, id="CR"),
        pytest.param(b"<s> </s> <pad> <unk>\n</s>\n", 2, id="special symbols"),
        pytest.param("犬が走る\n🐶🐶🐶\n".encode(), 2, id="other scripts"),
        pytest.param(b"\0\0 Ein \x1b[31m Hund\n", 1, id="control characters"),
        pytest.param(b"." * 20_000 + b"\n", 1, id="very long"),
    ],
)
def test_number_of_lines_is_kept(workspace: Workspace, source: bytes, count: int) -> None:
    outcome = workspace.call("translate", RUN, stdin=source)
    assert (outcome.code, len(outcome.lines)) == (0, count)


@pytest.mark.parametrize(
    "line",
    [" ", "\t \u00a0", "\u200b\u200c\u200d\ufeff", "\u202a\u202c\u2066", "\x00\x1b", "\u2028"],
    ids=[
        "space",
        "white space",
        "zero width",
        "bidi marks",
        "control characters",
        "line separator",
    ],
)
def test_line_that_is_empty_after_normalisation_stays_empty(
    workspace: Workspace, line: str
) -> None:
    outcome = workspace.call("translate", RUN, stdin=f"{line}\nEin Hund.\n".encode())
    empty, filled = outcome.lines
    assert (outcome.code, outcome.err, empty) == (0, "", "")
    assert filled != ""


def test_line_of_many_sentences_is_translated_sentence_by_sentence(workspace: Workspace) -> None:
    long, short = workspace.call("translate", RUN, stdin=b"Ein Mann.\nEin Hund.\n").lines
    outcome = workspace.call("translate", RUN, stdin=b"Ein Mann. " * 50 + b"\nEin Hund.\n")
    assert (outcome.code, outcome.lines) == (0, [" ".join([long] * 50), short])
    assert "tokens" not in outcome.err


def test_sentence_longer_than_the_model_is_cut_with_a_warning(workspace: Workspace) -> None:
    outcome = workspace.call("translate", RUN, stdin=b"Ein Mann " * 50)
    assert (outcome.code, len(outcome.lines)) == (0, 1)
    assert re.search(r"^warning: a line of \d+ tokens .* the model's 47,", outcome.err)
    assert outcome.err.count("a line of ") == 1


def test_run_folder_is_all_that_is_needed(workspace: Workspace, tmp_path: Path) -> None:
    workspace.copy_run(tmp_path / "moved")
    there = workspace.call("translate", "moved", stdin=AWKWARD, cwd=tmp_path)
    assert there == workspace.call("translate", RUN, stdin=AWKWARD)
    assert there.code == 0


@pytest.fixture
def two_lines(tmp_path: Path) -> Path:
    path = tmp_path / "german.txt"
    path.write_text("Ein Hund.\nZwei Hunde.\n")
    return path


def translated(workspace: Workspace) -> Outcome:
    """The translation of `two_lines`."""
    return workspace.call("translate", RUN, stdin=b"Ein Hund.\nZwei Hunde.\n")


def test_files_are_read_and_written(workspace: Workspace, two_lines: Path) -> None:
    target = two_lines.with_name("english.txt")
    outcome = workspace.call("translate", RUN, "-i", two_lines, "-o", target)
    assert outcome == Outcome(0, b"", "")
    assert target.read_bytes() == translated(workspace).out
    assert sorted(path.name for path in target.parent.iterdir()) == ["english.txt", "german.txt"]


def test_output_may_replace_the_input(workspace: Workspace, two_lines: Path) -> None:
    outcome = workspace.call("translate", RUN, "-i", two_lines, "-o", two_lines)
    assert outcome == Outcome(0, b"", "")
    assert two_lines.read_bytes() == translated(workspace).out


def test_failed_translation_leaves_the_output_as_it_was(
    workspace: Workspace, two_lines: Path
) -> None:
    target = two_lines.with_name("english.txt")
    target.write_text("precious\n")
    outcome = workspace.call(
        "translate", RUN, "-i", two_lines, "-o", target, "--checkpoint", "none"
    )
    assert outcome.code == 2
    assert target.read_text() == "precious\n"
    assert sorted(path.name for path in target.parent.iterdir()) == ["english.txt", "german.txt"]


def test_json_has_a_line_for_each_line_with_its_source(workspace: Workspace) -> None:
    outcome = workspace.call("translate", RUN, "--json", stdin=AWKWARD)
    records = [json.loads(line) for line in outcome.lines]
    plain = workspace.call("translate", RUN, stdin=AWKWARD)
    assert [record["translation"] for record in records] == plain.lines
    assert [record["source"] for record in records] == [
        decode_line(line) for line in lines_of(AWKWARD)
    ]
    assert "schläft" in outcome.lines[0]


@pytest.mark.parametrize("name", ["missing.txt", "."], ids=["missing", "a folder"])
def test_input_that_cannot_be_read_exits_3(workspace: Workspace, name: str) -> None:
    outcome = workspace.call("translate", RUN, "-i", name)
    assert (outcome.code, outcome.out) == (3, b"")
    assert outcome.err.startswith(f"error: {name}: ")


@pytest.mark.parametrize(
    "name", ["tiny.toml/english.txt", ".", "x" * 300], ids=["below a file", "a folder", "too long"]
)
def test_output_that_cannot_be_written_exits_5(workspace: Workspace, name: str) -> None:
    outcome = workspace.call("translate", RUN, "-o", name, stdin=b"Ein Hund.\n")
    assert (outcome.code, outcome.out) == (5, b"")
    assert outcome.err.startswith(f"error: {name}: cannot be written: ")


def test_folder_of_the_output_is_made(workspace: Workspace, two_lines: Path) -> None:
    target = two_lines.with_name("new") / "english.txt"
    outcome = workspace.call("translate", RUN, "-i", two_lines, "-o", target)
    assert outcome == Outcome(0, b"", "")
    assert target.read_bytes() == translated(workspace).out


def test_packed_file_is_read(workspace: Workspace, two_lines: Path) -> None:
    packed = two_lines.with_suffix(".txt.gz")
    packed.write_bytes(gzip.compress(two_lines.read_bytes()))
    assert workspace.call("translate", RUN, "-i", packed) == translated(workspace)


def test_interrupted_translation_keeps_its_lines_beside_the_old_output(
    workspace: Workspace, two_lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = two_lines.with_name("english.txt")
    target.write_text("precious\n")
    two_lines.write_text("Ein Hund.\n" * 200)  # comes in two portions
    translate, portions = Translator.translate, iter([1])

    def interrupted(self: Translator, lines: list[str], **given: Any) -> list[str]:  # noqa: ANN401
        if next(portions, None) is None:
            raise KeyboardInterrupt
        return translate(self, lines, **given)

    monkeypatch.setattr(Translator, "translate", interrupted)
    outcome = workspace.call("translate", RUN, "-i", two_lines, "-o", target)
    assert (outcome.code, outcome.out) == (130, b"")
    kept = target.with_name("english.txt.partial")
    num_lines = len(kept.read_text().splitlines())
    assert f"{num_lines} translated lines are kept in {kept}" in outcome.err
    assert 0 < num_lines < 200
    assert target.read_text() == "precious\n"
    names = ["english.txt", "english.txt.partial", "german.txt"]
    assert sorted(path.name for path in target.parent.iterdir()) == names


STRANGE = {
    "letters": (
        ["Ein Hund.", "Собака бежит."],
        r"line 2: the model does not know most letters of 'Собака бежи",
    ),
    "another language": (
        ["Un chien court dans la neige avec une balle."],
        "looks like fr; .* translates de",
    ),
    "mostly another language": (
        ["A dog runs through the snow.", "Two men are sitting on a bench."],
        "looks like en; the model translates de",
    ),
}


@pytest.mark.parametrize("name", STRANGE)
def test_text_that_the_model_was_not_made_for_is_doubted(workspace: Workspace, name: str) -> None:
    lines, doubt = STRANGE[name]
    assert re.search(doubt, Translator.load(workspace.run).doubt(lines) or "")


def test_text_of_the_models_language_is_not_doubted(workspace: Workspace) -> None:
    translator = Translator.load(workspace.run)
    lines = [
        "Ein Hund rennt durch den Schnee.",
        "",
        "12 + 30 = 42",
        "É",
        "1. Ø 5",
        "OK",
        "Café, Señor und Łódź in einem Satz.",
    ]
    assert [translator.doubt([line]) for line in lines] == [None] * len(lines)
    assert translator.doubt([*lines, "A dog runs through the snow."]) is None


def test_a_doubt_is_told_once(workspace: Workspace, tmp_path: Path) -> None:
    tmp_path.joinpath("in.txt").write_text(
        "A dog runs through the snow.\n" * 5000, encoding="utf-8"
    )
    outcome = workspace.call(
        "translate", workspace.run, "-i", tmp_path / "in.txt", "-o", tmp_path / "out.txt"
    )
    assert (outcome.code, outcome.err.count("the text looks like en")) == (0, 1)
