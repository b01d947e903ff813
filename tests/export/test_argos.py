"""`export --to argos`: the package is what Argos Translate installs, and it translates as the run
does.
"""

import json
import os
import subprocess
import venv
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import ctranslate2
import pytest
import sentencepiece
from workspace import Workspace

from mt_cli.errors import UsageError
from mt_cli.evaluation.export import check_fits_argos
from mt_cli.runs.run import Run, open_run

ROOT = Path(__file__).resolve().parents[2]
READY = ROOT / "data/models/multi30k-tiny"
PROGRAM = """
import sys
from pathlib import Path

from argostranslate import package, translate

class Whole:  # its own finds sentences with a model that it downloads
    def split_sentences(self, text):
        return [text]

package.install_from_path(Path(sys.argv[1]))
found = translate.get_translation_from_codes("de", "en")
found.underlying.sentencizer = Whole()
for line in Path(sys.argv[2]).read_text(encoding="utf-8").splitlines():
    print(found.translate(line))
"""


@pytest.fixture(scope="module")
def package(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("argos") / "out"
    assert workspace.call("export", READY, folder, "--to", "argos").code == 0
    return folder / "translate-de_en.argosmodel"


def lines_to_translate(number: int) -> list[str]:
    return ROOT.joinpath("data/sample/test.de").read_text(encoding="utf-8").splitlines()[:number]


def test_the_package_translates_with_nothing_but_what_lies_in_it(
    workspace: Workspace, package: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(package) as file:
        file.extractall(tmp_path)
    (folder,) = tmp_path.iterdir()
    metadata = json.loads(folder.joinpath("metadata.json").read_text())
    found = [metadata[key] for key in ("from_code", "from_name", "to_code", "to_name")]
    assert found == ["de", "German", "en", "English"]
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    model = ctranslate2.Translator(str(folder / "model"), compute_type="float32")
    lines = lines_to_translate(20)
    results = model.translate_batch(pieces.encode(lines, out_type=str), beam_size=1)
    theirs = [pieces.decode(result.hypotheses[0]) for result in results]
    assert theirs == workspace.call("translate", READY, stdin="\n".join(lines).encode()).lines


def test_a_sentence_longer_than_the_model_was_made_for_does_not_fail(
    package: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(package) as file:
        file.extractall(tmp_path)
    model = ctranslate2.Translator(str(tmp_path / "translate-de_en" / "model"))
    (result,) = model.translate_batch([["▁ein"] * 3000], beam_size=1)
    assert result.hypotheses


@pytest.mark.parametrize(
    ("table", "key", "value", "wanted"),
    [
        ("tokenizer", "kind", "spacy", "tokenizer.kind bpe or unigram"),
        ("tokenizer", "joint", False, "tokenizer.joint true"),
        ("data", "lowercase", True, "data.lowercase false"),
        ("model", "positions", "learned", "model.positions sinusoidal"),
    ],
)
def test_what_argos_translate_cannot_use_is_refused_by_the_names_of_its_keys(
    table: str, key: str, value: object, wanted: str
) -> None:
    run = open_run(READY)
    config = run.config.model_copy(
        update={table: getattr(run.config, table).model_copy(update={key: value})}
    )
    found = run.tokenizers
    options = replace(found.options, lowercase=config.data.lowercase)
    others = replace(
        found, kind=config.tokenizer.kind, joint=config.tokenizer.joint, options=options
    )
    check_fits_argos(run)
    with pytest.raises(UsageError, match=f"needs a model trained with {wanted}$"):
        check_fits_argos(
            cast("Run", SimpleNamespace(folder=READY, config=config, tokenizers=others))
        )


@pytest.mark.slow
def test_argos_translate_itself_translates_as_the_run_does(
    workspace: Workspace, package: Path, tmp_path: Path
) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    constraints = str(ROOT / "constraints.txt")
    install = [
        str(python),
        "-m",
        "pip",
        "install",
        "-qq",
        "-c",
        constraints,
        "torch",
        "argostranslate",
    ]
    subprocess.run(install, check=True)
    lines = lines_to_translate(100)
    source = tmp_path / "de.txt"
    source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    told = {"ARGOS_COMPUTE_TYPE": "float32", "ARGOS_BEAM_SIZE": "1", "HOME": str(tmp_path)}
    done = subprocess.run(
        [python, "-c", PROGRAM, package, source],
        env=os.environ | told,
        capture_output=True,
        check=True,
    )
    assert (
        done.stdout.decode().splitlines() == workspace.call("translate", READY, "-i", source).lines
    )
