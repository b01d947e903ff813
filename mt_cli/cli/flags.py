"""Flags that several commands share, once each, so that a flag means the same in every command.

A group is a dataclass; a command takes it as one parameter, and `expanded` shows Typer its flags.
"""

import functools
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from annotated_types import Ge

from mt_cli.config.load import command_line, config_name, parse_setting
from mt_cli.config.schema import BACKENDS, Column, DecodingConfig, Device, Precision
from mt_cli.errors import ConfigError, UsageError

if TYPE_CHECKING:  # torch is imported when something is translated
    from mt_cli.evaluation.test_sets import EvalChoice
    from mt_cli.translation.options import DecodingOptions

T = TypeVar("T")
EXAMPLE_SETTING = "decoding.min_len=3"

ConfigPath = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG",
        help="TOML file, a run folder for its config, or a bundled config's name such as sample.",
    ),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, such as runs/sample.")]
RunPaths = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...", help="A run folder, such as runs/sample; several runs form an ensemble."
    ),
]
ModelPaths = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...",
        help="A run folder such as runs/sample, or an exported model; several runs: an ensemble.",
    ),
]
OptionalModelPaths = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[RUN]...",
        help="A run folder such as runs/sample, an exported model, or multi30k-tiny, the model "
        "that comes along; several runs form an ensemble.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="SECTION.KEY=VALUE", help="Overrides a value of the config file."
    ),
]
DeviceFlag = Annotated[
    Device | None, typer.Option("--device", help="auto takes a GPU if there is one.")
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", min=1, metavar="N", help="CPU threads; by default the config's, or one a core."
    ),
]
Checkpoint = Annotated[
    str,
    typer.Option(
        "--checkpoint", metavar="NAME", help="best, last, or a folder in RUN/checkpoints."
    ),
]
PreparedDir = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Prepared folder, if it has moved."),
]


@dataclass(frozen=True)
class OutputFlags:
    """How a command talks."""

    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout in place of text.")] = (
        False
    )
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show only warnings and errors on stderr.")
    ] = False
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Details on stderr.")] = False


@dataclass(frozen=True)
class TestSetFlags:
    """Which test sets are translated."""

    split: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Split to score; every test split by default."),
    ] = None
    src: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Sources of your own, with --ref.")
    ] = None
    ref: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Their references, line by line.")
    ] = None
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Prepared folder, if it has moved, or that of Multi30k's own files."
        ),
    ] = None

    noise: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KINDS",
            help="Score each test set also with noise in its sources: all, or some of lower, "
            "capitals, title, accents, typos, punctuation, mixed, join, with commas.",
        ),
    ] = None

    def choice(self) -> "EvalChoice":
        """The choice that these flags give."""
        from mt_cli.evaluation.test_sets import EvalChoice

        noise = ",".join(self.noise or ()) or ()
        return EvalChoice.of(self.split or (), self.src, self.ref, self.data, noise)


def _search_option(key: str, metavar: str | None = None) -> Any:  # noqa: ANN401 — Typer's own type
    """The flag of a key of `[decoding]`; its help is the first sentence of the key's docstring."""
    field = DecodingConfig.model_fields[key]
    text = " ".join((field.description or "").split())
    sentence = re.split(r"\. (?=[A-Z])", text)[0].rstrip(".")
    least = next((rule.ge for rule in field.metadata if isinstance(rule, Ge)), None)
    assert least is None or isinstance(least, int | float)
    return typer.Option(metavar=metavar, min=least, help=f"{sentence}.")


@dataclass(frozen=True)
class SearchFlags:
    """What a search looks for; `--set` gives the keys of `[decoding]` that have no flag."""

    beam_size: Annotated[int | None, _search_option("beam_size", "N")] = None
    length_penalty: Annotated[float | None, _search_option("length_penalty", "A")] = None
    no_repeat_ngram: Annotated[int | None, _search_option("no_repeat_ngram", "N")] = None
    replace_unk: Annotated[bool | None, _search_option("replace_unk")] = None
    decoding_settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="decoding.KEY=VALUE", help="Any other key of the config's [decoding]."
        ),
    ] = None

    def settings(self) -> dict[str, object]:
        """The keys of `[decoding]` that `--set` gives."""
        search: dict[str, object] = {}
        for setting in self.decoding_settings or ():
            path, value = parse_setting(setting, example=EXAMPLE_SETTING)
            if path[:-1] != ("decoding",):
                raise ConfigError(
                    f"--set {setting!r}: expected decoding.KEY=VALUE, such as {EXAMPLE_SETTING}"
                )
            search[path[-1]] = value
        return search


