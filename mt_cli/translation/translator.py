"""`Translator`: lines in, lines out. The one place that joins text, model and search.

The commands, and validation while training, all translate through it. Imports no torch until a
model needs it.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from mt_cli.config.load import explain
from mt_cli.config.schema import Backend, Config, DecodingConfig, Device
from mt_cli.data.prepared import TrainingLengths
from mt_cli.decoding import Hyp, Ids, OnDone, Sampling
from mt_cli.errors import Option, UsageError
from mt_cli.machine.terminal import visible
from mt_cli.runs.run import Run, open_runs
from mt_cli.text import BOS_ID, EOS_ID, SPECIALS, UNK_ID
from mt_cli.text.language import other_language, sentence_space
from mt_cli.text.normalize import normalize
from mt_cli.text.sentences import split_sentences, split_text
from mt_cli.text.tokenizer import Tokenizers
from mt_cli.text.words import JOINER, WordTokenizer, join_words, split_words
from mt_cli.translation.lines import (
    Part,
    Translation,
    checked_line,
    checked_lines,
    counting_lines,
    joined,
)

if TYPE_CHECKING:
    from mt_cli.machine.device import Runtime
    from mt_cli.model.translation_model import TranslationModel
    from mt_cli.translation.attention import Attention, TeacherForced
    from mt_cli.translation.scorer import Reranker, Reranking
    from mt_cli.translation.searcher import Searcher

log = logging.getLogger(__name__)
ALIGNED_AT_ONCE = 256
"""Translations whose attention is in memory at a time."""
LEAST_LETTERS, LEAST_TEXT = 5, 20
"""Letters of a line that may be strange, and characters that tell its language; fewer say too
little.
"""
FEW_CUT = 3
"""Fewer translations that ran into the limit of their length are no reason for a warning."""
MOST_CUT = 0.01
"""Nor is this share of them."""
ENOUGH_LINES = 100
"""Of which the language is asked."""
RERANKED_AT_ONCE = 128
"""Lines that are searched, then reranked; their candidates are all that is in memory."""
NAMED = {
    "max_len_factor": "factor",
    "max_len_extra": "extra",
    "min_len": "min",
    "no_repeat_ngram": "norepeat",
    "precision": "",
}
"""What keys of [decoding] are called in the name of a search."""
Weights = NDArray[np.float32]
OnProgress = Callable[[int], None]
"""Is called now and then with the number of lines that were searched since the last call."""


class Engine(ABC):
    """What searches: source ids in, hypotheses out; no source is empty. `Searcher` is ours."""

    config: DecodingConfig
    sampling: Sampling | None
    """Draws hypotheses at random by `seed`, in place of a search."""
    seed: int
    device: str
    longest_sentence: int
    """Most ids of a source, and of a hypothesis."""
    lengths: TrainingLengths
    """What the model has seen in training."""
    models: "Sequence[TranslationModel]" = ()
    """The models; attention is that of the first. Empty for an exported model."""

    def limit(self, src_length: int) -> int:
        """Most ids of the translation of `src_length` ids."""
        max_len = self.config.max_len(src_length, trained_factor=self.lengths.max_len_factor)
        return min(max_len, self.longest_sentence)

    def best(self, sources: Sequence[Ids], *, on_done: OnDone | None = None) -> list[list[int]]:
        """The best hypothesis of each of `sources`."""
        if self.sampling is None and self.config.beam_size == 1:
            return self.greedy(sources, on_done=on_done)
        return [hyps[0].ids for hyps in self.n_best(sources, n_best=1, on_done=on_done)]

    @abstractmethod
    def greedy(self, sources: Sequence[Ids], *, on_done: OnDone | None) -> list[list[int]]:
        """What greedy search finds for each of `sources`."""

    @abstractmethod
    def n_best(
        self, sources: Sequence[Ids], *, n_best: int, on_done: OnDone | None = None
    ) -> list[list[Hyp]]:
        """The `n_best` best hypotheses of each of `sources`, the best first."""

    @abstractmethod
    def cross_attention(self, sources: Sequence[Ids], hyps: Sequence[Ids]) -> list[Weights]:
        """How much each id of a hypothesis attends to each place in its source, (T, S) for each of
        `hyps`.

        `</s>` does not count. Heads are averaged in the last layer but one, whose cross-attention
        aligns best (Garg et al. 2019). Of several models, the first is asked.
        """

    def align(
        self, sources: Sequence[Ids], hyps: Sequence[Ids], among: Sequence[Sequence[int]]
    ) -> list[list[int]]:
        """The place in its source, one of its `among`, that each id of `hyps` attends to most."""
        aligned = []
        for begin in range(0, len(hyps), ALIGNED_AT_ONCE):
            part = slice(begin, begin + ALIGNED_AT_ONCE)
            weights = self.cross_attention(sources[part], hyps[part])
            for of_hyp, places in zip(weights, among[part], strict=True):
                aligned.append(
                    [places[best] for best in of_hyp[:, list(places)].argmax(-1).tolist()]
                )
        return aligned


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
    reranking: "Reranking | None" = None
    """Which other run chooses among the beams."""
    owns_process: bool = False
    """Whether threads and memory may be set for the whole process, as the program does."""

    def runtime(self, config: DecodingConfig) -> "Runtime":
        """Where, and in which precision.

        Raises:
            ResourceError: there is no such device, or so many threads cannot be set.
        """
        from mt_cli.machine.device import choose_runtime, set_up_process

        if self.owns_process:
            set_up_process(threads=self.threads)
        chosen = choose_runtime(device=self.device, precision=config.precision)
        return chosen if self.owns_process else replace(chosen, threads=self.threads)

    @classmethod
    def of(cls, given: Mapping[str, object]) -> "DecodingOptions":
        """Of fields by name, and of keys of `[decoding]`."""
        search = {
            name: value for name, value in given.items() if name not in cls.__dataclass_fields__
        }
        own: dict[str, Any] = {name: value for name, value in given.items() if name not in search}
        return cls(**own, search=search)

    def checkpoints_of(self, runs: Sequence[Run]) -> list[str]:
        """Names of the checkpoints that are meant of `runs`; what `best` means may change later.

        Raises:
            UsageError: there is no such checkpoint, or not one name for each run.
        """
        names = (
            [self.checkpoint] * len(runs)
            if isinstance(self.checkpoint, str)
            else list(self.checkpoint)
        )
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
            raise UsageError(
                "sampling draws translations and beams search for them; give one of the two"
            )
        known = DecodingConfig.model_fields
        given = {
            name: value
            for name, value in self.search.items()
            if value is not None or name not in known
        }
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
        *,
        reranker: "Reranker | None" = None,
        name: str = "a model",
        quiet: bool = False,
    ) -> None:
        """`engine` searches, and `reranker` chooses among its beams.

        `name` says in the object's representation where the model is from. `quiet` splits long
        lines without a warning.
        """
        self.engine = engine
        self._tokenizers = tokenizers
        self._reranker = reranker
        self._name = name
        self._level = logging.DEBUG if quiet else logging.WARNING
        self._num_searched = 0
        self._num_cut = 0

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
        """Translator of the run folder or exported model `run`; `backend=None` is what it was
        trained with.

        Several runs with the same vocabulary form an ensemble; decoding settings come from the
        first. `checkpoint` is one name for all, or a list with one for each. With `sampling`,
        translations are drawn at random, by `seed`. `search` are keys of `[decoding]`, such as
        `beam_size`; None is the run's own.

        Raises:
            UsageError: there is no such run or checkpoint, or an option is wrong; also a
                ValueError. DataError: a file of the run is missing or altered. ResourceError: there
                is no such device, or too little memory.
        """
        folders = [run] if isinstance(run, str | PathLike) else run
        runs = open_runs(list(map(Path, folders)), may_be_exported=True)
        options = DecodingOptions(checkpoint, backend, device, threads, search, sampling, seed)
        return cls.of_runs(runs, options)

    @classmethod
    def of_runs(
        cls, runs: Sequence[Run], options: DecodingOptions, *, quiet: bool = False
    ) -> "Translator":
        """Translator of opened `runs`; `quiet` splits long lines without a warning.

        Raises:
            UsageError: an option is wrong, or an exported model's engine does not have it.
            ResourceError: no such device, too little memory, or a package is missing.
        """
        first, config = runs[0], options.config_of(runs[0])
        reranker = None
        if options.reranking is not None:
            from mt_cli.translation.scorer import Reranker

            reranker = Reranker(options.reranking, options, of=first)
        engine: Engine
        if first.exported_from is not None:
            from mt_cli.translation.ctranslate2 import ExportedSearcher

            engine = ExportedSearcher(first, config, options)
        else:
            from mt_cli.translation.searcher import Searcher

            engine = Searcher.load(runs, config, options)
        name = " and ".join(str(run.folder) for run in runs)
        return cls(engine, first.tokenizers, reranker=reranker, name=name, quiet=quiet)

    def __repr__(self) -> str:
        engine = self.engine
        search = search_name(
            engine.config, self._tokenizers, sampling=engine.sampling, seed=engine.seed
        )
        return f"<Translator of {self._name}: {search} on {self.engine.device}>"

    def translate(
        self, lines: Iterable[str], *, on_progress: OnProgress | None = None
    ) -> list[str]:
        """The translation of each of `lines`, in order; an empty line's is empty.

        `on_progress` is called now and then with the number of lines that were searched since the
        last call.
        """
        if self._reranker is not None:
            sources, chosen = checked_lines(lines), list[str]()
            for begin in range(0, len(sources), RERANKED_AT_ONCE):
                portion = sources[begin : begin + RERANKED_AT_ONCE]
                found = self.translate_n_best(
                    portion, n_best=self.engine.config.beam_size, on_progress=on_progress
                )
                chosen += self._reranker.choose(portion, found)
            return chosen
        of_lines = self._split(lines)
        parts = [part for of_line in of_lines for part in of_line]
        hyps = self.engine.best(
            [part.ids for part in parts], on_done=counting_lines(of_lines, on_progress)
        )
        self._count_cut(parts, hyps)
        texts = iter(self._detokenize(parts, hyps))
        space = sentence_space(self._tokenizers.options.tgt_lang)
        return [space.join(filter(None, islice(texts, len(of_line)))) for of_line in of_lines]

    def translate_n_best(
        self,
        lines: Iterable[str],
        *,
        n_best: int = 1,
        with_alignment: bool = False,
        on_progress: OnProgress | None = None,
    ) -> list[list[Translation]]:
        """The `n_best` best translations of each of `lines`, the best first; an empty line's are
        empty.

        `on_progress` is called as in `translate`.

        Raises:
            UsageError: `n_best` is no number from 1, or more than the beams.
        """
        if type(n_best) is not int or n_best < 1:
            raise UsageError(
                Option("n_best"), f": expected a whole number from 1, found {n_best!r}"
            )
        if n_best > self.engine.config.beam_size and self.engine.sampling is None:
            raise UsageError(
                f"{n_best} translations a line need as many beams; give ",
                Option("beam_size", n_best),
            )
        of_lines = self._split(lines)
        parts = [part for of_line in of_lines for part in of_line]
        found = self.engine.n_best(
            [part.ids for part in parts],
            n_best=n_best,
            on_done=counting_lines(of_lines, on_progress),
        )
        self._count_cut(parts, [hyps[0].ids for hyps in found])
        repeated = [part for part in parts for _ in range(n_best)]
        hyps = [hyp for hyps in found for hyp in hyps]
        texts = self._detokenize(repeated, [hyp.ids for hyp in hyps])
        aligned: list[list[int]] = [[] for _ in hyps]
        if with_alignment:
            sources = [part.ids for part in repeated]
            aligned = self.engine.align(
                sources, [hyp.ids for hyp in hyps], [range(len(s)) for s in sources]
            )
        flat = [
            Translation(
                text,
                hyp.score,
                tokens=tuple(self._tokenizers.tgt.tokens(hyp.ids)),
                src_tokens=tuple(self._tokenizers.src.tokens(part.ids)),
                alignment=tuple((src, tgt) for tgt, src in enumerate(places)),
                log_prob=hyp.log_prob,
            )
            for part, hyp, text, places in zip(repeated, hyps, texts, aligned, strict=True)
        ]
        of_parts = (flat[begin : begin + n_best] for begin in range(0, len(flat), n_best))
        nothing = [Translation("", 0.0)] * n_best
        return [
            [
                joined(ranked, space=sentence_space(self._tokenizers.options.tgt_lang))
                for ranked in zip(*islice(of_parts, len(of_line)), strict=True)
            ]
            or nothing
            for of_line in of_lines
        ]

    def _count_cut(self, parts: Sequence[Part], hyps: Sequence[Ids]) -> None:
        self._num_searched += len(hyps)
        for part, hyp in zip(parts, hyps, strict=True):
            self._num_cut += len(hyp) >= self.engine.limit(len(part.ids))

    def limit_warning(self) -> str | None:
        """That many translations since the last call ran into the limit of their length; None if
        few did.
        """
        num_cut = self._num_cut
        num_searched = self._num_searched
        self._num_cut = 0
        self._num_searched = 0
        if num_cut < FEW_CUT or num_cut <= MOST_CUT * num_searched:
            return None
        return (
            f"{num_cut} of {num_searched} translations were cut at their longest length; raise "
            "it with --set decoding.max_len_factor=N, unless the model repeats itself"
        )

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        """The log-probability of each of `targets` as the translation of its source (natural
        logarithm).

        Minus infinity for what is impossible: a side that is too long, or words as the translation
        of none.

        Raises:
            UsageError: there are not as many of both, or an exported model translates.
        """
        from mt_cli.translation.scorer import PairScorer

        pairs = [checked_lines(side) for side in (sources, targets)]
        if len(pairs[0]) != len(pairs[1]):
            raise UsageError(
                f"expected a target for each source, found {len(pairs[1])} for {len(pairs[0])}"
            )
        models = (self.model, *self.engine.models[1:])
        engine = cast("Searcher", self.engine)  # an exported model has been refused by now
        size = engine.config.batch_size
        scorer = PairScorer(models, self._tokenizers, runtime=engine.runtime, batch_size=size)
        return [each.log_prob for each in scorer.score(*pairs)]

    def doubt(self, lines: Sequence[str], *, first_line: int = 1) -> str | None:
        """Why `lines` are probably not for this model: letters that it does not know, or another
        language.

        None if nothing speaks against them. `first_line` is the number of the first.
        """
        texts = [normalize(line, lowercase=self._tokenizers.options.lowercase) for line in lines]
        lang = self._tokenizers.options.src_lang
        long = [text for text in texts if len(text) >= LEAST_TEXT][:ENOUGH_LINES]
        others = [other for text in long if (other := other_language(text, lang))]
        if len(others) > len(long) / 2:
            return f"the text looks like {', '.join(dict.fromkeys(others))}; the model translates {lang}"
        for number, text in enumerate(texts, first_line):
            if self._known_letters.issuperset(text):  # nearly every line, at a glance
                continue
            letters = [letter for letter in text if letter.isalpha()]
            strange = [letter for letter in letters if letter not in self._known_letters]
            if len(letters) >= LEAST_LETTERS and len(strange) > len(letters) / 2:
                return (
                    f"line {number}: the model does not know most letters of {visible(text)[:60]!r}"
                )
        return None

    @cached_property
    def _known_letters(self) -> frozenset[str]:
        entries = self._tokenizers.src.entries[len(SPECIALS) :]
        return frozenset(" ").union(*(entry for entry in entries if not entry.startswith("<0x")))

    @property
    def model(self) -> "TranslationModel":
        """The model whose attention is shown; of several, the first.

        Raises:
            UsageError: an exported model translates, which has none.
        """
        if not self.engine.models:
            raise UsageError(
                f"{self._name}: an exported model only translates; name the run that it was "
                "exported from"
            )
        return self.engine.models[0]

    def teacher_force(self, line: str, *, target: str | None = None) -> "TeacherForced":
        """`line` and a translation as one pass of the model takes them, for looking inside.

        The translation is `target`, or the translator's own. Of a line that is translated in parts,
        the first is looked at.

        Raises:
            UsageError: `line` or `target` is empty, the model cannot take all of it, or it is
                exported.
        """
        model = self.model
        import torch

        from mt_cli.translation.attention import TeacherForced

        parts = self._split([checked_line(line, name="line")])[0]
        if not parts:
            raise UsageError("the text is empty: there is nothing to look at; give a sentence")
        ids, is_complete = parts[0].ids, True
        if target is None:
            (hyp,) = self.engine.best([ids])
            translation = self._detokenize(parts[:1], [hyp])[0]
            is_complete = len(hyp) < self.engine.limit(
                len(ids)
            )  # one that ran into its limit has no end
        elif len(parts) > 1:
            raise UsageError(
                "the line is longer than the model takes; leave out ", Option("target")
            )
        else:
            translation = normalize(checked_line(target, name="target"))
            (hyp,) = self._tokenizers.encode([translation], "tgt")
            if not 0 < len(hyp) <= model.longest_sentence:
                raise UsageError(
                    Option("target"),
                    f": expected 1 to {model.longest_sentence} tokens, found {len(hyp)}",
                )
        device = next(model.parameters()).device
        tokens = self._tokenizers.tgt.tokens(hyp)
        num_given = (
            len(hyp) + is_complete
        )  # a complete translation has one more place, which predicts `</s>`
        return TeacherForced(
            source=parts[0].text,
            translation=translation,
            src_ids=torch.tensor([[*ids, EOS_ID]], device=device),
            tgt_in=torch.tensor([[BOS_ID, *hyp][:num_given]], device=device),
            src_tokens=(*self._tokenizers.src.tokens(ids), SPECIALS[EOS_ID]),
            tgt_tokens=(SPECIALS[BOS_ID], *tokens)[:num_given],
            predicted_tokens=(*tokens, SPECIALS[EOS_ID])[:num_given],
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

    def _split(self, lines: Iterable[str]) -> list[list[Part]]:
        """The parts of each of `lines` that the model can take, usually one; none of an empty line."""
        texts = [normalize(line) for line in checked_lines(lines)]
        return [
            self._parts(text, ids)
            for text, ids in zip(texts, self._tokenizers.encode(texts, "src"), strict=True)
        ]

    def _parts(self, text: str, ids: list[int]) -> list[Part]:
        """What is translated of a line at once: no more than the model takes, and than training
        showed it.
        """
        if not ids:
            return []
        trained = self.engine.lengths
        longest = self.engine.longest_sentence
        lang = self._tokenizers.options.src_lang
        num_sentences = len(split_sentences(text, lang))
        is_like_training = num_sentences <= trained.sentences and len(ids) <= trained.src_tokens
        if len(ids) <= longest and (is_like_training or num_sentences == 1):
            return [Part(text, ids)]
        texts = split_text(
            text,
            lang,
            num_tokens=lambda part: len(self._tokenizers.encode([part], "src")[0]),
            longest=longest,
            longest_together=min(trained.src_tokens, longest),
            most_together=trained.sentences,
        )
        if len(texts) > num_sentences:
            log.log(
                self._level,
                "a line of %d tokens has a sentence of more than the model's %d, which is cut: "
                "%.60s…",
                len(ids),
                longest,
                text,
            )
        encoded = zip(texts, self._tokenizers.encode(texts, "src"), strict=True)
        return [Part(part, part_ids[:longest]) for part, part_ids in encoded if part_ids]

    def _detokenize(self, parts: Sequence[Part], hyps: Sequence[list[int]]) -> list[str]:
        """The text of each of `hyps`, in which source words stand for what the vocabulary lacks."""
        src, tgt = self._tokenizers.src, self._tokenizers.tgt
        texts = tgt.decode(hyps)
        is_replaced = self.engine.config.replace_unk
        if not (is_replaced and isinstance(src, WordTokenizer) and isinstance(tgt, WordTokenizer)):
            return texts
        unknown = [i for i, hyp in enumerate(hyps) if UNK_ID in hyp]
        sources = [parts[i].ids for i in unknown]
        # What is unknown in the translation is nearly always unknown in the source too.
        among = [
            [at for at, each in enumerate(ids) if each == UNK_ID] or range(len(ids))
            for ids in sources
        ]
        aligned = self.engine.align(sources, [hyps[i] for i in unknown], among)
        for i, ids, places in zip(unknown, sources, aligned, strict=True):
            (words,) = split_words([parts[i].text], src.lang)
            if len(words) != len(ids):  # in lower case, the words were others
                (words,) = split_words([normalize(parts[i].text, lowercase=True)], src.lang)
            texts[i] = join_words(
                words[place].removeprefix(JOINER) if each == UNK_ID else tgt.entries[each]
                for each, place in zip(hyps[i], places, strict=True)
            )
        return texts


def search_name(
    config: DecodingConfig,
    tokenizers: Tokenizers,
    *,
    sampling: Sampling | None = None,
    seed: int = 1,
) -> str:
    """How translations are searched for, or drawn, in a word that can name a folder.

    It has every key of [decoding] that is not at its default and may change a translation.
    """
    if sampling is not None:
        name = f"sample{sampling}-seed{seed}"
    elif config.beam_size == 1:
        name = "greedy"
    else:
        name = f"beam{config.beam_size}-alpha{config.length_penalty}".removesuffix(".0")
    unimportant = {"beam_size", "length_penalty", "batch_size"}
    if tokenizers.kind != "spacy":
        unimportant.add("replace_unk")  # subwords never say `<unk>`
    for key, of_key in DecodingConfig.model_fields.items():
        value = getattr(config, key)
        if key not in unimportant and value != of_key.default:
            name += f"-{_named_value(key, value)}"
    return name


def _named_value(key: str, value: object) -> str:
    """A key of [decoding] and its value in the name of a search."""
    if isinstance(value, bool):
        word = key.replace("_", "-")
        return word if value else f"no-{word}"
    text = str(value).removesuffix(".0")
    return f"{NAMED.get(key, key)}{text}"
