"""`Translator`: lines in, lines out. The one place that joins text, model and search.

The commands, and validation while training, all translate through it. Imports no torch until a model needs
it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pydantic import ValidationError

from mt_cli.config.load import explain
from mt_cli.config.schema import Backend, Config, DecodingConfig, Device
from mt_cli.decoding import Hyp, Sampling
from mt_cli.errors import Option, UsageError
from mt_cli.runs.run import Run, open_runs
from mt_cli.text import UNK_ID
from mt_cli.text.normalize import normalize
from mt_cli.text.tokenizer import Tokenizers
from mt_cli.translation.lines import (
    Part,
    Splitter,
    Translation,
    UnknownWords,
    checked_line,
    counting_lines,
    forbidden_ids,
    joined,
    joined_texts,
)

if TYPE_CHECKING:
    from mt_cli.machine.device import Runtime
    from mt_cli.model.translation_model import TranslationModel
    from mt_cli.translation.attention import Attention, TeacherForced

Ids = Sequence[int]
OnDone = Callable[[Sequence[int]], None]
"""Is told the places of the sources whose search has just ended; always in the calling thread."""
OnProgress = Callable[[int], None]
"""Is called now and then with the number of lines that were searched since the last call."""


class Engine(Protocol):
    """What searches: source ids in, hypotheses out; no source is empty. `Searcher` is ours."""

    device: str
    """On which it computes."""
    longest_sentence: int
    """Most ids of a source, and of a hypothesis."""

    def limit(self, src_length: int) -> int:
        """Most ids of the translation of `src_length` ids."""

    def best(self, sources: Sequence[Ids], *, on_done: OnDone | None = None) -> list[list[int]]:
        """The best hypothesis of each of `sources`."""

    def n_best(
        self, sources: Sequence[Ids], *, n_best: int, on_done: OnDone | None = None
    ) -> list[list[Hyp]]:
        """The `n_best` best hypotheses of each of `sources`, the best first."""

    def align(
        self, sources: Sequence[Ids], hyps: Sequence[Ids], *, among: Sequence[Sequence[int]] | None = None
    ) -> list[list[int]]:
        """The place in its source that each id of `hyps` attends to most; with `among`, of those places.

        `</s>` does not count. Heads are averaged in the last layer but one, whose cross-attention aligns
        best (Garg et al. 2019). Of several models, the first is asked.
        """


@dataclass(frozen=True)
class DecodingOptions:
    """How runs are decoded, where it is not as their own config says."""

    checkpoint: str | Sequence[str] = "best"
    """One name for all runs, or one for each."""
    backend: Backend | None = "scratch"
    """None is what the run was trained with."""
    device: Device = "auto"
    threads: int = 0
    search: Mapping[str, object] = field(default_factory=dict)
    """Keys of `[decoding]`; one that is absent or None is the run's own."""
    sampling: Sampling | None = None
    """Draws translations at random, in place of a search."""
    seed: int = 1
    """Of the sampling."""

    def checkpoints_of(self, runs: Sequence[Run]) -> list[str]:
        """Names of the checkpoints that are meant of `runs`; what `best` means may change later.

        Raises:
            UsageError: there is no such checkpoint, or not one name for each run.
        """
        names = [self.checkpoint] * len(runs) if isinstance(self.checkpoint, str) else list(self.checkpoint)
        if len(names) != len(runs):
            raise UsageError(
                f"checkpoint: expected one name for each run, found {len(names)} for {len(runs)}"
            )
        return [run.resolve_checkpoint(name) for run, name in zip(runs, names, strict=True)]

    def config_of(self, run: Run) -> DecodingConfig:
        """The run's own decoding settings with those of `search` in their place; all are checked.

        Raises:
            UsageError: naming every wrong option.
        """
        if self.sampling is not None and self.search.get("beam_size") not in (None, 1):
            raise UsageError("sampling draws translations and beams search for them; give one of the two")
        known = DecodingConfig.model_fields
        given = {name: value for name, value in self.search.items() if value is not None or name not in known}
        tables = {
            "decoding": {**run.config.decoding.model_dump(), **given},
            "model": {} if self.backend is None else {"backend": self.backend},
            "runtime": {"device": self.device, "threads": self.threads, "seed": self.seed},
        }
        try:
            return Config.model_validate(tables).decoding
        except ValidationError as error:
            raise UsageError("\n".join(explain(error))) from None


