"""`Translator`: lines in, translations out; all commands and validation during training use it.

Its steps: read → split → encode (reading) → search (an engine) → place terms (term_placer) →
decode → put back (writing) → judge (result).
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Self

from mt_cli.config.schema import Backend, Device
from mt_cli.decoding import Hyp, OnDone
from mt_cli.errors import UsageError
from mt_cli.runs.opening import open_models
from mt_cli.runs.run import Run
from mt_cli.text.normalize import normalize, read_capitals
from mt_cli.text.tokenizers import Tokenizers
from mt_cli.translation.engine import Engine
from mt_cli.translation.glossary import Glossary
from mt_cli.translation.numpy_engine import load_engine
from mt_cli.translation.options import DecodingOptions, search_facts, search_name
from mt_cli.translation.reading import Line, Part, checked_lines, ids_of_prefix, read_lines
from mt_cli.translation.result import Translation, judged
from mt_cli.translation.scorer import Reranker, reverse_run, score_pairs
from mt_cli.translation.term_placer import TermPlacer
from mt_cli.translation.writing import write_lines

if TYPE_CHECKING:
    from mt_cli.model.model import TranslationModel

RERANKED_TOGETHER = 128
"""Number of lines to search before their candidates are reranked; limits memory."""
OnProgress = Callable[[int], None]
"""Called from time to time with the number of lines finished since the last call."""


class Translator:
    """Translates sentences with a trained model or an ensemble; not thread-safe.

    As a context manager, it frees its threads at the end of the block.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizers: Tokenizers,
        *,
        glossary: Glossary | None = None,
        reranker: Reranker | None = None,
        name: str = "a model",
    ) -> None:
        """`engine` searches, `glossary` has the required terms, `reranker` orders the results.

        `name` is the model's name in errors and in the object's repr.
        """
        self.engine = engine
        self.tokenizers = tokenizers
        self.glossary = glossary
        self._reranker = reranker
        self._name = name
        self._process = os.getpid()
        self._loaded_from: tuple[list[Path], DecodingOptions] | None = None

    @classmethod
    def load(
        cls,
        run: str | PathLike[str] | Sequence[str | PathLike[str]],
        *,
        checkpoint: str | Sequence[str] = "best",
        backend: Backend | None = None,
        device: Device = "auto",
        threads: int = 0,
        **search: object,
    ) -> "Translator":
        """Load a run folder or an exported model.

        Several runs with the same vocabulary form an ensemble; decoding settings come from the
        first. `checkpoint` is one name for all runs, or a list with one name per run.
        `backend=None` uses the backend that the run was trained with. `search` overrides keys of
        `[decoding]`, such as `beam_size`; None keeps the run's own value.

        Raises:
            UsageError: a run or checkpoint does not exist, or an option is wrong; also a
                ValueError. DataError: a file of the run is missing or altered. ResourceError: the
                device does not exist, or there is too little memory.
        """
        folders = [run] if isinstance(run, str | PathLike) else run
        options = DecodingOptions(checkpoint, backend, device, threads, search)
        return cls.of_models(open_models([Path(folder) for folder in folders]), options)

    @classmethod
    def of_models(cls, models: Sequence[Run], options: DecodingOptions) -> "Translator":
        """Translator of opened runs or an opened exported model; raises as `load` does."""
        first = models[0]
        config = options.config_of(first)
        checkpoints = options.checkpoints_of(models)
        glossary = None
        if config.glossary is not None:
            data = first.config.data
            glossary = Glossary.read(
                config.glossary, src_lang=data.src_lang, tgt_lang=data.tgt_lang
            )
            search = {**options.search, "glossary": config.glossary.resolve()}
            options = replace(options, search=search)
        reranker = None
        if config.rerank_with is not None:
            reverse = reverse_run(config, of=first)
            search = {"batch_size": config.batch_size, "precision": config.precision}
            back = replace(options, checkpoint="best", backend=None, search=search)
            engine = load_engine([reverse], back.config_of(reverse), back)
            reranker = Reranker(engine, reverse.tokenizers, config.rerank_weights)
        translator = cls(
            load_engine(models, config, options),
            first.tokenizers,
            glossary=glossary,
            reranker=reranker,
            name=" and ".join(str(model.folder) for model in models),
        )
        folders = [model.folder.resolve() for model in models]
        translator._loaded_from = folders, replace(options, checkpoint=checkpoints)
        return translator

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the folders of the models; unpickling loads the models again."""
        if self._loaded_from is None:
            raise TypeError("only a Translator loaded from a folder can be pickled")
        return _loaded_again, self._loaded_from

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()

    def __repr__(self) -> str:
        engine = self.engine
        facts = search_facts(engine.config, self.tokenizers)
        words = [search_name(engine.config, {})]
        words += [f"{key}={value}" for key, value in facts.items()]
        return f"<Translator of {self._name}: {' '.join(words)} on {engine.device}>"

    def translate(
        self, lines: Iterable[str], *, prefix: str = "", on_progress: OnProgress | None = None
    ) -> list[str]:
        """Translate `lines`, in order; `translation.untranslated` defines what stays untranslated.

        Each translation begins with `prefix`, whose last word may continue. `on_progress` is called
        from time to time with the number of lines finished since the last call.

        Raises:
            UsageError: a translation cannot begin with `prefix`.
        """
        found = self.translate_n_best(
            lines, prefix=prefix, is_scored=False, on_progress=on_progress
        )
        return [of_line[0].text for of_line in found]

    def translate_n_best(
        self,
        lines: Iterable[str],
        *,
        n_best: int = 1,
        beam_size: int | None = None,
        prefix: str = "",
        is_scored: bool = True,
        with_alignment: bool = False,
        with_words: bool = False,
        on_progress: OnProgress | None = None,
    ) -> list[list[Translation]]:
        """The `n_best` best translations of each of `lines`, the best first.

        `beam_size` applies to this call; None uses the translator's own. Without `is_scored`,
        there are no scores. `with_words` adds the log-probability of each word. `prefix` and
        `on_progress` are as in `translate`.

        Raises:
            UsageError: `n_best` is below 1 or above the beam size; or as in `translate`.
        """
        if type(n_best) is not int or n_best < 1:
            raise UsageError(f"n_best: expected a whole number of at least 1, found {n_best!r}")
        engine = self.engine.with_beam_size(beam_size)
        if n_best > engine.config.beam_size and not engine.config.temperature:
            raise UsageError(f"{n_best} translations per line need --beam-size {n_best} or more")
        tokenizers = self.tokenizers
        given = ids_of_prefix(prefix, tokenizers, longest=engine.longest_sentence - 1)
        reranker = self._reranker
        num_hyps = n_best if reranker is None else engine.config.beam_size
        checked = self._checked(lines)
        together = len(checked) if reranker is None else RERANKED_TOGETHER
        results = []
        for begin in range(0, len(checked), together or 1):
            read = read_lines(checked[begin : begin + together], engine, tokenizers, prefix=given)
            hyps = self.search(
                [part for line in read for part in line.parts],
                engine=engine,
                n_best=num_hyps,
                is_scored=is_scored or reranker is not None,
                on_done=_counting_lines(read, on_progress),
            )
            written = write_lines(
                read,
                hyps,
                engine,
                tokenizers,
                n_best=num_hyps,
                with_alignment=with_alignment,
                with_words=with_words,
            )
            answers = []
            for line, of_line in zip(read, written, strict=True):
                answers.append([judged(hyp, line, tokenizers, self.glossary) for hyp in of_line])
            if reranker is not None:
                answers = [of_line[:n_best] for of_line in reranker.ordered(answers)]
            results += answers
        return results

    def search(
        self,
        parts: Sequence[Part],
        *,
        engine: Engine | None = None,
        n_best: int = 1,
        is_scored: bool = True,
        on_done: OnDone | None = None,
    ) -> list[list[Hyp]]:
        """`Engine.search` for `parts`, repeated where glossary terms are missing."""
        engine = engine or self.engine
        found = engine.search(
            [part.ids for part in parts],
            prefixes=[part.prefix for part in parts],
            n_best=n_best,
            is_scored=is_scored,
            on_done=on_done,
        )
        for part, hyps in zip(parts, found, strict=True):
            if part.prefix:
                hyps[:] = [replace(hyp, num_given=len(part.prefix)) for hyp in hyps]
        if self.glossary is None:
            return found
        placer = TermPlacer(self.glossary, engine, self.tokenizers)
        return placer.place(parts, found, n_best=n_best, is_scored=is_scored)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        """The natural log-probability of each target as the translation of its source.

        It is minus infinity for an impossible pair: if one side is too long for the model, or if
        only the source is empty.

        Raises:
            UsageError: there are not as many targets as sources.
        """
        capitals = self.engine.config.capitals
        sources = [read_capitals(normalize(line), capitals) for line in self._checked(sources)]
        targets = checked_lines(targets)
        if len(sources) != len(targets):
            raise UsageError(f"got {len(targets)} targets for {len(sources)} sources")
        scores = score_pairs(self.engine, self.tokenizers, sources, targets)
        return [score.log_prob for score in scores]

    @property
    def model(self) -> "TranslationModel":
        """The model whose attention is shown; the first one of an ensemble.

        Raises:
            UsageError: this is an exported model, which cannot show attention.
        """
        if not self.engine.models:
            raise UsageError(
                f"{self._name}: an exported model can only translate; use the run it came from"
            )
        return self.engine.models[0]

    def _checked(self, lines: Iterable[str]) -> list[str]:
        """`lines` as a list.

        Raises:
            UsageError: they are not lines, or this translator was copied by a fork and has lost its
                threads.
        """
        if os.getpid() != self._process:
            raise UsageError(
                "this Translator was loaded before a fork; load it in each process, or pickle it"
            )
        return checked_lines(lines)


def _counting_lines(lines: Sequence[Line], on_progress: OnProgress | None) -> OnDone | None:
    """A callback that takes the indices of finished parts and reports finished lines.

    A line counts as finished with its first part, an empty line immediately.
    """
    if on_progress is None:
        return None
    is_first: list[bool] = []
    for line in lines:
        is_first += [number == 0 for number in range(len(line.parts))]
    num_empty = sum(not line.parts for line in lines)
    if num_empty:
        on_progress(num_empty)
    return lambda places: on_progress(sum(is_first[place] for place in places))


def _loaded_again(folders: list[Path], options: DecodingOptions) -> Translator:
    return Translator.of_models(open_models(folders), options)
