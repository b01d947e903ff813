"""Export for Argos Translate and LibreTranslate: a package with a CTranslate2 model."""

import json
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from mt_cli.config.schema import Quantization
from mt_cli.errors import UsageError
from mt_cli.export.ctranslate2_model import write_model
from mt_cli.model.transformer import PositionalEncoding
from mt_cli.runs.run import Run
from mt_cli.text.language import english_name
from mt_cli.text.tokenizers import TOKENIZER_FOLDER
from mt_cli.translation.options import NEVER_CHOSEN

CTRANSLATE2_MAX_INPUT = 1024
"""CTranslate2's default limit of tokens per input."""


def check_fits_argos(run: Run) -> None:
    """Reject a `run` whose model Argos Translate cannot use.

    Argos Translate uses one SentencePiece model for both sides and never lower-cases text. It does
    not split long sentences either, so the positions must be extensible.
    """
    tokenizers = run.tokenizers
    wanted = {
        "tokenizer.kind bpe or unigram": tokenizers.kind != "spacy",
        "tokenizer.joint true": tokenizers.joint,
        "data.lowercase false": not tokenizers.options.lowercase,
        "model.positions sinusoidal": run.config.model.positions == "sinusoidal",
    }
    if missing := [name for name, is_so in wanted.items() if not is_so]:
        raise UsageError(f"{run.folder}: Argos Translate needs {', '.join(missing)}")


def pack_for_argos(run: Run, folder: Path, *, checkpoint: str, quantization: Quantization) -> None:
    """Write a package (.zip) of `checkpoint` into `folder`, which already has the export.

    Argos Translate neither splits long sentences nor forbids symbols, so its model has more
    positions, and a bias that rules these symbols out.
    """
    model = run.load_model(checkpoint=checkpoint, backend="scratch")
    max_len = max(CTRANSLATE2_MAX_INPUT, model.max_len)
    positions = PositionalEncoding(max_len, run.config.model.d_model, is_learned=False)
    model.src_positions = positions
    model.tgt_positions = positions
    options = run.tokenizers.options
    metadata: dict[str, object] = {"package_version": "1.0", "argos_version": "1.11", "links": []}
    for side, code in (("from", options.src_lang), ("to", options.tgt_lang)):
        metadata |= {f"{side}_code": code, f"{side}_name": english_name(code)}
    name = f"translate-{options.src_lang}_{options.tgt_lang}"
    with (
        TemporaryDirectory(dir=folder) as place,
        zipfile.ZipFile(folder / f"{name}.argosmodel", "w", zipfile.ZIP_DEFLATED) as package,
    ):
        write_model(
            Path(place),
            model,
            run.config.model,
            src_tokens=run.tokenizers.src.entries,
            tgt_tokens=run.tokenizers.tgt.entries,
            quantization=quantization,
            ruled_out=NEVER_CHOSEN,
        )
        package.writestr(f"{name}/metadata.json", json.dumps(metadata, indent=2))
        package.write(folder / TOKENIZER_FOLDER / "joint.model", f"{name}/sentencepiece.model")
        for path in sorted(Path(place).iterdir()):
            package.write(path, f"{name}/model/{path.name}")
