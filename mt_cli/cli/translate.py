"""`mt-cli translate`."""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import (
    DecodingFlags,
    OptionalModelPaths,
    OutputFlags,
    RerankingFlags,
)
from mt_cli.config.load import command_line
from mt_cli.errors import UsageError
from mt_cli.machine.terminal import json_text, progress_shown

if TYPE_CHECKING:  # torch is imported when something is translated
    from mt_cli.translation.lines import Translation
    from mt_cli.translation.options import DecodingOptions
    from mt_cli.translation.streams import Target
    from mt_cli.translation.translator import Translator

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SamplingFlags:
    """How translations are drawn at random."""

    sample: Annotated[
        bool,
        typer.Option("--sample", help="Draw translations at random in place of the likeliest."),
    ] = False
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0.01, max=100, metavar="X", help="For --sample: below 1 prefers likely tokens."
        ),
    ] = None
    top_k: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="K", help="For --sample: draw from the K likeliest tokens; 0 is all."
        ),
    ] = None
    top_p: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            metavar="P",
            help="For --sample: draw from the fewest tokens of this probability.",
        ),
    ] = None
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Random seed for --sample. [default: 1]")
    ] = None

    def added_to(self, options: "DecodingOptions") -> "DecodingOptions":
        """`options` with the sampling that these flags ask for."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        if not given.pop("sample"):
            if given:
                flag = next(iter(given)).replace("_", "-")
                raise UsageError(f"--{flag} is an option of --sample; give that too")
            return options
        from mt_cli.decoding.search import Sampling

        seed = given.pop("seed", 1)
        return replace(options, sampling=Sampling(**given), seed=seed)


@dataclass(frozen=True)
class TranslationFlags(OutputFlags):
    """What is written for each line."""

    n_best: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Translations of each line, the best first; needs as many beams, or --sample.",
        ),
    ] = 1
    with_score: Annotated[
        bool, typer.Option("--with-score", help="Score and a tab before each translation.")
    ] = False
    with_alignment: Annotated[
        bool,
        typer.Option(
            "--with-alignment",
            help="A tab and the alignment after each: token positions source-target, from 0.",
        ),
    ] = False

    @property
    def is_detailed(self) -> bool:
        """Whether more is written than one translation a line."""
        return self.as_json or self.with_score or self.with_alignment or self.n_best > 1

    def lines_of(
        self,
        translator: "Translator",
        sources: Sequence[str],
        *,
        on_progress: Callable[[int], None],
    ) -> list[str]:
        """The lines to write for `sources`."""
        if not self.is_detailed:
            return translator.translate(sources, on_progress=on_progress)
        found = translator.translate_n_best(
            sources,
            n_best=self.n_best,
            with_alignment=self.as_json or self.with_alignment,
            on_progress=on_progress,
        )
        if self.as_json:
            return [
                _as_json(source, of_line) for source, of_line in zip(sources, found, strict=True)
            ]
        return [self._as_text(translation) for of_line in found for translation in of_line]

    def _as_text(self, translation: "Translation") -> str:
        fields = [f"{translation.score:.4f}"] if self.with_score else []
        fields.append(translation.text)
        if self.with_alignment:
            fields.append(" ".join(f"{src}-{tgt}" for src, tgt in translation.alignment))
        return "\t".join(fields)


@command(
    app,
    "translate multi30k-tiny --text 'Ein Hund rennt durch den Schnee.'",
    "translate runs/sample -i german.txt -o english.txt",
    "translate runs/sample < german.txt --n-best 3 --beam-size 5",
)
def translate(
    output: TranslationFlags,
    decoding: DecodingFlags,
    sampling: SamplingFlags,
    reranking: RerankingFlags,
    runs: OptionalModelPaths = None,
    source: Annotated[
        str, typer.Option("-i", "--input", metavar="FILE", help="Lines to translate; - is stdin.")
    ] = "-",
    target: Annotated[
        str,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Where the translations go; - is stdout."
        ),
    ] = "-",
    text: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Text to translate in place of a file.")
    ] = None,
) -> None:
    """Translate text line by line.

    One line out for each line in, in order. --n-best N writes N lines for each, or with --json one
    object that holds all N. Without -i and --text, lines are read from stdin; Ctrl-D ends them.
    """
    options = sampling.added_to(reranking.added_to(decoding.options()))
    if options.reranking is not None and (output.is_detailed or sampling.sample):
        raise UsageError(
            "--rerank-with gives one translation a line, as text; leave out --n-best, "
            "--with-score, --with-alignment, --sample and --json"
        )
    if text is not None and source != "-":
        raise UsageError("give either --text or --input, not both")
    _check_runs(runs or [])
    from mt_cli.runs.opening import models_named, open_models
    from mt_cli.translation.streams import count_lines, open_source, open_target, portions
    from mt_cli.translation.translator import Translator

    models = open_models(models_named(runs or []))
    with open_source(source, text=text) as lines_in, open_target(target) as lines_out:
        translator = Translator.of_models(models, options)
        is_typed = lines_in.isatty()
        if is_typed:
            lang = models[0].config.data.src_lang
            log.info("type a sentence (%s) and press Enter; Ctrl-D ends", lang)
        # If lines are typed or shown, the translations themselves show the progress.
        has_no_bar = is_typed or lines_out.file.isatty()
        num_lines = count_lines(lines_in)
        with progress_shown(
            "translating", unit="lines", total=num_lines, is_hidden=has_no_bar
        ) as on_progress:
            sources = portions(lines_in, for_gpu=translator.engine.device == "cuda")
            _translate_portions(
                sources,
                lines_out,
                translator,
                output,
                min_lines=1 if is_typed else 2,
                on_progress=on_progress,
            )


def _translate_portions(
    portions: Iterable[Sequence[str]],
    lines_out: "Target",
    translator: "Translator",
    output: TranslationFlags,
    *,
    min_lines: int,
    on_progress: Callable[[int], None],
) -> None:
    """Translate portions of lines one after the other, and write what `output` asks for.

    From `min_lines` together is told whether they are in another language.
    """
    first_line = 1
    warning = None
    for lines in portions:
        written = output.lines_of(translator, lines, on_progress=on_progress)
        lines_out.write("".join(f"{line}\n" for line in written).encode())
        # Warn once, and after the output, which nobody should have to wait for.
        if warning is None:
            warning = translator.input_warning(lines, first_line=first_line, min_lines=min_lines)
            if warning is not None:
                log.warning("%s", warning)
        first_line += len(lines)
    for warning in translator.take_warnings():
        log.warning("%s", warning)


def _check_runs(runs: Sequence[Path]) -> None:
    """Reject text, or a text file, that was given where a run folder belongs."""
    for place, path in enumerate(runs):
        if place == 0 or os.path.isdir(path):  # noqa: PTH112 — text may be too long for a name
            continue
        is_file = os.path.isfile(path)  # noqa: PTH113
        if is_file or " " in str(path) or "/" not in str(path):
            kind, flag = ("a file", "-i") if is_file else ("text", "--text")
            known = [each for each in runs if os.path.isdir(each)]  # noqa: PTH112
            words = path if is_file else " ".join(str(each) for each in runs if each not in known)
            advice = command_line("translate", *(known or [Path("RUN")]), flag, words)
            raise UsageError(f"{path}: not a run folder; to translate {kind}: {advice}")


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
