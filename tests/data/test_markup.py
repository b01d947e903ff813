"""Translation memories: what is read of them, and that only translations are put into them."""

import gzip
import re
import resource
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.config.schema import FilesConfig
from mt_cli.data.corpora import ParallelText
from mt_cli.data.markup import texts_of, translate_markup, units_of
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
XLIFF = """\
<xliff version="1.2"><file source-language="de" target-language="en-US"><body>
<trans-unit id="1"><source>Zwei <mrk translate="no">Hunde</mrk> <x id="2"/>.</source></trans-unit>
<trans-unit id="2"><source>Ein Mann.</source>
  <target/><alt-trans><source>Mann</source><target>Man</target></alt-trans></trans-unit>
<trans-unit id="3" translate="no"><source>Nein</source></trans-unit>
<trans-unit id="4"><source><![CDATA[Zwei]]></source><!-- a --><target/><!-- b --></trans-unit>
<trans-unit id="5"><source>Ja</source><target state="final">Yes</target></trans-unit>
</body></file></xliff>
"""
XLIFF_2 = """\
<x:xliff xmlns:x="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="de" trgLang="en">
<x:file id="f">
<x:unit id="1"><x:segment><x:source>Ein Hund.</x:source></x:segment>
<x:segment><x:source>Ja</x:source><x:target>Yes</x:target></x:segment></x:unit></x:file></x:xliff>
"""


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.replace("ENCODING", encoding).encode(encoding))
    return path


def translated(path: Path, *, together: int = 2) -> bytes:
    """The file with each missing translation in angle brackets."""
    out = bytearray()
    translate_markup(
        path,
        write=out.extend,
        translate=lambda texts: [f"<{text}>" for text in texts],
        languages=("de", "en"),
        units_together=together,
    )
    return bytes(out)


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


def test_a_translated_memory_needs_no_more_translations(tmp_path: Path) -> None:
    unit = '<tu><tuv xml:lang="de"><seg>Ja</seg></tuv><tuv xml:lang="en-US"><seg/></tuv></tu>'
    path = write(tmp_path / "m.tmx", f"<tmx><body>{unit}</body></tmx>")
    once = translated(path)
    assert once.count(b"&lt;Ja&gt;") == 1
    path.write_bytes(once)
    assert translated(path) == once


def test_a_target_stands_behind_the_segments_of_the_source(tmp_path: Path) -> None:
    segments = '<seg-source><mrk mtype="seg" mid="1">Ja.</mrk></seg-source>'
    for target in ("", '<target state="new"/>'):
        unit = f"<trans-unit><source>Ja.</source>{segments}{target}</trans-unit>"
        path = write(tmp_path / "a.xlf", f"<xliff><file><body>{unit}</body></file></xliff>")
        put = f"{segments}<target>&lt;Ja.&gt;</target></trans-unit>"
        assert translated(path).decode().count(put) == 1


@pytest.mark.parametrize("empty", ["<seg></seg>", "<seg/>", "<seg> </seg><!-- a -->"])
def test_an_empty_translation_in_a_memory_is_filled_in_its_place(
    tmp_path: Path, empty: str
) -> None:
    unit = f'<tu><tuv xml:lang="en-US">{empty}</tuv><tuv xml:lang="de"><seg>Ja</seg></tuv></tu>'
    memory = '<tmx><header srclang="de"/><body>UNITS</body></tmx>'
    path = write(tmp_path / "a.tmx", memory.replace("UNITS", 3 * unit))
    written = translated(path).decode()
    filled = unit.replace(re.sub("<!--.*", "", empty), "<seg>&lt;Ja&gt;</seg>")
    assert written == memory.replace("UNITS", 3 * filled)


def test_a_translation_of_elements_alone_is_not_overwritten(tmp_path: Path) -> None:
    target = '<seg><ph x="1">a</ph></seg>'
    unit = f'<tu><tuv xml:lang="en">{target}</tuv><tuv xml:lang="de"><seg>Ja</seg></tuv></tu>'
    path = write(tmp_path / "a.tmx", f'<tmx><header srclang="de"/><body>{unit}</body></tmx>')
    assert target.encode() in translated(path)


@pytest.mark.parametrize("text", [XLIFF.replace("en-US", "fr"), XLIFF_2.replace('"en"', '"fr"')])
def test_a_file_for_another_language_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"a\.xlf: .* fr, .* en"):
        translated(write(tmp_path / "a.xlf", text))


