"""A package for Argos Translate, which LibreTranslate uses too."""

import json
import zipfile
from contextlib import suppress
from pathlib import Path

from mt_cli.errors import UsageError
from mt_cli.machine.files import MANIFEST
from mt_cli.runs.run import Run
from mt_cli.text.tokenizers import TOKENIZER_FOLDER


def check_fits_argos(run: Run) -> None:
    """Refuse a `run` whose model Argos Translate cannot use.

    It has one SentencePiece model for both sides, changes no letter and splits no sentence.
    """
    found = run.tokenizers
    wanted = {
        "tokenizer.kind bpe or unigram": found.kind != "spacy",
        "tokenizer.joint true": found.joint,
        "data.lowercase false": not found.options.lowercase,
        "model.positions sinusoidal": run.config.model.positions == "sinusoidal",
    }
    if missing := [name for name, is_so in wanted.items() if not is_so]:
        raise UsageError(
            f"{run.folder}: Argos Translate needs a model trained with {', '.join(missing)}"
        )


def pack_for_argos(run: Run, folder: Path) -> None:
    """Write a package (a zip) of the model in `folder`, which was exported from `run`, into it."""
    import spacy

    options = run.tokenizers.options
    metadata: dict[str, object] = {"package_version": "1.0", "argos_version": "1.11", "links": []}
    for side, code in (("from", options.src_lang), ("to", options.tgt_lang)):
        language = code
        with suppress(ImportError):  # spaCy does not know every language
            language = spacy.util.get_lang_class(code).__name__
        metadata |= {f"{side}_code": code, f"{side}_name": language}
    name = f"translate-{options.src_lang}_{options.tgt_lang}"
    model = [
        path
        for path in folder.glob("*")
        if path.suffix in (".bin", ".json") and path.name != MANIFEST
    ]
    with zipfile.ZipFile(folder / f"{name}.argosmodel", "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr(f"{name}/metadata.json", json.dumps(metadata, indent=2))
        package.write(folder / TOKENIZER_FOLDER / "joint.model", f"{name}/sentencepiece.model")
        for path in sorted(model):
            package.write(path, f"{name}/model/{path.name}")
