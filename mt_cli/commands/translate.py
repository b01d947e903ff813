"""`mt-cli translate`."""

import logging
import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mt_cli.commands.attention_view import AttentionView
from mt_cli.commands.flags import (
    BackendFlag,
    BatchSize,
    BeamSize,
    Checkpoint,
    DecodingPrecision,
    DeviceFlag,
    HiddenAttentionFile,
    HiddenAttentionOf,
    HiddenHead,
    HiddenLayer,
    Json,
    LengthPenalty,
    ModelPaths,
    NoRepeatNgram,
    Quiet,
    ReplaceUnk,
    Threads,
    Verbose,
)
from mt_cli.commands.reranking import RerankWeightsFlag, RerankWith, check_direction, reranking_of
from mt_cli.commands.terminal import exit_codes, json_text, set_up_logging, write_bytes
from mt_cli.errors import UsageError, command_line

if TYPE_CHECKING:  # torch is imported when something is translated
    from mt_cli.decoding.sampling import Sampling
    from mt_cli.translation.lines import Translation


log = logging.getLogger(__name__)

LANGUAGES = {
    "cs": "Czech", "de": "German", "en": "English", "es": "Spanish", "fr": "French", "it": "Italian",
    "nl": "Dutch", "pl": "Polish", "pt": "Portuguese", "ru": "Russian", "uk": "Ukrainian",
}  # fmt: skip
"""Names for people; any other language is called by its code."""


