"""`Translator`: lines in, lines out. The one place that joins text, model and search.

Knows no files or streams; the commands, and validation while training, all translate through it.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from os import PathLike
from typing import Unpack

from mt_cli.artefacts.exported_run import AnyRun, open_any_runs
from mt_cli.config import Backend, DecodingConfig, Device
from mt_cli.decoding.sampling import Sampling
from mt_cli.decoding.search import Hyp
from mt_cli.errors import Option, UsageError
from mt_cli.machine.device import Runtime
from mt_cli.model.attention_maps import attention_maps
from mt_cli.model.translation_model import TranslationModel
from mt_cli.text.normalize import normalize
from mt_cli.text.symbols import UNK_ID
from mt_cli.text.tokenizer import Tokenizers
from mt_cli.translation.engine import Engine, check_engine_options, load_engine
from mt_cli.translation.lines import (
    Part,
    Splitter,
    Translation,
    checked_line,
    counting_lines,
    joined,
    joined_texts,
)
from mt_cli.translation.options import (
    SearchOptions,
    check_options,
    check_sampling,
    checkpoint_of_each,
    run_folders,
    search_name,
)
from mt_cli.translation.searcher import Searcher
from mt_cli.translation.sentence_attention import Attention
from mt_cli.translation.teacher_forcing import TeacherForced, encode_target
from mt_cli.translation.unknown_words import UnknownWords, forbidden_ids


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
    def of_model(
        cls,
        model: TranslationModel,
        tokenizers: Tokenizers,
        config: DecodingConfig,
        *,
        runtime: Runtime,
        quiet: bool = False,
    ) -> "Translator":
        """Translator of a `model` that is in memory; `quiet` splits long lines without a warning."""
        forbidden = forbidden_ids(tokenizers, config)
        searcher = Searcher(model.to(runtime.device), config, runtime=runtime, forbidden_ids=forbidden)
        return cls(searcher, tokenizers, config, quiet=quiet)

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
        **search: Unpack[SearchOptions],
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
        check_sampling(sampling, search)
        runs = open_any_runs(run_folders(run))
        return cls.of_runs(
            runs,
            checkpoints=checkpoint_of_each(checkpoint, num_runs=len(runs)),
            backend=backend, sampling=sampling, seed=seed, device=device, threads=threads, search=search,
        )  # fmt: skip

    @classmethod
    def of_runs(
        cls,
        runs: Sequence[AnyRun],
        *,
        checkpoints: Sequence[str],
        backend: Backend | None,
        sampling: Sampling | None = None,
        seed: int = 1,
        device: Device,
        threads: int,
        search: SearchOptions,
    ) -> "Translator":
        """Translator of opened `runs`; see `load`."""
        first = runs[0]
        config = check_options(
            first.config.decoding, search, backend=backend, device=device, seed=seed, threads=threads
        )
        check_engine_options(first, search, backend=backend)
        engine = load_engine(
            runs, config, checkpoints=checkpoints, backend=backend, sampling=sampling, seed=seed,
            forbidden_ids=forbidden_ids(first.tokenizers, config), device=device, threads=threads,
        )  # fmt: skip
        names = (f"{run.folder} ({each})" for run, each in zip(runs, checkpoints, strict=True))
        return cls(engine, first.tokenizers, config, sampling=sampling, seed=seed, name=" and ".join(names))

    def __repr__(self) -> str:
        return f"<Translator of {self._name}: {self.search_name} on {self._engine.device}>"

    def translate(
        self, lines: Iterable[str], *, on_progress: Callable[[int], None] | None = None
    ) -> list[str]:
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
        on_progress: Callable[[int], None] | None = None,
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
    def model(self) -> TranslationModel:
        """The model whose attention is shown; of several, the first.

        Raises:
            UsageError: an exported model translates, which nobody can look into.
        """
        if not isinstance(self._engine, Searcher):
            raise UsageError(
                f"{self._name}: nobody can look into an exported model; name the run that it is of"
            )
        return self._engine.first

    @property
    def src_lang(self) -> str:
        """Code of the language that it translates from."""
        return self._tokenizers.options.src_lang

    @property
    def search_name(self) -> str:
        """How translations are searched for, in a word that can name a folder."""
        drawn = None if self._sampling is None else f"sample{self._sampling}-seed{self._seed}"
        return search_name(self._config, knows_all_words=self._unknown_words is None, sampling=drawn)

    def teacher_force(self, line: str, *, target: str | None = None) -> TeacherForced:
        """`line` and a translation as one pass of the model takes them, for looking inside.

        The translation is `target`, or the translator's own. Of a line that is translated in parts, the
        first is looked at.

        Raises:
            UsageError: `line` or `target` is empty, the model cannot take all of it, or it is exported.
        """
        model = self.model
        parts = self._splitter.split([checked_line(line, name="line")])[0]
        if not parts:
            raise UsageError("the text is empty: there is nothing to look at; give a sentence")
        ids = parts[0].ids
        if target is None:
            (hyp,) = self._engine.best([ids])
            translation = self._detokenize(parts[:1], [hyp])[0]
            is_complete = len(hyp) < self._engine.limit(len(ids))  # one that ran into its limit has no end
        else:
            if len(parts) > 1:
                raise UsageError("the line is longer than the model takes; leave out ", Option("target"))
            translation = normalize(checked_line(target, name="target"))
            hyp = encode_target(translation, self._tokenizers, longest=model.longest_sentence)
            is_complete = True
        return TeacherForced.of(
            parts[0],
            hyp,
            translation,
            is_complete=is_complete,
            tokenizers=self._tokenizers,
            device=next(model.parameters()).device,
        )

    def attention(self, line: str, *, target: str | None = None) -> Attention:
        """Who attends to whom when `line` is translated as `target`: every layer and head, in fp32.

        By default, `target` is the translator's own translation; see `teacher_force`.
        """
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
