"""The command line: each verb a thin shell over its stage.

Owns flags and what is printed; every piece of work is a function of `mt_cli.stages`, imported when
its command runs, so that `--help` loads neither torch nor spaCy.
"""

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from mt_cli import __version__
from mt_cli.config import load_config
from mt_cli.errors import CheckFailedError, UsageError
from mt_cli.flags import (
    BackendFlag,
    BatchSize,
    Checkpoint,
    ConfigPath,
    DeviceFlag,
    Json,
    PrecisionFlag,
    Quiet,
    RunPath,
    Settings,
    Threads,
    Verbose,
)
from mt_cli.terminal import exit_codes, print_json, print_lines, set_up_logging

app = typer.Typer(
    name="mt-cli",
    help="From nothing to a scored German→English translation model: prepare, train, evaluate, translate.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print_lines(f"mt-cli {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
@exit_codes
def prepare(
    config: ConfigPath,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="Folder that holds the corpus files already.")
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Use no network.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Prepare again though nothing has changed.")] = False,
    workers: Annotated[int, typer.Option("--workers", min=0, help="Processes; 0 chooses by size.")] = 0,
    settings: Settings = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Get a corpus, clean and tokenise it, build vocabularies, write encoded splits."""
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    loaded = load_config(config, settings or ())
    from mt_cli.stages.prepare import prepare as run_stage

    result = run_stage(
        loaded,
        out=_prepared_dir(config),
        config_path=config,
        source=source,
        offline=offline,
        force=force,
        workers=workers,
    )
    if as_json:
        print_json({"folder": str(result.folder), "is_new": result.is_new, "report": result.report.as_json()})
    else:
        print_lines(str(result.folder))


@app.command()
@exit_codes
def train(
    config: ConfigPath,
    run: Annotated[
        Path | None, typer.Option("--run", metavar="DIR", help="Run folder; runs/<config name>.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an existing run.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing run.")] = False,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Prepared folder; data/prepared/<config name>."),
    ] = None,
    settings: Settings = None,
    device: DeviceFlag = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Seed of everything random.")] = None,
    max_steps: Annotated[int | None, typer.Option("--max-steps", min=1, help="Updates to end after.")] = None,
    time_limit: Annotated[
        str | None, typer.Option("--time-limit", metavar="TIME", help="Stop, saved, after 90s, 10m or 2h.")
    ] = None,
    threads: Threads = None,
    precision: PrecisionFlag = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train a model on prepared data, keeping its best and its last checkpoint."""
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    if resume and overwrite:
        raise UsageError("--resume goes on with a run and --overwrite replaces it; give one of them")
    limit_s = None if time_limit is None else parse_duration(time_limit)
    flags = {
        "runtime.device": device,
        "runtime.seed": seed,
        "runtime.threads": threads,
        "runtime.precision": precision,
        "training.max_steps": max_steps,
    }
    given = [f"{key}={json.dumps(value)}" for key, value in flags.items() if value is not None]
    loaded = load_config(config, [*(settings or ()), *given])
    from mt_cli.stages.train import train as run_stage

    result = run_stage(
        loaded,
        run_dir=run or Path("runs") / config.stem,
        prepared_dir=data or _prepared_dir(config),
        resume=resume,
        overwrite=overwrite,
        time_limit_s=limit_s,
    )
    if as_json:
        print_json(result.as_json())
    else:
        print_lines(str(result.folder))


@app.command()
@exit_codes
def evaluate(
    run: RunPath,
    split: Annotated[
        list[str] | None,
        typer.Option("--split", metavar="NAME", help="Split to score; every test split by default."),
    ] = None,
    src: Annotated[
        Path | None, typer.Option("--src", metavar="FILE", help="Sources of your own, with --ref.")
    ] = None,
    ref: Annotated[
        Path | None, typer.Option("--ref", metavar="FILE", help="Their references, line by line.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Prepared folder, if it has moved.")
    ] = None,
    backend: BackendFlag = "scratch",
    checkpoint: Checkpoint = "best",
    batch_size: BatchSize = None,
    device: DeviceFlag = None,
    threads: Threads = None,
    precision: PrecisionFlag = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Translate test sets and score them with sacreBLEU."""
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    from mt_cli.stages.evaluate import evaluate as run_stage
    from mt_cli.translator import Translator

    translator = Translator.load(
        run,
        checkpoint=checkpoint,
        backend=backend,
        batch_size=batch_size,
        device=device or "auto",
        precision=precision or "auto",
        threads=threads or 0,
    )
    variant = [part for part, usual in ((backend, "scratch"), (checkpoint, "best")) if part != usual]
    scores = run_stage(
        run,
        translator,
        decoding="-".join(["greedy", *variant]),
        splits=split or (),
        src_path=src,
        ref_path=ref,
        data_dir=data,
    )
    if as_json:
        print_json({"splits": {name: each.as_json() for name, each in scores.items()}})
    else:
        for name, each in scores.items():
            print_lines(f"{name}  {each.bleu}\n{name}  {each.chrf}")


@app.command()
@exit_codes
def translate(
    run: RunPath,
    source: Annotated[
        str, typer.Option("-i", "--input", metavar="FILE", help="Lines to translate; - is stdin.")
    ] = "-",
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="Where the translations go; - is stdout.")
    ] = "-",
    text: Annotated[str | None, typer.Option("--text", help="Text to translate in place of a file.")] = None,
    backend: BackendFlag = "scratch",
    checkpoint: Checkpoint = "best",
    batch_size: BatchSize = None,
    device: DeviceFlag = None,
    threads: Threads = None,
    precision: PrecisionFlag = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Translate German lines into English, one line for one line."""
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    from mt_cli.stages.translate import open_source, open_target, translate_stream
    from mt_cli.translator import Translator

    with open_source(source, text=text) as lines_in, open_target(output) as lines_out:
        translator = Translator.load(
            run,
            checkpoint=checkpoint,
            backend=backend,
            batch_size=batch_size,
            device=device or "auto",
            precision=precision or "auto",
            threads=threads or 0,
        )

        def write(sources: list[str], translations: list[str]) -> None:
            pairs = zip(sources, translations, strict=True)
            texts = [json.dumps({"source": s, "translation": t}, ensure_ascii=False) for s, t in pairs]
            lines_out.write("".join(f"{line}\n" for line in (texts if as_json else translations)).encode())
            lines_out.flush()

        translate_stream(translator, lines_in, write)


@app.command()
@exit_codes
def doctor(
    run: RunPath,
    checkpoint: Checkpoint = "best",
    slow: Annotated[
        bool, typer.Option("--slow", help="Also overfit eight pairs, from fresh weights.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Check that a trained model computes what a Transformer should: masks, cache, both backends."""
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    from mt_cli.stages.doctor import examine_run

    checks = examine_run(run, checkpoint=checkpoint, is_slow=slow)
    if as_json:
        print_json({"checks": [check.as_json() for check in checks]})
    else:
        print_lines("\n".join(str(check) for check in checks))
    failed = [check.name for check in checks if not check.passed]
    if failed:
        raise CheckFailedError(f"{run}: {len(failed)} of {len(checks)} checks failed: {'; '.join(failed)}")


def parse_duration(text: str) -> float:
    """Seconds of `90`, `90s`, `10m` or `1.5h`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if match is None:
        raise UsageError(f"--time-limit {text!r}: expected a time such as 90s, 10m or 2h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _prepared_dir(config: Path) -> Path:
    return Path("data") / "prepared" / config.stem


@exit_codes
def main() -> None:
    """Run the command line."""
    app()
