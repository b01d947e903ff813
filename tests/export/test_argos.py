"""`export --to argos`: what Argos Translate finds in the package translates as the run does."""

import json
import re
import zipfile
from pathlib import Path

import ctranslate2
import pytest
import sentencepiece
from learned import learn_tokenizers
from runs_made import PAIRS, add_checkpoint, making
from tiny import TINY
from workspace import Workspace

from mt_cli.config.schema import Config, DataConfig, TokenizerConfig
from mt_cli.errors import UsageError
from mt_cli.export.export import export_run


@pytest.fixture(scope="module")
def unpacked(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("argos")
    assert workspace.call("export", "runs/tiny", folder / "out", "--to", "argos").code == 0
    with zipfile.ZipFile(folder / "out" / "translate-de_en.argosmodel") as file:
        file.extractall(folder / "unpacked")
    (unpacked,) = folder.joinpath("unpacked").iterdir()
    return unpacked


def test_the_package_translates_with_nothing_but_what_lies_in_it(
    workspace: Workspace, unpacked: Path
) -> None:
    metadata = json.loads(unpacked.joinpath("metadata.json").read_text())
    found = [metadata[key] for key in ("from_code", "from_name", "to_code", "to_name")]
    assert found == ["de", "German", "en", "English"]
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(unpacked / "sentencepiece.model"))
    model = ctranslate2.Translator(str(unpacked / "model"), compute_type="float32")
    known = workspace.corpus("train.de").read_text(encoding="utf-8").splitlines()[1:]
    results = model.translate_batch(pieces.encode(known, out_type=str), beam_size=1)
    theirs = [pieces.decode(result.hypotheses[0]) for result in results]
    source = "\n".join(known).encode()
    assert theirs == workspace.call("translate", "runs/tiny", stdin=source).lines


def test_a_sentence_longer_than_the_model_was_made_for_does_not_fail(unpacked: Path) -> None:
    model = ctranslate2.Translator(str(unpacked / "model"))
    (result,) = model.translate_batch([["▁ein"] * 3000], beam_size=1)
    assert result.hypotheses


def test_what_argos_translate_cannot_use_is_refused_by_its_keys(tmp_path: Path) -> None:
    model = TINY.model_copy(update={"positions": "learned"})
    words = TokenizerConfig(kind="spacy", joint=False)
    tokenizers = learn_tokenizers(2 * PAIRS, words, src_lang="de", tgt_lang="en", lowercase=True)
    config = Config(model=model, data=DataConfig(max_len=15))
    with making(tmp_path / "run", config, tokenizers=tokenizers) as run:
        add_checkpoint(run, 1, pointers=("best",))
    with pytest.raises(UsageError) as caught:
        export_run(run.folder, tmp_path / "out", to="argos")
    keys = re.findall(r"(\w+\.\w+) \w+", str(caught.value).partition("needs")[2])
    assert keys == ["tokenizer.kind", "tokenizer.joint", "data.lowercase", "model.positions"]
    assert not tmp_path.joinpath("out").exists()
