"""`scripts/dictionary.py`: a dictionary of Ding as two files of lines."""

import gzip
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "dictionary.py"
DING = """\
# a remark :: not an entry
Haus {n}; Bau {m} [arch.] | Häuser {pl} :: house; building | houses
Bau {m} :: building; den (of a fox)
jdm. etw. geben {vt} | gab :: to give sth. to sb. | gave
ein Haus mit einem Garten :: a house with a garden
no translation
"""


def converted(folder: Path, *texts: Path) -> dict[str, str]:
    ding, sources, targets = folder / "ding", folder / "out.de", folder / "out.en"
    ding.write_text(DING, encoding="utf-8")
    subprocess.run([sys.executable, SCRIPT, ding, sources, targets, *texts], check=True)
    lines = [path.read_text(encoding="utf-8").splitlines() for path in (sources, targets)]
    return dict(zip(*lines, strict=True))


def test_each_phrase_gets_its_likeliest_translation(tmp_path: Path) -> None:
    pairs = converted(tmp_path)
    assert pairs == {
        "Haus": "house",
        "Häuser": "houses",
        "Bau": "building",
        "geben": "give to",
        "gab": "gave",
    }


def test_only_words_of_the_texts_are_kept(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.txt", tmp_path / "b.gz"
    plain.write_text("Zwei HÄUSER.\n", encoding="utf-8")
    packed.write_bytes(gzip.compress(b"Der Bau\n"))
    assert converted(tmp_path, plain, packed) == {"Häuser": "houses", "Bau": "building"}
