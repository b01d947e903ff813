"""Translation memories as corpora."""

import gzip
import resource
from pathlib import Path

import pytest

from mt_cli.config.schema import FilesConfig
from mt_cli.data.corpora import ParallelText
from mt_cli.data.readers import languages_of, texts_of, units_of
from mt_cli.errors import DataError

TMX = """\
<?xml version="1.0" encoding="ENCODING"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="de-DE"/><body>
  <tu><prop type="x">p</prop><note>n</note>
    <tuv xml:lang="en"><seg>Two &amp; three</seg></tuv>
    <tuv xml:lang="de-DE"><seg>Zwei &amp; drei</seg></tuv></tu>
  <tu tuid="2"><tuv xml:lang="de-DE"><seg>Ein <bpt i="1">&lt;b&gt;</bpt>großer<ept i="1"/>
    <hi>Hund</hi>.</seg></tuv></tu>
  <tu><tuv lang="de"><seg/></tuv><tuv lang="en"><seg>nothing</seg></tuv></tu>
</body></tmx>
"""


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.replace("ENCODING", encoding).encode(encoding))
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"])
def test_texts_of_a_memory_are_read_by_language_and_side(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path / "m.tmx", TMX, encoding.replace("-sig", ""))
    if encoding == "utf-8-sig":
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    german = ["Zwei & drei", "Ein großer Hund.", ""]
    english = ["Two & three", "", "nothing"]
    for column, expected in (("de", german), ("src", german), ("en", english), ("en-GB", english)):
        assert [text.decode() for text in texts_of(path, column)] == expected
    assert [text.decode() for text in texts_of(path, "tgt")] == english


def test_the_own_variant_of_a_language_is_read_first(tmp_path: Path) -> None:
    tuvs = [("pt-BR", "um trem"), ("pt-PT", "um comboio"), ("en-US", ""), ("en-GB", "a train")]
    tuv = '<tuv xml:lang="{}"><seg>{}</seg></tuv>'
    unit = f"<tu>{''.join(tuv.format(*each) for each in tuvs)}</tu>"
    path = write(tmp_path / "m.tmx", f"<tmx><body>{unit}</body></tmx>")
    expected = {
        "pt-PT": b"um comboio",
        "pt-br": b"um trem",
        "pt": b"um trem",
        "pt-AO": b"um trem",
        "en": b"a train",
        "en-US": b"a train",
    }
    assert {lang: next(texts_of(path, lang)) for lang in expected} == expected


def test_a_packed_memory_is_a_corpus(tmp_path: Path) -> None:
    path = tmp_path / "m.tmx.gz"
    path.write_bytes(gzip.compress(TMX.replace("ENCODING", "utf-8").encode()))
    pairs = ParallelText.of(FilesConfig(src=(path,), tgt=(path,))).pairs()
    assert next(iter(pairs)) == (b"Zwei & drei", b"Two & three")


@pytest.mark.parametrize("text", ["<tmx><body><tu>", "Ein Hund.", "<tmx><body/></tmx></a>"])
def test_what_is_no_memory_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"m\.tmx: cannot be read as XML"):
        list(texts_of(write(tmp_path / "m.tmx", text), "de"))


def test_languages_are_those_of_its_units_the_source_first(tmp_path: Path) -> None:
    path = write(tmp_path / "m.tmx", TMX)
    assert languages_of(path) == ["de-DE", "en"]
    path = write(tmp_path / "e.tmx", "<tmx><body/></tmx>")
    assert languages_of(path) == []


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    unit = '<tu><tuv xml:lang="de"><seg>Ein Hund schläft auf dem Sofa.</seg></tuv></tu>\n'
    path = write(tmp_path / "m.tmx", f"<tmx><body>{unit * 200_000}</body></tmx>")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sum(1 for _ in units_of(path)) == 200_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 << 10
