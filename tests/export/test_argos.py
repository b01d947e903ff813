"""`export --to argos`: what Argos Translate finds in the package translates as the run does."""

import json
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
from mt_cli.export.argos import check_fits_argos
from mt_cli.runs.opening import open_run
from mt_cli.runs.run import Run


@pytest.fixture(scope="module")
def package(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("argos") / "out"
    assert workspace.call("export", "runs/tiny", folder, "--to", "argos").code == 0
    return folder / "translate-de_en.argosmodel"


@pytest.fixture
def unpacked(package: Path, tmp_path: Path) -> Path:
    with zipfile.ZipFile(package) as file:
        file.extractall(tmp_path)
    (folder,) = tmp_path.iterdir()
    return folder


@pytest.fixture
def known(workspace: Workspace) -> list[str]:
    """Lines that the model knows by heart."""
    return workspace.corpus("train.de").read_text(encoding="utf-8").splitlines()[1:]


def test_the_package_translates_with_nothing_but_what_lies_in_it(
    workspace: Workspace, unpacked: Path, known: list[str]
) -> None:
    metadata = json.loads(unpacked.joinpath("metadata.json").read_text())
    found = [metadata[key] for key in ("from_code", "from_name", "to_code", "to_name")]
    assert found == ["de", "German", "en", "English"]
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(unpacked / "sentencepiece.model"))
    model = ctranslate2.Translator(str(unpacked / "model"), compute_type="float32")
    results = model.translate_batch(pieces.encode(known, out_type=str), beam_size=1)
    theirs = [pieces.decode(result.hypotheses[0]) for result in results]
    source = "\n".join(known).encode()
    assert theirs == workspace.call("translate", "runs/tiny", stdin=source).lines


def test_a_sentence_longer_than_the_model_was_made_for_does_not_fail(unpacked: Path) -> None:
    model = ctranslate2.Translator(str(unpacked / "model"))
    (result,) = model.translate_batch([["▁ein"] * 3000], beam_size=1)
    assert result.hypotheses


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("tokenizer", "kind", "spacy"),
        ("tokenizer", "joint", False),
        ("data", "lowercase", True),
        ("model", "positions", "learned"),
    ],
)
def test_what_argos_translate_cannot_use_is_refused_by_the_name_of_its_key(
    workspace: Workspace, table: str, key: str, value: object
) -> None:
    run = open_run(workspace.run)
    check_fits_argos(run)
    section = getattr(run.config, table).model_copy(update={key: value})
    config = run.config.model_copy(update={table: section})
    tokenizers = replace(
        run.tokenizers,
        kind=config.tokenizer.kind,
        joint=config.tokenizer.joint,
        options=replace(run.tokenizers.options, lowercase=config.data.lowercase),
    )
    other = SimpleNamespace(folder=workspace.run, config=config, tokenizers=tokenizers)
    with pytest.raises(UsageError, match=rf"{table}\.{key}"):
        check_fits_argos(cast("Run", other))
