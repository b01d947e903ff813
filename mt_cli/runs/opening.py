"""Opening folders of models and their prepared data."""

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from mt_cli.config.load import RUN_CONFIG, command_line, differences, load_config, shipped
from mt_cli.config.schema import Config
from mt_cli.data.prepared import Prepared, open_prepared
from mt_cli.errors import ConfigError, DataError, PreparedDataError, UsageError
from mt_cli.machine.files import MANIFEST, check_hashes, read_json, recover
from mt_cli.runs.run import ExportedModel, Run, RunManifest

log = logging.getLogger(__name__)
READY_MODEL = "multi30k-tiny"
TOKENIZER_KEYS = ("tokenizer.kind", "tokenizer.joint", "data.lowercase")
"""What a tokenizer depends on, besides its size and its languages."""
LANGUAGE_KEYS = ("data.src_lang", "data.tgt_lang")


def open_model(folder: Path) -> Run | ExportedModel:
    """Open a run folder or an exported model after checking the files that every command loads.

    Raises:
        UsageError: it is neither.
        DataError: a file is missing or altered.
    """
    folder = model_folder(folder)
    recover(folder)
    path = folder / MANIFEST
    check_is_there(folder)
    content = read_json(path)
    try:
        manifest = RunManifest.model_validate(content)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise DataError(
            f"{path}: not a run manifest of format 1 ({where}): damaged, or of another version; "
            "train anew"
        ) from error
    if RUN_CONFIG not in manifest.sha256:
        raise DataError(f"{path}: lists no {RUN_CONFIG}; the file is damaged")
    check_hashes(folder, manifest.sha256)
    config = load_config(folder / RUN_CONFIG)
    if manifest.exported_from is not None:
        return ExportedModel(
            folder=folder,
            config=config,
            prepared=manifest.prepared,
            sha256=manifest.sha256,
            lengths=manifest.lengths,
            exported_from=manifest.exported_from,
        )
    return Run(
        folder=folder,
        config=config,
        prepared=manifest.prepared,
        sha256=manifest.sha256,
        lengths=manifest.lengths,
        init_from=manifest.init_from,
        distil_from=manifest.distil_from,
    )


def model_folder(folder: Path) -> Path:
    """`folder`, or that of the model that comes along, where its name stands and nothing has it."""
    is_ready_model = str(folder) == READY_MODEL and not _exists(folder)
    return shipped("data/models") / READY_MODEL if is_ready_model else folder


def check_is_there(folder: Path) -> None:
    """Make sure that `folder` looks like a model's; commands ask before they import much.

    Raises:
        UsageError: it does not.
    """
    if not _exists(model_folder(folder) / MANIFEST):
        recover(folder)
    if not _exists(model_folder(folder) / MANIFEST):
        raise UsageError(_not_a_run(folder))


def open_run(folder: Path) -> Run:
    """Open a run folder.

    Raises:
        UsageError: it is no run folder, or an exported model.
        DataError: a file is missing or altered.
    """
    model = open_model(folder)
    if isinstance(model, ExportedModel):
        raise UsageError(
            f"{folder}: an exported model, which translate, evaluate, compare and serve take; "
            "here, name the run that it was exported from"
        )
    return model


def open_run_between(src_lang: str, tgt_lang: str, folder: Path, *, asked_by: str) -> Run:
    """Open the run in `folder`, which has to translate from `src_lang` to `tgt_lang`.

    The message of a `UsageError` begins with `asked_by`, a flag or a key.
    """
    run = open_run(folder)
    found = run.config.data
    if (found.src_lang, found.tgt_lang) != (src_lang, tgt_lang):
        raise UsageError(
            f"{asked_by}: {folder} translates from {found.src_lang} to {found.tgt_lang}; "
            f"a run from {src_lang} to {tgt_lang} is needed"
        )
    return run


def open_runs(folders: Sequence[Path]) -> list[Run]:
    """Open runs that work together as an ensemble: they have one tokenizer."""
    runs = [open_run(folder) for folder in folders]
    _check_ensemble(runs)
    return runs


def _check_ensemble(runs: Sequence[Run]) -> None:
    if not runs:
        raise UsageError("no run is named; name one at least")
    first = runs[0]
    for other in runs[1:]:
        if other.tokenizer_hashes != first.tokenizer_hashes:
            raise UsageError(
                f"{other.folder}: its vocabulary is not that of {first.folder}; only runs of the "
                "same tokenizer can translate together"
            )


