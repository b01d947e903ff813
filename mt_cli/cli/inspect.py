"""`mt-cli inspect`, `runs`, `doctor` and `export`."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import Checkpoint, OutputFlags, PreparedDir, RunPath, Threads
from mt_cli.config.schema import Device, ExportTarget, Precision, Quantization
from mt_cli.errors import CheckFailedError, UsageError
from mt_cli.machine.terminal import print_result, table_text, width_of

SENTENCE = "Ein Mann schläft auf einer Bank."


@command(
    app,
    "inspect runs/sample",
    "inspect runs/sample --shapes --level layer",
    "inspect runs/sample --attention maps.png --head all",
)
def inspect(
    run: RunPath,
    output: OutputFlags,
    shapes: Annotated[
        bool,
        typer.Option(
            "--shapes", help="Send a sentence through the model and show its tensors' shapes."
        ),
    ] = False,
    level: Annotated[
        Literal["model", "layer", "block", "head", "attention"] | None,
        typer.Option(help="Detail of --shapes; each level has those before it."),
    ] = None,
    masks: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw who may attend to whom, as .png or .svg."),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help=f"Sentence to look at; by default {SENTENCE!r}."),
    ] = None,
    attention: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Draw who attends to whom in --text: .png, .svg or .json; - is the terminal.",
        ),
    ] = None,
    attention_of: Annotated[
        Literal["encoder", "decoder", "cross"] | None,
        typer.Option(help="Source to source, target to target, or target to source (cross)."),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Layer that --attention shows; by default the last."),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="N|mean|all", help="Head that --attention shows; by default their mean."
        ),
    ] = None,
    checkpoint: Checkpoint = "best",
) -> None:
    """Show a run, or a sentence inside its model."""
    shows_maps = any(flag is not None for flag in (attention, attention_of, layer, head))
    is_drawn = shows_maps or masks is not None
    traces_shapes = shapes or level is not None or (text is not None and not is_drawn)
    width = width_of(sys.stdout)
    from mt_cli.evaluation.inspect import describe_run, draw_masks, facts_as_text, trace_as_text
    from mt_cli.model.inside import trace_shapes

    if not traces_shapes and not is_drawn:
        facts = describe_run(run, checkpoint=checkpoint)
        print_result(facts_as_text(facts, width=width), facts, as_json=output.as_json)
        return
    from mt_cli.translation.attention import ENDINGS, PICTURES, check_ending
    from mt_cli.translation.translator import Translator

    picture = None if attention in (None, "-") else Path(str(attention))
    for path, endings in ((masks, PICTURES), (picture, ENDINGS)):
        if path is not None:
            check_ending(path, endings)
    if picture is not None and masks is not None and picture.resolve() == masks.resolve():
        raise UsageError(f"{masks}: two flags name the same file; give two files")
    sentence = SENTENCE if text is None else text
    if "\n" in sentence:
        raise UsageError("one sentence is looked at; give one line with --text")
    translator = Translator.load(run, checkpoint=checkpoint, device="cpu")
    document: dict[str, object] = {}
    texts = []
    if masks is not None:
        draw_masks(masks, translator.teacher_force(sentence))
        document["masks"] = str(masks)
    if shows_maps:
        maps = translator.attention(sentence).maps(
            attention_of or "cross", layer=layer, head="mean" if head is None else head
        )
        document |= maps.as_json()
        if picture is not None:
            maps.write(picture)
        else:
            texts.append(maps.as_text(width=width))
    if traces_shapes:
        pair = translator.teacher_force(sentence)
        trace = trace_shapes(
            translator.model, pair.src_ids, pair.tgt_in, level=level or "attention"
        )
        document |= {"source": pair.source, "translation": pair.translation, **asdict(trace)}
        texts.append(trace_as_text(trace, pair, width=width))
    if output.as_json or texts:
        print_result("\n".join(texts), document, as_json=output.as_json)


@command(app, "runs", "runs experiments --sort bleu")
def runs(
    output: OutputFlags,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of run folders.")] = Path(
        "runs"
    ),
    sort: Annotated[
        Literal["name", "bleu", "val_bleu", "chrf", "num_parameters", "minutes", "state"],
        typer.Option(help="What the runs are sorted by; of scores, the best first."),
    ] = "name",
) -> None:
    """List all runs in a folder, with their scores.

    Also their sizes, times and states, and in what their configs differ.
    """
    from mt_cli.evaluation.overview import summarise_runs

    found = summarise_runs(folder, sort=sort)

    def shown(value: float | None, *, digits: int = 2) -> str:
        return "-" if value is None else f"{value:.{digits}f}"

    rows = [
        (
            each.folder.name,
            each.state,
            shown(each.val_bleu),
            shown(each.bleu),
            shown(each.chrf),
            f"{each.num_parameters / 1e6:.1f}M",
            shown(each.minutes, digits=1),
        )
        for each in found
    ]
    head = ("run", "state", "val BLEU", "test BLEU", "chrF2", "size", "minutes")
    lines = [table_text(head, rows, lefts=2)]
    if any(each.differs for each in found):
        lines += ["", "in the config, other than in most:"]
    for each in found:
        for key, value in each.differs.items():
            told = "not set" if value is None else json.dumps(value, ensure_ascii=False)
            lines.append(f"  {each.folder.name}  {key} = {told}")
    if any(each.evaluation for each in found):
        lines += ["", "test BLEU and chrF2 are the best of what was evaluated:"]
        lines += [f"  {each.folder.name}  {each.evaluation}" for each in found if each.evaluation]
    signatures = dict.fromkeys(signature for each in found for signature in each.signatures)
    lines += ["", *signatures] if signatures else []
    print_result("\n".join(lines), {"runs": found}, as_json=output.as_json)


@command(app, "doctor runs/sample")
def doctor(
    run: RunPath,
    output: OutputFlags,
    checkpoint: Checkpoint = "best",
    device: Annotated[Device, typer.Option(help="Device to check on.")] = "cpu",
    precision: Annotated[
        Precision,
        typer.Option(help="Precision to check in; bf16 may differ more, by its rounding."),
    ] = "fp32",
) -> None:
    """Check a model's masks, cache and backends.

    What published Transformers got wrong is computed and compared; a failed check is exit code 6.
    """
    from mt_cli.evaluation.doctor import examine_run

    checks = examine_run(run, checkpoint=checkpoint, device=device, precision=precision)
    document = {"checks": [{**vars(check), "passed": check.passed} for check in checks]}
    print_result("\n".join(str(check) for check in checks), document, as_json=output.as_json)
    failed = [check.name for check in checks if not check.passed]
    if failed:
        raise CheckFailedError(
            f"{run}: {len(failed)} of {len(checks)} checks failed: {'; '.join(failed)}"
        )


@command(app, "export runs/sample exported --to ctranslate2 --quantization int8")
def export(
    run: RunPath,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="New folder, which then holds all that translating needs."
        ),
    ],
    to: Annotated[
        ExportTarget,
        typer.Option(
            help="ctranslate2 is a faster engine, whose package it needs; argos adds a package for Argos "
            "Translate and LibreTranslate; run is a small copy of RUN."
        ),
    ],
    output: OutputFlags,
    quantization: Annotated[
        Quantization,
        typer.Option(
            metavar="NAME",
            help="How matrices are stored: none (float32), int8, int8_float32, int8_float16, int8_bfloat16, "
            "int16, float16 or bfloat16. With --to run: none or float16.",
        ),
    ] = "none",
    checkpoint: Checkpoint = "best",
    data: PreparedDir = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier export in DIR.")
    ] = False,
    threads: Threads = None,
) -> None:
    """Convert a model for another engine, or make a small copy.

    The run and the export then translate the validation split, and the number of lines that are the
    same is printed. A copy of the same weights needs no such proof.
    """
    from mt_cli.evaluation.export import export_run

    done = export_run(
        run,
        folder,
        to=to,
        checkpoint=checkpoint,
        quantization=quantization,
        data_dir=data,
        threads=threads or 0,
        overwrite=overwrite,
    )
    print_result(str(done), done.as_json(), as_json=output.as_json)
    if done.is_refuted:
        raise CheckFailedError(
            f"{folder}: only the lines counted above are the same, though the weights are not "
            "quantised; do not use it, and report this as a bug"
        )
