"""Flags that several commands share, one alias each, so that a flag means the same in every command.

Knows types and help texts, none of the commands.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from mt_cli.commands.completion import (
    complete_checkpoints,
    complete_configs,
    complete_runs,
    complete_settings,
    complete_splits,
)
from mt_cli.config import Backend, Device, Precision, PrecisionChoice, config_name
from mt_cli.errors import command_line

AttentionKind = Literal["encoder", "decoder", "cross"]

ConfigPath = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG",
        help="TOML file, a run folder for its config, or the name of one of mt-cli's own, such as sample.",
        autocompletion=complete_configs,
    ),
]
RunPath = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="A run folder, such as runs/sample.", autocompletion=complete_runs),
]
RunPaths = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...",
        help="A run folder, such as runs/sample; several runs form an ensemble.",
        autocompletion=complete_runs,
    ),
]
ModelPaths = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...",
        help="A run folder, such as runs/sample, or an exported model; several runs form an ensemble.",
        autocompletion=complete_runs,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="Overrides a value of the config file.",
        autocompletion=complete_settings,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout in place of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show only warnings and errors on stderr.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Details on stderr.")]
DeviceFlag = Annotated[Device | None, typer.Option("--device", help="auto takes a GPU if there is one.")]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, help="CPU threads; by default the config's, or one a core.")
]
TrainingPrecision = Annotated[
    PrecisionChoice | None,
    typer.Option("--precision", help="Precision of training; auto is bf16 where that is faster."),
]
DecodingPrecision = Annotated[
    Precision | None,
    typer.Option(
        "--precision",
        help="Precision of decoding; the run's own by default. bf16 may differ with the batch.",
    ),
]
BackendFlag = Annotated[
    Backend,
    typer.Option("--backend", help="Layers to decode with: our cached ones, or nn.Transformer (slow)."),
]
Checkpoint = Annotated[
    str,
    typer.Option(
        "--checkpoint",
        metavar="NAME",
        help="best, last, or a folder in RUN/checkpoints.",
        autocompletion=complete_checkpoints,
    ),
]
PreparedDir = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Prepared folder, if it has moved.")
]
SplitNames = Annotated[
    list[str] | None,
    typer.Option(
        "--split",
        metavar="NAME",
        help="Split to score; every test split by default.",
        autocompletion=complete_splits,
    ),
]
OwnSources = Annotated[
    Path | None, typer.Option("--src", metavar="FILE", help="Sources of your own, with --ref.")
]
OwnReferences = Annotated[
    Path | None, typer.Option("--ref", metavar="FILE", help="Their references, line by line.")
]
AttentionFile = Annotated[
    str | None,
    typer.Option(
        "--attention",
        metavar="FILE",
        help="Draw who attends to whom in --text: .png, .svg or .json; - is the terminal.",
    ),
]
AttentionOf = Annotated[
    AttentionKind | None,
    typer.Option("--attention-of", help="Source to source, target to target, or target to source (cross)."),
]
LayerFlag = Annotated[
    int | None, typer.Option("--layer", min=1, help="Layer that --attention shows; by default the last.")
]
HeadFlag = Annotated[
    str | None,
    typer.Option("--head", metavar="N|mean|all", help="Head that --attention shows; by default their mean."),
]
# As `translate` took them before `inspect` did; they go with the next release.
HiddenAttentionFile = Annotated[str | None, typer.Option("--attention", hidden=True)]
HiddenAttentionOf = Annotated[AttentionKind | None, typer.Option("--attention-of", hidden=True)]
HiddenLayer = Annotated[int | None, typer.Option("--layer", min=1, hidden=True)]
HiddenHead = Annotated[str | None, typer.Option("--head", hidden=True)]
BeamSize = Annotated[
    int | None, typer.Option("--beam-size", min=1, help="Hypotheses kept of each sentence; 1 is greedy.")
]
LengthPenalty = Annotated[
    float | None,
    typer.Option(
        "--length-penalty",
        min=0,
        max=10,
        help="Alpha of Wu et al. (2016); higher favours longer translations.",
    ),
]
NoRepeatNgram = Annotated[
    int | None,
    typer.Option(
        "--no-repeat-ngram", min=0, metavar="N", help="Never repeat a sequence of N tokens; 0 is no limit."
    ),
]
ReplaceUnk = Annotated[
    bool | None,
    typer.Option(
        "--replace-unk/--no-replace-unk", help="Put the source's word where the vocabulary has none."
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option("--batch-size", min=0, help="Sentences decoded together; 0 is as many as suit the device."),
]


def prepared_dir(config: Path) -> Path:
    """Where the data of the config file `config` lie unless `--data` says otherwise."""
    return Path("data") / "prepared" / config_name(config)


def prepare_command(config: Path, settings: Sequence[str] | None, *flags: object) -> str:
    """The command that prepares what `config` and `settings` ask for."""
    return command_line("prepare", config, *setting_flags(settings), *flags)


def setting_flags(settings: Sequence[str] | None) -> list[str]:
    """The words that give `settings` once more."""
    return [word for setting in settings or () for word in ("--set", setting)]
