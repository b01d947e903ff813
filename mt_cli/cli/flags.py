"""Arguments and flags that several commands share.

Most flags set a key of the config, like `--set`: they are in `DECODING_FLAGS` and `TRAINING_FLAGS`,
and their help is the key's docstring.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from mt_cli.config.load import command_line, config_name, parse_setting
from mt_cli.config.schema import BACKENDS, Config
from mt_cli.errors import UsageError

if TYPE_CHECKING:  # torch is imported only when something is translated
    from mt_cli.evaluation.test_sets import EvalChoice
    from mt_cli.translation.options import DecodingOptions

ConfigPath = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG",
        help="TOML file, run folder (to use its config), or name of a bundled config (sample).",
    ),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, such as runs/sample.")]
ModelPaths = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...",
        help="Run folder or exported model; several runs form an ensemble.",
    ),
]
OptionalModelPaths = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[RUN]...",
        help="Run folder, exported model, or de-en, the bundled model; several runs form an "
        "ensemble.",
    ),
]
Checkpoint = Annotated[
    str,
    typer.Option("--checkpoint", metavar="NAME", help="best, last, or a checkpoint folder's name."),
]
PreparedDir = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Prepared folder, if it has moved."),
]
Splits = Annotated[
    list[str] | None,
    typer.Option("--split", metavar="NAME", help="Split to score; default: every test split."),
]
Sources = Annotated[
    Path | None, typer.Option("--src", metavar="FILE", help="Your own source file; needs --ref.")
]
References = Annotated[
    list[Path] | None,
    typer.Option(
        "--ref", metavar="FILE", help="References, line by line; repeat it for more references."
    ),
]
DataOfSplits = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Prepared folder, if it has moved, or the folder of Multi30k's original files.",
    ),
]
Noise = Annotated[
    list[str] | None,
    typer.Option(
        "--noise",
        metavar="KINDS",
        help="Also score with noise in the sources: all, or a comma-separated list of lower, "
        "capitals, title, accents, typos, punctuation, numbers, mixed, join.",
    ),
]


def test_set_choice(
    split: Sequence[str] | None,
    src: Path | None,
    ref: Sequence[Path] | None,
    data: Path | None,
    noise: Sequence[str] | None,
) -> "EvalChoice":
    """The test sets that these flags choose."""
    from mt_cli.evaluation.test_sets import EvalChoice

    return EvalChoice.of(split or (), src, ref or (), data, ",".join(noise or ()) or ())


# Flags for keys of the config


@dataclass(frozen=True)
class Flag:
    """A flag that sets a key of the config."""

    key: str
    """The key in the config."""
    metavar: str = ""
    """Placeholder for the value in the help."""
    value: str | None = None
    """For a switch: the value that it sets."""
    is_path: bool = False
    is_rare: bool = False
    """Whether the help does not show it, only docs/commands.md."""


MODEL_FLAGS = {
    "--batch-size": Flag("decoding.batch_size", "N"),
    "--precision": Flag("decoding.precision", "fp32|bf16|fp16"),
    "--backend": Flag("model.backend", "|".join(BACKENDS)),
    "--device": Flag("runtime.device", "auto|cpu|cuda|mps"),
    "--threads": Flag("runtime.threads", "N"),
}
DECODING_FLAGS = {
    "--beam-size": Flag("decoding.beam_size", "N"),
    "--length-penalty": Flag("decoding.length_penalty", "A"),
    "--glossary": Flag("decoding.glossary", "FILE", is_path=True),
    **MODEL_FLAGS,
    "--no-repeat-ngram": Flag("decoding.no_repeat_ngram", "N", is_rare=True),
    "--replace-unk": Flag("decoding.replace_unk", value="true", is_rare=True),
    "--no-replace-unk": Flag("decoding.replace_unk", value="false", is_rare=True),
    "--sample": Flag("decoding.temperature", value="1.0", is_rare=True),
    "--temperature": Flag("decoding.temperature", "X", is_rare=True),
    "--top-k": Flag("decoding.top_k", "K", is_rare=True),
    "--top-p": Flag("decoding.top_p", "P", is_rare=True),
    "--seed": Flag("decoding.seed", "N", is_rare=True),
    "--rerank-with": Flag("decoding.rerank_with", "RUN", is_path=True, is_rare=True),
    "--rerank-weights": Flag("decoding.rerank_weights", "LAMBDA,MU", is_rare=True),
}
TRAINING_FLAGS = {
    "--init-from": Flag("training.init_from", "RUN", is_path=True),
    "--max-steps": Flag("training.max_steps", "N"),
    "--seed": Flag("runtime.seed", "N"),
    "--device": Flag("runtime.device", "auto|cpu|cuda|mps"),
    "--threads": Flag("runtime.threads", "N"),
    "--precision": Flag("runtime.precision", "auto|fp32|bf16|fp16"),
}
FlagTable = Mapping[str, Flag]


def parameters_of(table: FlagTable) -> list[Parameter]:
    """The flags of `table` as parameters for Typer."""
    parameters = []
    for name, flag in table.items():
        option = typer.Option(
            name, metavar=flag.metavar or None, help=_help_of(flag.key), hidden=flag.is_rare
        )
        kind: object = str | None if flag.value is None else bool
        parameters.append(
            Parameter(
                name.strip("-").replace("-", "_"),
                Parameter.KEYWORD_ONLY,
                default=None if flag.value is None else False,
                annotation=Annotated[kind, option],
            )
        )
    return parameters


def setting_parameter(metavar: str) -> Parameter:
    """The parameter for `--set`."""
    option = typer.Option("--set", metavar=metavar, help="Override a key of the config.")
    annotation = Annotated[list[str] | None, option]
    return Parameter("settings", Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def settings_given(given: dict[str, object], table: FlagTable) -> list[str]:
    """The settings from `--set` and from the flags of `table`, which are removed from `given`.

    A flag takes precedence over `--set`.

    Raises:
        UsageError: `--set` or two switches set the same key twice.
    """
    settings: dict[str, str] = {}
    for name, flag in table.items():
        value = given.pop(name.strip("-").replace("-", "_"))
        key = flag.key
        if flag.value is not None:
            if value and key in settings:
                raise UsageError(f"{name} contradicts another flag for {key}; use only one of them")
            if value:
                settings[key] = f"{key}={flag.value}"
        elif value is not None:
            # Quote paths, so that one that looks like a number stays text.
            text = json.dumps(value, ensure_ascii=False) if flag.is_path else value
            settings[key] = f"{key}={text}"
    of_set: dict[str, str] = {}
    for setting in cast("list[str] | None", given["settings"]) or ():
        key = ".".join(parse_setting(setting)[0])
        if key in of_set:
            raise UsageError(f"--set {key} is given twice: {of_set[key]!r} and {setting!r}")
        of_set[key] = setting
    return [*(each for key, each in of_set.items() if key not in settings), *settings.values()]


def _help_of(path: str) -> str:
    """The first sentence of a key's docstring."""
    section, key = path.split(".")
    model = Config.model_fields[section].annotation
    text = " ".join((model.model_fields[key].description or "").split())  # type: ignore[union-attr]
    return re.split(r"\. (?=[A-Z])", text)[0].rstrip(".") + "."