class Translator:
    """Translates sentences with a trained model, or several together, for one thread at a time."""

    def __init__(
        self,
        engine: Engine,
        tokenizers: Tokenizers,
        config: DecodingConfig,
        *,
        sampling: Sampling | None = None,
        seed: int = 1,
        name: str = "a model",
        quiet: bool = False,
    ) -> None:
        """`engine` searches as `config` says, or as `sampling` and `seed` do.

        `name` says in the object's representation where the model is from. `quiet` splits long lines without
        a warning.
        """
        self._engine = engine
        self._tokenizers = tokenizers
        self._config = config
        self._sampling = sampling
        self._seed = seed
        self._name = name
        self._unknown_words = UnknownWords.of(tokenizers)
        self._splitter = Splitter(tokenizers, longest=engine.longest_sentence, quiet=quiet)

    @classmethod
    def load(
        cls,
        run: str | PathLike[str] | Sequence[str | PathLike[str]],
        *,
        checkpoint: str | Sequence[str] = "best",
        backend: Backend | None = "scratch",
        sampling: Sampling | None = None,
        seed: int = 1,
        device: Device = "auto",
        threads: int = 0,
        **search: object,
    ) -> "Translator":
        """Translator of the run folder or exported model `run`; `backend=None` is what it was trained with.

        Several runs with the same vocabulary form an ensemble; decoding settings come from the first.
        `checkpoint` is one name for all, or a list with one for each. With `sampling`, translations are drawn
        at random, by `seed`. `search` are keys of `[decoding]`, such as `beam_size`; None is the run's own.

        Raises:
            UsageError: there is no such run or checkpoint, or an option is wrong; also a ValueError.
            DataError: a file of the run is missing or altered.
            ResourceError: there is no such device, or too little memory.
        """
        folders = [run] if isinstance(run, str | PathLike) else run
        runs = open_runs(list(map(Path, folders)), may_be_exported=True)
        options = DecodingOptions(checkpoint, backend, device, threads, search, sampling, seed)
        return cls.of_runs(runs, options)

    @classmethod
    def of_runs(cls, runs: Sequence[Run], options: DecodingOptions) -> "Translator":
        """Translator of opened `runs`."""
        first = runs[0]
        config = options.config_of(first)
        names = options.checkpoints_of(runs)
        engine = _load_engine(runs, config, names, options)
        name = " and ".join(str(run.folder) for run in runs)
        return cls(engine, first.tokenizers, config, sampling=options.sampling, seed=options.seed, name=name)

    @classmethod
    def of_model(
        cls,
        model: "TranslationModel",
        tokenizers: Tokenizers,
        config: DecodingConfig,
        *,
        runtime: "Runtime",
        quiet: bool = False,
    ) -> "Translator":
        """Translator of a `model` that is in memory; `quiet` splits long lines without a warning."""
        from mt_cli.translation.searcher import Searcher

        forbidden = forbidden_ids(tokenizers, config)
        searcher = Searcher(model.to(runtime.device), config, runtime=runtime, forbidden_ids=forbidden)
        return cls(searcher, tokenizers, config, quiet=quiet)

    def __repr__(self) -> str:
        return f"<Translator of {self._name}: {self.search_name} on {self._engine.device}>"

    @property
    def src_lang(self) -> str:
        """Code of the language that it translates from."""
        return self._tokenizers.options.src_lang

    @property
    def search_name(self) -> str:
        """How translations are searched for, in a word that can name a folder."""
        drawn = None if self._sampling is None else f"sample{self._sampling}-seed{self._seed}"
        return search_name(self._config, knows_all_words=self._unknown_words is None, sampling=drawn)

    def translate(self, lines: Iterable[str], *, on_progress: OnProgress | None = None) -> list[str]:
        """The translation of each of `lines`, in order; an empty line's is empty.

        `on_progress` is called now and then with the number of lines that were searched since the last call.
        """
        of_lines = self._splitter.split(lines)
        parts = [part for of_line in of_lines for part in of_line]
        hyps = self._engine.best([part.ids for part in parts], on_done=counting_lines(of_lines, on_progress))
        texts = iter(self._detokenize(parts, hyps))
        return [joined_texts(islice(texts, len(of_line))) for of_line in of_lines]

    def translate_n_best(
        self,
        lines: Iterable[str],
        *,
        n_best: int = 1,
        with_alignment: bool = False,
        on_progress: OnProgress | None = None,
    ) -> list[list[Translation]]:
        """The `n_best` best translations of each of `lines`, the best first; an empty line's are empty.

        `on_progress` is called as in `translate`.

        Raises:
            UsageError: `n_best` is no number from 1, or more than the beams.
        """
        if type(n_best) is not int or n_best < 1:
            raise UsageError(Option("n_best"), f": expected a whole number from 1, found {n_best!r}")
        if n_best > self._config.beam_size and self._sampling is None:
            raise UsageError(
                f"{n_best} translations a line need as many beams; give ", Option("beam_size", n_best)
            )
        of_lines = self._splitter.split(lines)
        parts = [part for of_line in of_lines for part in of_line]
        found = self._engine.n_best(
            [part.ids for part in parts], n_best=n_best, on_done=counting_lines(of_lines, on_progress)
        )
        repeated = [part for part in parts for _ in range(n_best)]
        flat = self._describe(repeated, [hyp for hyps in found for hyp in hyps], with_alignment)
        of_parts = (flat[begin : begin + n_best] for begin in range(0, len(flat), n_best))
        nothing = [Translation("", 0.0)] * n_best
        return [
            [joined(ranked) for ranked in zip(*islice(of_parts, len(of_line)), strict=True)] or nothing
            for of_line in of_lines
        ]

    @property
    def model(self) -> "TranslationModel":
        """The model whose attention is shown; of several, the first.

        Raises:
            UsageError: an exported model translates, which nobody can look into.
        """
        first: TranslationModel | None = getattr(self._engine, "first", None)
        if first is None:
            raise UsageError(
                f"{self._name}: nobody can look into an exported model; name the run that it is of"
            )
        return first

    def teacher_force(self, line: str, *, target: str | None = None) -> "TeacherForced":
        """`line` and a translation as one pass of the model takes them, for looking inside.

        The translation is `target`, or the translator's own. Of a line that is translated in parts, the
        first is looked at.

        Raises:
            UsageError: `line` or `target` is empty, the model cannot take all of it, or it is exported.
        """
        from mt_cli.translation.attention import TeacherForced

        model = self.model
        parts = self._splitter.split([checked_line(line, name="line")])[0]
        if not parts:
            raise UsageError("the text is empty: there is nothing to look at; give a sentence")
        ids, is_complete = parts[0].ids, True
        if target is None:
            (hyp,) = self._engine.best([ids])
            translation = self._detokenize(parts[:1], [hyp])[0]
            is_complete = len(hyp) < self._engine.limit(len(ids))  # one that ran into its limit has no end
        elif len(parts) > 1:
            raise UsageError("the line is longer than the model takes; leave out ", Option("target"))
        else:
            translation = normalize(checked_line(target, name="target"))
            text = normalize(translation, lowercase=self._tokenizers.options.lowercase)
            (hyp,) = self._tokenizers.tgt.encode([text])
            if not 0 < len(hyp) <= model.longest_sentence:
                raise UsageError(
                    Option("target"), f": expected 1 to {model.longest_sentence} tokens, found {len(hyp)}"
                )
        device = next(model.parameters()).device
        return TeacherForced.of(
            parts[0], hyp, translation, is_complete=is_complete, tokenizers=self._tokenizers, device=device
        )

    def attention(self, line: str, *, target: str | None = None) -> "Attention":
        """Who attends to whom when `line` is translated as `target`: every layer and head, in fp32.

        By default, `target` is the translator's own translation; see `teacher_force`.
        """
        from mt_cli.model.inside import attention_maps
        from mt_cli.translation.attention import Attention

        pair = self.teacher_force(line, target=target)
        maps = attention_maps(self.model, pair.src_ids, pair.tgt_in)
        return Attention(pair, {kind: weights[:, 0].cpu() for kind, weights in maps.items()})

    def _detokenize(self, parts: Sequence[Part], hyps: Sequence[list[int]]) -> list[str]:
        """The text of each of `hyps`, in which source words stand for what the vocabulary lacks."""
        texts = self._tokenizers.tgt.decode(hyps)
        unknown = [i for i, hyp in enumerate(hyps) if UNK_ID in hyp]
        if not unknown or self._unknown_words is None or not self._config.replace_unk:
            return texts
        aligned = self._engine.align(
            [parts[i].ids for i in unknown],
            [hyps[i] for i in unknown],
            among=[self._unknown_words.candidates(parts[i]) for i in unknown],
        )
        for i, places in zip(unknown, aligned, strict=True):
            texts[i] = self._unknown_words.replace(parts[i], hyps[i], places)
        return texts

    def _describe(
        self, parts: Sequence[Part], hyps: Sequence[Hyp], with_alignment: bool
    ) -> list[Translation]:
        """All that is known of each of `hyps`, one for each of `parts`."""
        ids = [hyp.ids for hyp in hyps]
        sources = [part.ids for part in parts]
        aligned = self._engine.align(sources, ids) if with_alignment else [[] for _ in hyps]
        return [
            Translation(
                text,
                hyp.score,
                tokens=tuple(self._tokenizers.tgt.tokens(hyp.ids)),
                src_tokens=tuple(self._tokenizers.src.tokens(part.ids)),
                alignment=tuple((src, tgt) for tgt, src in enumerate(places)),
                log_prob=hyp.log_prob,
            )
            for part, hyp, text, places in zip(
                parts, hyps, self._detokenize(parts, ids), aligned, strict=True
            )
        ]


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