@dataclass(frozen=True)
class ModelFlags:
    """Which checkpoint computes, and how."""

    batch_size: Annotated[int | None, _search_option("batch_size", "N")] = None
    precision: Annotated[Precision | None, _search_option("precision")] = None
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(BACKENDS),
            help="Layers to decode with; by default those that the model was trained with.",
        ),
    ] = None
    checkpoint: Checkpoint = "best"
    device: DeviceFlag = None
    threads: Threads = None

    def options(self) -> "DecodingOptions":
        """The options that these flags give."""
        return self._options({})

    def _options(self, settings: Mapping[str, object]) -> "DecodingOptions":
        """These options and the keys of `[decoding]` in `settings`."""
        from mt_cli.translation.options import DecodingOptions

        search = dict(settings)
        for key in DecodingConfig.model_fields:
            value = getattr(self, key, None)
            if value is not None:
                search[key] = value
        return DecodingOptions(
            checkpoint=self.checkpoint,
            backend=self.backend,
            device=self.device or "auto",
            threads=self.threads or 0,
            search=search,
            owns_process=True,
        )


@dataclass(frozen=True)
class DecodingFlags(ModelFlags, SearchFlags):  # so the help begins with the search
    """How runs are decoded."""

    def options(self) -> "DecodingOptions":
        """The options that these flags give."""
        return self._options(self.settings())


@dataclass(frozen=True)
class RerankingFlags:
    """How another run chooses among translations."""

    rerank_with: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="A run of the other direction that chooses among the beams; "
            "--beam-size is then 20 by default.",
        ),
    ] = None
    rerank_weights: Annotated[
        str | None,
        typer.Option(
            metavar="LAMBDA,MU",
            help="For --rerank-with: weights of its log-probability and of each token. "
            "[default: 0.3,0.25]",
        ),
    ] = None

    def added_to(self, options: "DecodingOptions") -> "DecodingOptions":
        """`options` with the reranking that these flags ask for."""
        if self.rerank_with is None:
            if self.rerank_weights is not None:
                raise UsageError("--rerank-weights is an option of --rerank-with; give that too")
            return options
        from mt_cli.translation.options import Reranking

        search = {"beam_size": 20, **options.search}
        if search["beam_size"] == 1:
            raise UsageError("--rerank-with chooses among beams; --beam-size has to be 2 or more")
        reranking = Reranking(self.rerank_with)
        if self.rerank_weights is not None:
            try:
                reverse, length = (float(each) for each in self.rerank_weights.split(","))
            except ValueError:
                reverse = length = math.nan
            if not (math.isfinite(reverse) and math.isfinite(length)):
                raise UsageError(
                    f"--rerank-weights {self.rerank_weights!r}: expected two numbers, LAMBDA,MU, "
                    "such as 0.3,0.25"
                )
            reranking = Reranking(self.rerank_with, reverse, length)
        return replace(options, search=search, reranking=reranking)


def expanded(command: Callable[..., T]) -> Callable[..., T]:
    """`command` with the flags of each group in place of the parameter that takes the group."""
    own = inspect.signature(command).parameters
    groups = {}
    flags = []
    for name, parameter in own.items():
        if isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation):
            groups[name] = inspect.signature(parameter.annotation).parameters
        else:
            flags.append(parameter)
    for group in groups.values():  # after the command's own in its help
        flags += group.values()
    parameters = [flag.replace(kind=inspect.Parameter.KEYWORD_ONLY) for flag in flags]

    @functools.wraps(command)
    def call(**given: object) -> T:
        for name, group in groups.items():
            values = {flag: given.pop(flag) for flag in group}
            given[name] = own[name].annotation(**values)
        return command(**given)

    del call.__wrapped__  # or Typer would look at the parameters of `command`
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return call


def parse_column(text: str, flag: str) -> Column:
    """A column as a command line names it: its number from 1, or its name."""
    column = int(text) if text.isdecimal() and len(text) < 10 else text
    if not column or not text.isprintable():
        raise UsageError(f"{flag}: expected a column's number from 1, or its name, found {text!r}")
    return column


def prepared_dir(config: Path) -> Path:
    """Where the data of the config file `config` lie unless `--data` says otherwise."""
    return Path("data") / "prepared" / config_name(config)


def prepare_command(config: Path, settings: Sequence[str] | None, *flags: object) -> str:
    """The command that prepares what `config` and `settings` ask for."""
    return command_line("prepare", config, *setting_flags(settings), *flags)


def setting_flags(settings: Sequence[str] | None) -> list[str]:
    """The words that give `settings` once more."""
    return [word for setting in settings or () for word in ("--set", setting)]