def test_a_packed_memory_is_a_corpus(tmp_path: Path) -> None:
    path = tmp_path / "m.tmx.gz"
    path.write_bytes(gzip.compress(TMX.replace("ENCODING", "utf-8").encode()))
    pairs = ParallelText.of(FilesConfig(src=(path,), tgt=(path,))).pairs()
    assert next(iter(pairs)) == (b"Zwei & drei", b"Two & three")


@pytest.mark.parametrize("text", [XLIFF, XLIFF_2])
def test_texts_of_a_translators_file_are_read(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "a.xlf", text)
    pairs = list(zip(texts_of(path, "src"), texts_of(path, "tgt"), strict=True))
    assert pairs[-1] == (b"Ja", b"Yes")
    assert pairs[0][0] in (b"Zwei Hunde .", b"Ein Hund.")
    assert list(texts_of(path, "de")) == [source for source, _ in pairs]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16le", "utf-16be", "iso-8859-1"])
@pytest.mark.parametrize("together", [1, 2, 100])
def test_only_a_missing_translation_is_put_in(tmp_path: Path, encoding: str, together: int) -> None:
    path = write(tmp_path / "m.tmx", TMX, encoding)
    found = translated(path, together=together).decode(encoding)
    own = TMX.replace("ENCODING", encoding)
    put = '<tuv xml:lang="en"><seg>&lt;Ein großer Hund.&gt;</seg></tuv>'
    assert found == own.replace(".</seg></tuv></tu>", f".</seg></tuv>{put}</tu>")


def test_a_translators_file_gets_targets_where_there_are_none_or_empty_ones(tmp_path: Path) -> None:
    found = translated(write(tmp_path / "a.xlf", XLIFF)).decode()
    first = "<target>&lt;Zwei Hunde .&gt;</target>"
    second = "<target>&lt;Ein Mann.&gt;</target>"
    expected = XLIFF.replace('<x id="2"/>.</source>', f'<x id="2"/>.</source>{first}')
    third = "<target>&lt;Zwei&gt;</target>"
    assert found == expected.replace("<target/>", second, 1).replace("<target/>", third)
    found = translated(write(tmp_path / "b.xliff", XLIFF_2)).decode()
    put = "<x:target>&lt;Ein Hund.&gt;</x:target>"
    assert found == XLIFF_2.replace("Hund.</x:source>", f"Hund.</x:source>{put}")


TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1
)


@given(st.lists(st.tuples(TEXT, st.booleans()), min_size=1, max_size=8), st.integers(1, 5))
def test_any_text_comes_back_as_another_parser_reads_it(
    tmp_path_factory: pytest.TempPathFactory, units: list[tuple[str, bool]], together: int
) -> None:
    body = ""
    for text, has_target in units:
        target = "<target>done</target>" if has_target else ""
        body += f"<trans-unit><source>x{escape(text)}</source>{target}</trans-unit>"
    path = tmp_path_factory.mktemp("xlf") / "a.xlf"
    write(path, f"<xliff><file><body>{body}</body></file></xliff>")
    root = ElementTree.fromstring(translated(path, together=together))
    sources = [" ".join((each.text or "").split()) for each in root.iter("source")]
    targets = [each.text for each in root.iter("target")]
    expected = ["done" if has else f"<{src}>" for src, (_, has) in zip(sources, units, strict=True)]
    assert targets == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<tmx><body><tu>", "cannot be read as XML"),
        ("Ein Hund.", "cannot be read as XML"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "entities"),
        ("<tmx><body/></tmx>", "no text in the language de"),
        (XLIFF.replace('"de"', '"fr"'), "no text in the language de"),
        ('<tmx><tu><tuv xml:lang="fr"><seg>Oui</seg></tuv></tu></tmx>', "no text in the language"),
    ],
)
def test_what_is_no_memory_is_named(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(DataError, match=reason) as caught:
        translated(write(tmp_path / "m.tmx", text))
    assert "m.tmx" in str(caught.value)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    unit = '<tu><tuv xml:lang="de"><seg>Ein Hund schläft auf dem Sofa.</seg></tuv></tu>\n'
    path = write(tmp_path / "m.tmx", f"<tmx><body>{unit * 200_000}</body></tmx>")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with path.open("rb") as content:
        assert sum(1 for _ in units_of(content, path)) == 200_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 << 10
