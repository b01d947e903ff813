"""What a run says of itself beside its manifest: how far training came, and on what machine.

    status.json   written anew at each validation
    env.json      written at the start, and when training is resumed elsewhere or with other code

Both are sealed. Knows the files and their keys, nothing of training.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from mt_cli.artefacts.files import is_there
from mt_cli.artefacts.json_files import read_sealed, sealed, write_json
from mt_cli.errors import DataError

log = logging.getLogger(__name__)

STATUS, ENVIRONMENT = "status.json", "env.json"
ENDED = ("finished", "early_stop")
"""States of a training that has come to its end."""
RESUMED = "resumed"
"""Key of env.json: what was different each time that training was resumed."""
AFTER_STEP = "after_step"
"""Key of each of these: the last update before."""
EARLY_KEYS: Mapping[str, Collection[str]] = {
    STATUS: {
        "state", "step", "total_steps", "epoch", "best_step", "best_score", "best_by", "elapsed_s",
    },
    ENVIRONMENT: {
        "mt_cli", "python", "torch", "torchtext", "spacy", "sentencepiece", "sacrebleu", "numpy", "device",
        "precision", "cpu", "processor", "avx512", "amx", "cores", "threads", "memory_gib", "gpu",
        "gpu_memory_gib", "processes", "commit", "commit_modified",
    },
}  # fmt: skip
"""Of such files that were written before they were sealed."""


def write_facts(run: Path, name: str, facts: Mapping[str, object]) -> None:
    """Replace the file `name` of the run folder `run`, which is `STATUS` or `ENVIRONMENT`."""
    write_json(run / name, sealed(facts), below=run)


def note_resumption(run: Path, environment: Mapping[str, object], *, after_step: int) -> None:
    """Note in env.json what of `environment` differs from before, where training goes on after `after_step`.

    A value of None means that a key is gone. What was noted of updates that a kill has lost is forgotten. A
    damaged env.json is warned of and left as it is: training does not depend on it.
    """
    try:
        known = read_facts(run, ENVIRONMENT)
    except DataError as error:
        log.warning("%s", error)
        return
    if after_step == 0:  # all is trained from here on
        if known != environment:
            write_facts(run, ENVIRONMENT, environment)
        return
    noted = list(resumptions(known))
    still_true = [each for each in noted if each.get(AFTER_STEP) in range(after_step)]
    latest = {key: value for key, value in known.items() if key != RESUMED}
    for earlier in still_true:
        latest |= earlier
    changed = {
        key: environment.get(key)
        for key in dict.fromkeys((*latest, *environment))
        if key != AFTER_STEP and latest.get(key) != environment.get(key)
    }
    resumed = [*still_true, *([{AFTER_STEP: after_step, **changed}] if changed else [])]
    if known and resumed != noted:
        write_facts(run, ENVIRONMENT, {**known, RESUMED: resumed})


def resumptions(environment: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """What had changed each time that the training whose env.json says `environment` was resumed."""
    noted = environment.get(RESUMED, [])
    if isinstance(noted, list):
        yield from (each for each in noted if isinstance(each, dict))


def read_facts(run: Path, name: str, *, warns: bool = True) -> dict[str, object]:
    """What the file `name` says; nothing where there is none.

    `warns` says whether to warn of a file without a seal.

    Raises:
        DataError: it cannot be read, or was altered.
    """
    if not is_there(run / name):
        return {}
    return read_sealed(run / name, early_keys=EARLY_KEYS[name], below=run, warns=warns)
