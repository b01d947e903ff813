"""Opening runs and exported models from the folders that users name."""

import json
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mt_cli.config.load import RUN_CONFIG, differences, load_config, shipped
from mt_cli.config.schema import Config
from mt_cli.errors import ConfigError, DataError, PreparedDataError, UsageError
from mt_cli.machine.files import MANIFEST, check_hashes, parsed, read_file, recover
from mt_cli.runs.run import EXPORTED_MODEL, Run, RunManifest
from mt_cli.text.language import base_language

if TYPE_CHECKING:
    from mt_cli.data.prepared import Prepared

log = logging.getLogger(__name__)

READY_MODEL = "de-en"
TOKENIZER_KEYS = ("tokenizer.kind", "tokenizer.joint", "data.lowercase")
"""Keys that a tokenizer depends on, besides its size and its languages."""
LANGUAGE_KEYS = ("data.src_lang", "data.tgt_lang")


def open_model(folder: Path) -> Run:
    """Open a run folder or an exported model, and verify the files that every command loads.

    Raises:
        UsageError: `folder` is neither.
        DataError: a file is missing or altered.
    """
    check_is_there(folder)
    folder = model_folder(folder)
    path = folder / MANIFEST
    manifest = parsed(RunManifest, read_file(path), path)
    needed = [RUN_CONFIG] if manifest.exported_from is None else [RUN_CONFIG, EXPORTED_MODEL]
    for name in needed:
        if name not in manifest.sha256:
            raise DataError(f"{path}: does not list {name}; the file is damaged")
    check_hashes(folder, manifest.sha256)
    return Run(folder, load_config(folder / RUN_CONFIG), manifest)


def model_folder(folder: Path) -> Path:
    """`folder`, or the bundled model's folder if `folder` is its name and does not exist."""
    is_ready_model = str(folder) == READY_MODEL and not os.path.exists(folder)  # noqa: PTH110
    return shipped("data/models") / READY_MODEL if is_ready_model else folder


def check_is_there(folder: Path) -> None:
    """Check that `folder` looks like a model; commands do this before slow imports.

    Raises:
        UsageError: it does not look like one.
    """
    path = model_folder(folder) / MANIFEST
    if os.path.exists(path):  # noqa: PTH110 — text may stand here that is too long for a name
        return
    recover(path.parent)
    if not os.path.exists(path):  # noqa: PTH110
        near = list(map(str, run_folders(folder.parent)))
        hint = f"found: {', '.join(near)}" if near else "create one with mt-cli train CONFIG"
        raise UsageError(f"{folder}: not a run folder (no {MANIFEST} in it); {hint}")


def open_run(folder: Path) -> Run:
    """Open a run folder.

    Raises:
        UsageError: `folder` is not a run folder, or is an exported model.
        DataError: a file is missing or altered.
    """
    run = open_model(folder)
    run.check_is_run()
    return run


def open_run_between(src_lang: str, tgt_lang: str, folder: Path, *, asked_by: str) -> Run:
    """Open the run in `folder`, which must translate from `src_lang` to `tgt_lang`.

    The message of a `UsageError` begins with `asked_by`, a flag or a key.
    """
    run = open_run(folder)
    data = run.config.data
    languages = list(map(base_language, (data.src_lang, data.tgt_lang)))
    if languages != [base_language(src_lang), base_language(tgt_lang)]:
        raise UsageError(
            f"{asked_by}: {folder} translates {data.src_lang}-{data.tgt_lang}, not "
            f"{src_lang}-{tgt_lang}"
        )
    return run


def open_models(folders: Sequence[Path]) -> list[Run]:
    """Open one run, several runs as an ensemble, or one exported model.

    Raises:
        UsageError: `folders` is empty, a folder is not a model, or the tokenizers differ.
    """
    if not folders:
        raise UsageError("no run given; name at least one")
    runs = [open_model(folder) for folder in folders]
    first = runs[0]
    for run in runs:
        if run.is_exported and len(runs) > 1:
            raise UsageError(f"{run.folder}: exported models cannot form an ensemble; use the runs")
        if run.tokenizer_hashes != first.tokenizer_hashes:
            raise UsageError(f"{run.folder}: has a different vocabulary than {first.folder}")
    return runs


def models_named(folders: Sequence[Path]) -> Sequence[Path]:
    """`folders`, or the bundled model if none are given.

    Raises:
        UsageError: no folder is given, although there are runs.
    """
    if folders:
        return folders
    runs = run_folders()
    if runs:
        raise UsageError(f"no run given; found: {', '.join(map(str, runs))}")
    log.info("no run given and none in runs/; using the bundled model %s", READY_MODEL)
    return [Path(READY_MODEL)]


def run_folders(parent: Path = Path("runs")) -> list[Path]:
    """The folders in `parent` that look like runs."""
    return sorted(path.parent for path in parent.glob(f"[!.]*/{MANIFEST}"))


def runs_trained_on(prepared: Path) -> list[Path]:
    """The runs in `runs/` that were trained on the prepared data in `prepared`."""
    runs = []
    for folder in run_folders():
        path = folder / MANIFEST
        with suppress(DataError, OSError):  # ignore other damaged runs
            manifest = parsed(RunManifest, read_file(path), path)
            if Path(manifest.prepared.folder).resolve() == prepared.resolve():
                runs.append(folder)
    return runs


def run_with_tokenizer(config: Config) -> Run | None:
    """Open the run of `tokenizer.from_run`, if set, and check that its tokenizer fits `config`.

    Joint subwords of other languages only give a warning.

    Raises:
        ConfigError: the tokenizer is of another kind, or a side is in another language.
        UsageError: the run does not exist.
    """
    if config.tokenizer.from_run is None:
        return None
    run = open_run(config.tokenizer.from_run)
    is_joint = config.tokenizer.joint and config.tokenizer.kind != "spacy"
    keys = TOKENIZER_KEYS if is_joint else TOKENIZER_KEYS + LANGUAGE_KEYS
    changed = differences(config, run.config)
    for key in LANGUAGE_KEYS:
        if len({base_language(str(lang)) for lang in changed.get(key, ())}) == 1:  # regions
            del changed[key]
    different = [
        f"{key} is {json.dumps(there)}, not {json.dumps(wanted)}"
        for key, (wanted, there) in changed.items()
        if key in keys
    ]
    if different:
        raise ConfigError(
            f"tokenizer.from_run: cannot use that of {run.folder}: {'; '.join(different)}"
        )
    if any(key in changed for key in LANGUAGE_KEYS):
        direction = run.folder, run.config.data.src_lang, run.config.data.tgt_lang
        log.warning(
            "%s translates from %s to %s, which are not this config's languages; reusing it will "
            "help little",
            *direction,
        )
    return run


def open_prepared_of(
    run: Run, folder: Path | None = None, *, verify: bool = False, otherwise: str = ""
) -> "Prepared":
    """Open the prepared data that `run` was trained on, in `folder` if it has moved.

    `verify` also verifies the training text. `otherwise` is appended to the error for missing data
    and tells users what else they can do.

    Raises:
        DataError: the data is missing, or is not that of `run`.
    """
    from mt_cli.data.prepared import open_prepared

    reference = run.manifest.prepared
    place = folder or Path(reference.folder)
    try:
        prepared = open_prepared(place, verify=verify)
    except (PreparedDataError, OSError) as error:
        raise DataError(
            f"{error}; point --data DIR to the data of {run.folder}{otherwise}"
        ) from error
    if not prepared.continues(reference.sha256):
        raise DataError(f"{place}: not the data of {run.folder}; point --data DIR to its data")
    return prepared