def _load_engine(
    runs: Sequence[Run], config: DecodingConfig, checkpoints: Sequence[str], options: DecodingOptions
) -> Engine:
    """The engine that searches with opened `runs`, as `config` says.

    Raises:
        UsageError: an exported model's engine does not have an option.
        ResourceError: no such device, too little memory, or a package is missing.
    """
    first = runs[0]
    forbidden = forbidden_ids(first.tokenizers, config)
    if (exported := first.exported_from) is not None:
        if options.backend == "torch":
            raise UsageError(
                f"{first.folder}: an exported model has no layers of ours; leave out ", Option("backend")
            )
        from mt_cli.translation.ctranslate2 import ExportedSearcher

        own = {"none": "fp32", "bfloat16": "bf16"}.get(exported.quantization, exported.quantization)
        precision = options.search.get("precision")
        if precision not in (None, own):
            raise UsageError(
                f"{first.folder}: exported to compute in {own}; leave out ", Option("precision", precision)
            )
        return ExportedSearcher(
            first,
            config,
            forbidden_ids=forbidden,
            sampling=options.sampling,
            seed=options.seed,
            device=options.device,
            threads=options.threads,
        )
    from mt_cli.machine.device import memory_errors_explained, set_up_runtime
    from mt_cli.translation.searcher import Searcher, joint_model

    runtime = set_up_runtime(device=options.device, precision=config.precision, threads=options.threads)
    with memory_errors_explained("the model does not fit"):
        models = [
            run.load_model(checkpoint=name, backend=options.backend)
            for run, name in zip(runs, checkpoints, strict=True)
        ]
        return Searcher(
            joint_model(models, runtime),
            config,
            runtime=runtime,
            forbidden_ids=forbidden,
            sampling=options.sampling,
            seed=options.seed,
        )