@exit_codes
def translate(
    runs: ModelPaths,
    source: Annotated[
        str, typer.Option("-i", "--input", metavar="FILE", help="Lines to translate; - is stdin.")
    ] = "-",
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="Where the translations go; - is stdout.")
    ] = "-",
    text: Annotated[str | None, typer.Option("--text", help="Text to translate in place of a file.")] = None,
    beam_size: BeamSize = None,
    length_penalty: LengthPenalty = None,
    no_repeat_ngram: NoRepeatNgram = None,
    replace_unk: ReplaceUnk = None,
    n_best: Annotated[
        int,
        typer.Option(
            "--n-best",
            min=1,
            help="Translations of each line, the best first; needs as many beams, or --sample.",
        ),
    ] = 1,
    with_score: Annotated[
        bool, typer.Option("--with-score", help="Score and a tab before each translation.")
    ] = False,
    with_alignment: Annotated[
        bool,
        typer.Option(
            "--with-alignment",
            help="A tab and the alignment after each: token positions source-target, from 0.",
        ),
    ] = False,
    sample: Annotated[
        bool, typer.Option("--sample", help="Draw translations at random in place of the likeliest.")
    ] = False,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", min=0.01, max=100, help="For --sample: below 1 prefers likely tokens."),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option("--top-k", min=0, help="For --sample: draw from the K likeliest tokens; 0 is all."),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            "--top-p", min=0.0, max=1.0, help="For --sample: draw from the fewest tokens of this probability."
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Random seed for --sample. [default: 1]")
    ] = None,
    rerank_with: RerankWith = None,
    rerank_weights: RerankWeightsFlag = None,
    backend: BackendFlag = "scratch",
    checkpoint: Checkpoint = "best",
    attention: HiddenAttentionFile = None,
    attention_of: HiddenAttentionOf = None,
    layer: HiddenLayer = None,
    head: HiddenHead = None,
    batch_size: BatchSize = None,
    device: DeviceFlag = None,
    threads: Threads = None,
    precision: DecodingPrecision = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Translate lines, one line for one line."""
    set_up_logging(is_quiet=quiet, is_verbose=verbose)
    view = AttentionView(attention, attention_of, layer, head)
    is_detailed = with_score or with_alignment or n_best > 1
    if view.is_wanted and (is_detailed or sample):
        raise UsageError(
            "attention is shown for the best translation; leave out --n-best, --with-score, --with-alignment "
            "and --sample"
        )
    if view.is_wanted and len(runs) > 1:
        raise UsageError("attention is shown of one model; name one run")
    reranking = reranking_of(rerank_with, rerank_weights, beam_size)
    if reranking is not None and (is_detailed or sample or view.is_wanted or as_json):
        raise UsageError(
            "--rerank-with gives one translation a line, as text; leave out --n-best, --with-score, "
            "--with-alignment, --sample, --attention and --json"
        )
    _check_runs(runs)
    check_direction(reranking, of=runs)
    view.check(text, taken=None if output == "-" else Path(output))
    sampling = _sampling(sample, beam_size, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    from mt_cli.machine.progress import ProgressDisplay
    from mt_cli.stages.translate import count_lines, open_source, open_target, translate_lines
    from mt_cli.translation.reranker import Reranker
    from mt_cli.translation.translator import Translator

    with ExitStack() as stack:
        lines_in = stack.enter_context(open_source(source, text=text))
        lines_out = stack.enter_context(open_target(output))
        translator = Translator.load(
            runs,
            checkpoint=checkpoint,
            backend=backend,
            beam_size=beam_size if reranking is None else reranking.num_candidates,
            length_penalty=length_penalty,
            no_repeat_ngram=no_repeat_ngram,
            replace_unk=replace_unk,
            batch_size=batch_size,
            sampling=sampling,
            seed=1 if seed is None else seed,
            device=device or "auto",
            precision=precision,
            threads=threads or 0,
        )

        best = translator if reranking is None else Reranker.load(
            translator, reranking, device=device or "auto", threads=threads or 0,
            search={"batch_size": batch_size, "precision": precision},
        )  # fmt: skip

        # Before anything is written: which layers and heads there are, only the model knows.
        maps = view.choose(translator, text) if view.is_wanted and text is not None else None

        if lines_in.isatty():
            log.info("type %s sentence and press Enter; Ctrl-D ends", _language(translator.src_lang))
        progress = stack.enter_context(
            ProgressDisplay(
                "translating",
                unit="lines",
                total=count_lines(lines_in),
                # There the translations themselves show how far it is, and a bar would run into them.
                is_hidden=lines_in.isatty() or lines_out.isatty(),
            )
        )

        def write(lines: Iterable[str]) -> None:
            data = "".join(f"{line}\n" for line in lines).encode()
            if output == "-":
                write_bytes(data)
            else:
                lines_out.write(data)
                lines_out.flush()

        def write_json(sources: list[str], translations: "list[list[Translation]]") -> None:
            write(map(_as_json, sources, translations))

        def write_details(_: list[str], translations: "list[list[Translation]]") -> None:
            each = (each for of_line in translations for each in of_line)
            write(_as_text(one, with_score=with_score, with_alignment=with_alignment) for one in each)

        details = partial(
            translator.translate_n_best,
            n_best=n_best,
            with_alignment=as_json or with_alignment,
            on_progress=progress.update,
        )
        if as_json:
            translate_lines(details, lines_in, write_json)
        elif is_detailed:
            translate_lines(details, lines_in, write_details)
        else:
            translate_best = partial(best.translate, on_progress=progress.update)
            translate_lines(translate_best, lines_in, lambda _, translations: write(translations))
    if maps is not None:
        view.show(maps, is_result=False)


def _check_runs(runs: Sequence[Path]) -> None:
    """Complain about text, or a file of it, that stands where only run folders may."""
    for place, path in enumerate(runs):
        if place == 0 or os.path.isdir(path):  # noqa: PTH112 — text may be too long for a name
            continue
        given = ("translate", *runs[:place])
        if os.path.isfile(path):  # noqa: PTH113
            advice = command_line(*given, "-i", path)
            raise UsageError(f"{path}: no run folder; to translate a file: {advice}")
        if " " in str(path) or "/" not in str(path):
            advice = command_line(*given, "--text", path)
            raise UsageError(f"{path}: no run folder; to translate text: {advice}")


def _language(code: str) -> str:
    """Such as `a German` for de, to be followed by a noun."""
    name = LANGUAGES.get(code)
    if name is None:
        return f"a '{code}'"
    return f"{'an' if name[0] in 'AEIO' else 'a'} {name}"


def _sampling(
    sample: bool,
    beam_size: int | None,
    *,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    seed: int | None,
) -> "Sampling | None":
    """How to draw translations, if they are to be drawn."""
    options = {"--temperature": temperature, "--top-k": top_k, "--top-p": top_p, "--seed": seed}
    given = [name for name, value in options.items() if value is not None]
    if not sample:
        if given:
            raise UsageError(f"{given[0]} is an option of --sample; give that too")
        return None
    if beam_size is not None and beam_size > 1:
        raise UsageError("--sample draws translations and --beam-size searches for them; give one of the two")
    from mt_cli.decoding.sampling import Sampling

    return Sampling(
        temperature=1.0 if temperature is None else temperature,
        top_k=top_k or 0,
        top_p=1.0 if top_p is None else top_p,
    )


def _as_text(translation: "Translation", *, with_score: bool, with_alignment: bool) -> str:
    fields = [f"{translation.score:.4f}"] if with_score else []
    fields.append(translation.text)
    if with_alignment:
        fields.append(" ".join(f"{src}-{tgt}" for src, tgt in translation.alignment))
    return "\t".join(fields)


def _as_json(source: str, translations: "list[Translation]") -> str:
    best = translations[0]
    document = {
        "source": source,
        "translation": best.text,
        "score": best.score,
        "n_best": [{"translation": each.text, "score": each.score} for each in translations],
        "tokens": {"source": best.src_tokens, "translation": best.tokens},
        "alignment": best.alignment,
    }
    return json_text(document)
