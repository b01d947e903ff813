"""The tokenizer of a run, for data on which that run's model is to be trained further.

Knows run folders; learns nothing.
"""

import json

from mt_cli.artefacts.run import Run, open_run
from mt_cli.config import Config, differences
from mt_cli.errors import ConfigError

KEYS = ("tokenizer.kind", "tokenizer.joint", "data.src_lang", "data.tgt_lang", "data.lowercase")
"""What a tokenizer depends on, beside its size."""


def run_with_tokenizer(config: Config) -> Run:
    """The run that `tokenizer.from_run` names, if its tokenizer is the one that `config` describes.

    Raises:
        ConfigError: it is for other languages, or of another kind.
        UsageError: there is no such run.
    """
    assert config.tokenizer.from_run is not None
    run = open_run(config.tokenizer.from_run)
    different = [
        f"{key} is {json.dumps(wanted)}, there {json.dumps(found)}"
        for key, (wanted, found) in differences(config, run.config).items()
        if key in KEYS
    ]
    if different:
        raise ConfigError(
            f"tokenizer.from_run: the tokenizer of {run.folder} does not suit this config: "
            f"{'; '.join(different)}; write the same, or learn a tokenizer without from_run"
        )
    return run