def decoding_options(settings: Sequence[str], checkpoint: str) -> "DecodingOptions":
    """The decoding options for `settings` from `--set` and the flags above."""
    from mt_cli.translation.options import DecodingOptions

    search: dict[str, object] = {}
    others: dict[str, Any] = {}
    for setting in settings:
        (*section, key), value = parse_setting(setting)
        if section == ["decoding"]:
            search[key] = value
        elif f"{section[0]}.{key}" in ("model.backend", "runtime.device", "runtime.threads"):
            others[key] = value
        else:
            raise UsageError(f"--set {setting!r}: expected a key such as decoding.beam_size=5")
    return DecodingOptions(checkpoint, **others, search=search, owns_process=True)


def prepared_dir(config: Path) -> Path:
    """The default folder of a config's prepared data."""
    return Path("data") / "prepared" / config_name(config)


def prepare_command(config: Path, settings: Sequence[str], *flags: object) -> str:
    """The command line that prepares data for `config` and `settings`."""
    of_data = [each for each in settings if each.startswith(("data.", "tokenizer."))]
    return command_line("prepare", config, *setting_flags(of_data), *flags)


def setting_flags(settings: Sequence[str]) -> list[str]:
    """The `--set` flags for `settings`."""
    return [word for setting in settings for word in ("--set", setting)]