def models_named(folders: Sequence[Path]) -> Sequence[Path]:
    """`folders`, or if there are none, the model that comes along.

    Raises:
        UsageError: nothing is named, but there are runs.
    """
    if folders:
        return folders
    runs = sorted(str(path.parent) for path in Path("runs").glob(f"[!.]*/{MANIFEST}"))
    if runs:
        raise UsageError(f"no run is named; found: {', '.join(runs)}")
    log.info(
        "no run is named, and none is in runs/: %s translates, which knows German captions of "
        "photographs and little else",
        READY_MODEL,
    )
    return [Path(READY_MODEL)]


def open_models(folders: Sequence[Path]) -> list[Run] | list[ExportedModel]:
    """Open runs as an ensemble, or one exported model."""
    runs = []
    for folder in folders:
        model = open_model(folder)
        if isinstance(model, Run):
            runs.append(model)
        elif len(folders) == 1:
            return [model]
        else:
            raise UsageError(
                f"{folder}: an exported model translates alone; an ensemble needs the runs "
                "themselves"
            )
    _check_ensemble(runs)
    return runs


def runs_trained_on(prepared: Path, *, among: Path = Path("runs")) -> list[Path]:
    """The runs in the folder `among` that were trained on the prepared data in `prepared`."""
    found = []
    for path in sorted(among.glob(f"[!.]*/{MANIFEST}")):
        with suppress(DataError, ValidationError):
            manifest = RunManifest.model_validate(read_json(path))
            if Path(manifest.prepared.folder).resolve() == prepared.resolve():
                found.append(path.parent)
    return found


def run_with_tokenizer(config: Config) -> Run | None:
    """The run that `tokenizer.from_run` names, if any; its tokenizer has to suit `config`.

    Joint subwords of other languages are used, with a warning.

    Raises:
        ConfigError: it is of another kind, or a side's entries are of another language.
        UsageError: there is no such run.
    """
    if config.tokenizer.from_run is None:
        return None
    run = open_run(config.tokenizer.from_run)
    is_joint = config.tokenizer.joint and config.tokenizer.kind != "spacy"
    keys = TOKENIZER_KEYS if is_joint else TOKENIZER_KEYS + LANGUAGE_KEYS
    changed = differences(config, run.config)
    different = [
        f"{key} is {json.dumps(wanted)}, there {json.dumps(found)}"
        for key, (wanted, found) in changed.items()
        if key in keys
    ]
    if different:
        raise ConfigError(
            f"tokenizer.from_run: the tokenizer of {run.folder} does not suit this config: "
            f"{'; '.join(different)}; write the same, or learn a tokenizer without from_run"
        )
    if any(key in changed for key in LANGUAGE_KEYS):
        log.warning(
            "%s translates from %s to %s, and this config is from %s to %s: what it knows will "
            "help little",
            run.folder,
            run.config.data.src_lang,
            run.config.data.tgt_lang,
            config.data.src_lang,
            config.data.tgt_lang,
        )
    return run


def open_prepared_of(
    run: Run | ExportedModel, folder: Path | None = None, *, otherwise: str = ""
) -> Prepared:
    """The prepared data on which `run` was trained, in `folder` if they have moved.

    `otherwise` is added to the error for missing data; it tells users how to do without them.

    Raises:
        DataError: the data are missing, or are not those of `run`.
    """
    place = folder or Path(run.prepared.folder)
    try:
        prepared = open_prepared(place)
    except (PreparedDataError, OSError) as error:
        raise DataError(
            f"{error}; say with --data DIR where the data that {run.folder} was trained on "
            f"are{otherwise}"
        ) from error
    if prepared.sha256 != run.prepared.sha256:
        raise DataError(
            f"{place}: not the data that {run.folder} was trained on (prepared anew since?); "
            "name the right folder with --data DIR"
        )
    return prepared


# What people name in place of a run


def _exists(path: Path) -> bool:
    """`path.exists()` also of text that is too long for a name, which people forget --text for."""
    try:
        return path.exists()
    except OSError:
        return False


def _not_a_run(folder: Path) -> str:
    """What to name instead of `folder`, which has no manifest."""
    near = sorted(str(path.parent) for path in folder.parent.glob(f"[!.]*/{MANIFEST}"))
    hint = f"found: {', '.join(near)}" if near else f"{command_line('train', 'CONFIG')} makes one"
    what = f"not a run folder (it has no {MANIFEST})" if _exists(folder) else "no such run folder"
    return f"{folder}: {what}; {hint}"
