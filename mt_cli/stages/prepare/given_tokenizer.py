"""The tokenizer of a run, for data on which that run's model is to be trained further.

Knows run folders; learns nothing.
"""

import json

from mt_cli.artefacts.run import Run, open_run
from mt_cli.config import Config
from mt_cli.errors import ConfigError


def run_with_tokenizer(config: Config) -> Run:
    """The run that `tokenizer.from_run` names, if its tokenizer is the one that `config` describes.

    Raises:
        ConfigError: it is for other languages, or of another kind.
        UsageError: there is no such run.
    """
    assert config.tokenizer.from_run is not None
    run = open_run(config.tokenizer.from_run)
    wanted, found = _described(config), _described(run.config)
    different = [
        f"{key} is {json.dumps(wanted[key])}, there {json.dumps(found[key])}"
        for key in wanted
        if wanted[key] != found[key]
    ]
    if different:
        raise ConfigError(
            f"tokenizer.from_run: the tokenizer of {run.folder} does not suit this config: "
            f"{'; '.join(different)}; write the same, or learn a tokenizer without from_run"
        )
    return run


def _described(config: Config) -> dict[str, object]:
    """The keys that a tokenizer depends on, beside its size."""
    return {
        "tokenizer.kind": config.tokenizer.kind,
        "tokenizer.joint": config.tokenizer.joint,
        "data.src_lang": config.data.src_lang,
        "data.tgt_lang": config.data.tgt_lang,
        "data.lowercase": config.data.lowercase,
    }
