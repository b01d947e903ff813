"""Options of a `Translator`, checked like the keys of a config.

`mt_cli.config` says what they mean and which values are allowed; here, complaints are put in Python's words.
"""

import difflib
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TypedDict

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mt_cli.config import Config, DecodingConfig, Precision
from mt_cli.config.complaints import demand
from mt_cli.decoding.sampling import Sampling
from mt_cli.errors import Option, UsageError, WrongTypeError


class SearchOptions(TypedDict, total=False):
    """Keys of `[decoding]`; one that is absent or None is the run's own."""

    beam_size: int | None
    length_penalty: float | None
    no_repeat_ngram: int | None
    min_len: int | None
    replace_unk: bool | None
    batch_size: int | None
    precision: Precision | None


OTHER_OPTIONS = ("backend", "checkpoint", "device", "sampling", "seed", "threads")
"""Options of `Translator.load` that are no keys of `[decoding]`."""


def check_options(
    own: DecodingConfig, search: Mapping[str, object], *, backend: object, **runtime: object
) -> DecodingConfig:
    """The run's `own` decoding settings with those of `search` that are not None in their place.

    `runtime` are keys of `[runtime]`, which are checked too, as is `backend`, which may be None.

    Raises:
        UsageError: naming every wrong option; a `WrongTypeError` if none is of the right type.
    """
    known = DecodingConfig.model_fields
    given = {name: value for name, value in search.items() if value is not None or name not in known}
    tables = {
        "decoding": {**own.model_dump(), **given},
        "model": {} if backend is None else {"backend": backend},
        "runtime": runtime,
    }
    try:
        return Config.model_validate(tables).decoding
    except ValidationError as error:
        raise _refusal(error.errors()) from None  # in Python's words already


def run_folders(run: object) -> list[Path]:
    """The folder or folders that `run` names.

    Raises:
        WrongTypeError: it is neither a path nor a list of them.
    """
    runs = [run] if isinstance(run, str | PathLike) or not isinstance(run, Iterable) else list(run)
    folders = [Path(each) for each in runs if isinstance(each, str | PathLike)]
    if len(folders) != len(runs):
        raise WrongTypeError(f"run: expected a path or a list of paths, found {run!r}")
    return folders


def checkpoint_of_each(checkpoint: object, *, num_runs: int) -> list[str]:
    """The name of each run's checkpoint, where `checkpoint` is one name for all or a list of them.

    Raises:
        UsageError: it is neither, or the list is not as long as that of the runs.
    """
    if isinstance(checkpoint, str):
        return [checkpoint] * num_runs
    given = list(checkpoint) if isinstance(checkpoint, Iterable) else [checkpoint]
    names = [name for name in given if isinstance(name, str)]
    if len(names) != len(given):
        raise WrongTypeError(f"checkpoint: expected a name or a list of names, found {checkpoint!r}")
    if len(names) != num_runs:
        raise UsageError(f"checkpoint: expected one name for each run, found {len(names)} for {num_runs}")
    return names


def check_sampling(sampling: object, search: Mapping[str, object]) -> None:
    """Complain about a `sampling` that is none, or that a beam contradicts.

    Raises:
        UsageError: it is no `Sampling`, or `search` asks for a beam beside it.
    """
    if sampling is None:
        return
    if not isinstance(sampling, Sampling):
        raise WrongTypeError(f"sampling: expected a Sampling, found {sampling!r}")
    if search.get("beam_size") not in (None, 1):
        raise UsageError(
            Option("sampling"),
            " draws translations and ",
            Option("beam_size"),
            " searches for them; give one",
        )


def _refusal(details: list[ErrorDetails]) -> UsageError:
    complaints = [part for detail in details for part in ("\n", *_complaint(detail))][1:]
    is_about_types = all(
        detail["type"].endswith("_type") or detail["type"] == "extra_forbidden" for detail in details
    )
    return (WrongTypeError if is_about_types else UsageError)(*complaints)


def _complaint(detail: ErrorDetails) -> tuple[str | Option, ...]:
    """What is wrong, as parts of an error."""
    name = str(detail["loc"][-1])
    if detail["type"] == "extra_forbidden":
        known = sorted([*DecodingConfig.model_fields, *OTHER_OPTIONS])
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        return (f"unknown option {name}; {hint}",)
    return (Option(name), f": {demand(detail)}, found {detail['input']!r}")


def search_name(config: DecodingConfig, *, knows_all_words: bool, sampling: str | None = None) -> str:
    """How translations are searched for, in a word that can name a folder.

    A vocabulary that `knows_all_words` never says `<unk>`. `sampling` names what takes the search's place.
    """
    if sampling is not None:
        name = sampling
    elif config.beam_size == 1:
        name = "greedy"
    else:
        name = f"beam{config.beam_size}-alpha{config.length_penalty:g}"
    if config.no_repeat_ngram:
        name += f"-norepeat{config.no_repeat_ngram}"
    if not knows_all_words and not config.replace_unk:
        name += "-no-replace-unk"
    if config.precision != "fp32":
        name += f"-{config.precision}"
    return name
