"""`Translator`: lines in, lines out. The one place that joins text, model and search.

The commands, and validation while training, all translate through it.
"""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, cast

from mt_cli.config.schema import Backend, Device
from mt_cli.decoding import Hyp, Ids, OnDone
from mt_cli.errors import UsageError
from mt_cli.runs.run import Run, open_models
from mt_cli.text import UNK_ID
from mt_cli.text.language import sentence_space
from mt_cli.text.normalize import normalize
from mt_cli.text.numbers import changes_a_number
from mt_cli.text.sentences import split_sentences, split_text
from mt_cli.text.tokenizers import Tokenizers
from mt_cli.text.words import JOINER, WordTokenizer, join_words, split_words
from mt_cli.translation.ctranslate2_engine import CTranslate2Engine
from mt_cli.translation.engine import Engine
from mt_cli.translation.glossary import Glossary, TermPlacer
from mt_cli.translation.lines import (
    Line,
    Part,
    SourceSide,
    Translation,
    checked_line,
    checked_lines,
    counting_lines,
    ids_of_prefix,
    joined,
    place_of_copied,
    read_line,
    read_words_in_capitals,
    unknown_places,
    words_of,
)
from mt_cli.translation.numpy_engine import load_engine
from mt_cli.translation.options import DecodingOptions, search_facts, search_name

if TYPE_CHECKING:
    from mt_cli.model.model import TranslationModel
    from mt_cli.translation.scorer import Reranker
    from mt_cli.translation.searcher import Searcher

log = logging.getLogger(__name__)
FEW_CUT = 3
"""Fewer translations that reached their maximum length are no reason for a warning."""
SMALL_SHARE_CUT = 0.01
"""Nor is this share of them."""
RERANKED_TOGETHER = 128
"""Lines searched before their candidates are reranked; it bounds memory."""
OnProgress = Callable[[int], None]
"""Called now and then with the number of lines that were searched since the last call."""


class Translator:
    """Translates sentences with a trained model, or several together, for one thread at a time."""

    def __init__(
        self,
        engine: Engine,
        tokenizers: Tokenizers,
        *,
        glossary: Glossary | None = None,
        reranker: "Reranker | None" = None,
        name: str = "a model",
        quiet: bool = False,
    ) -> None:
        """`engine` searches, terms are those of `glossary`, `reranker` chooses among its beams.

        `name` says in the object's representation where the model is from. `quiet` splits long
        lines without a warning.
        """
        self.engine = engine
        self.tokenizers = tokenizers
        self.glossary = glossary
        self._term_placer = None
        if glossary is not None:
            self._term_placer = TermPlacer(glossary, engine, tokenizers)
        self._reranker = reranker
        self._name = name
        self._level = logging.DEBUG if quiet else logging.WARNING
        self._process = os.getpid()
        self._loaded_from: tuple[list[Path], DecodingOptions] | None = None
        self._start_counting()

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
        """Translator of the run folder or exported model `run`.

        Several runs with the same vocabulary form an ensemble; decoding settings come from the
        first. `checkpoint` is one name for all, or a list with one for each. `backend=None` is what
        the run was trained with. `search` are keys of `[decoding]`, such as `beam_size`; None is
        the run's own.

        Raises:
            UsageError: there is no such run or checkpoint, or an option is wrong; also a
                ValueError. DataError: a file of the run is missing or altered. ResourceError: there
                is no such device, or too little memory.
        """
        folders = [run] if isinstance(run, str | PathLike) else run
        options = DecodingOptions(checkpoint, backend, device, threads, search)
        return cls.of_models(open_models([Path(folder) for folder in folders]), options)

    @classmethod
    def of_models(
        cls,
        models: Sequence[Run],
        options: DecodingOptions,
        *,
        glossary: Glossary | None = None,
        quiet: bool = False,
    ) -> "Translator":
        """Translator of opened runs or an exported model; raises as `load` does.

        `glossary` is the one that `options` name, if it has been read.
        """
        first = models[0]
        config = options.config_of(first)
        checkpoints = options.checkpoints_of(models)
        if config.glossary is not None:
            glossary = glossary or Glossary.read(config.glossary)
            search = {**options.search, "glossary": config.glossary.resolve()}
            options = replace(options, search=search)
        reranker = None
        if config.rerank_with is not None:
            from mt_cli.translation.scorer import Reranker

            reranker = Reranker(config, options, of=first)
        engine: Engine
        if first.is_exported:
            engine = CTranslate2Engine(first, config, options)
        else:
            engine = load_engine(models, config, options)
        name = " and ".join(str(model.folder) for model in models)
        translator = cls(
            engine, first.tokenizers, glossary=glossary, reranker=reranker, name=name, quiet=quiet
        )
        folders = [model.folder.resolve() for model in models]
        translator._loaded_from = folders, replace(options, checkpoint=checkpoints)
        return translator

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle where the models are; whoever unpickles it loads them again."""
        if self._loaded_from is None:
            raise TypeError("only a Translator that was loaded from a folder can be pickled")
        return _loaded_again, self._loaded_from

    def __repr__(self) -> str:
        engine = self.engine
        facts = search_facts(engine.config, self.tokenizers)
        words = [search_name(engine.config, {})]
        words += [f"{key}={value}" for key, value in facts.items()]
        return f"<Translator of {self._name}: {' '.join(words)} on {engine.device}>"

    def translate(
        self, lines: Iterable[str], *, prefix: str = "", on_progress: OnProgress | None = None
    ) -> list[str]:
        """The translation of each of `lines`, in order; what is no word of any language is copied.

        Each begins with `prefix`, whose last word may go on. `on_progress` is called now and then
        with the number of lines searched since the last call.

        Raises:
            UsageError: a translation cannot begin with `prefix`.
        """
        if self._reranker is not None:
            return self._translate_reranked(self._reranker, lines, prefix, on_progress)
        found = self._translations(
            lines, n_best=1, prefix=prefix, is_detailed=False, on_progress=on_progress
        )
        return [of_line[0].text for of_line in found]

    def _translate_reranked(
        self,
        reranker: "Reranker",
        lines: Iterable[str],
        prefix: str,
        on_progress: OnProgress | None,
    ) -> list[str]:
        sources = self._normalized(lines)
        chosen: list[str] = []
        for begin in range(0, len(sources), RERANKED_TOGETHER):
            portion = sources[begin : begin + RERANKED_TOGETHER]
            candidates = self.translate_n_best(
                portion,
                n_best=self.engine.config.beam_size,
                prefix=prefix,
                on_progress=on_progress,
            )
            for source, of_line in zip(portion, candidates, strict=True):
                missing = [len(self.missing_terms(source, each.text)) for each in of_line]
                of_line[:] = [of_line[i] for i, num in enumerate(missing) if num <= missing[0]]
            chosen += reranker.choose(portion, candidates)
        return chosen

    def translate_n_best(
        self,
        lines: Iterable[str],
        *,
        n_best: int = 1,
        prefix: str = "",
        with_alignment: bool = False,
        with_words: bool = False,
        on_progress: OnProgress | None = None,
    ) -> list[list[Translation]]:
        """The `n_best` best translations of each of `lines`, the best first.

        `with_words` tells how sure the model is of each word, by its log-probability. What is no
        word of any language is copied. `prefix` and `on_progress` are as in `translate`.

        Raises:
            UsageError: `n_best` is no number from 1, or more than the beams; or as in `translate`.
        """
        if type(n_best) is not int or n_best < 1:
            raise UsageError(f"n_best: expected a whole number from 1, found {n_best!r}")
        if n_best > self.engine.config.beam_size and not self.engine.config.temperature:
            raise UsageError(f"{n_best} translations a line need --beam-size {n_best}")
        return self._translations(
            lines,
            n_best=n_best,
            prefix=prefix,
            with_alignment=with_alignment,
            with_words=with_words,
            on_progress=on_progress,
        )

    def _translations(
        self,
        lines: Iterable[str],
        *,
        n_best: int,
        prefix: str,
        is_detailed: bool = True,
        with_alignment: bool = False,
        with_words: bool = False,
        on_progress: OnProgress | None = None,
    ) -> list[list[Translation]]:
        """Read, split, search, detokenize, join; without details, translations have only a text."""
        sources = self._read(lines)
        parts_of_lines = self._split(sources)
        parts = list(chain.from_iterable(parts_of_lines))
        prefix_ids = ids_of_prefix(
            prefix, self.tokenizers, longest=self.engine.longest_sentence - 1
        )
        prefixes: list[Ids] = []  # only the first part of a line has one
        for of_parts in parts_of_lines:
            prefixes += [prefix_ids, *[()] * len(of_parts)][: len(of_parts)]
        hyps_of_parts, prefixes = self.search(
            parts,
            prefixes,
            n_best=n_best,
            is_scored=is_detailed,
            on_done=counting_lines(parts_of_lines, on_progress),
        )
        self._count_cut(parts, prefixes, hyps_of_parts)
        repeated = [part for part in parts for _ in range(n_best)]
        hyps = list(chain.from_iterable(hyps_of_parts))
        texts = self.detokenize(repeated, [hyp.ids for hyp in hyps])
        translations = [Translation(text, 0.0) for text in texts]
        if is_detailed:
            translations = self._detailed(
                repeated,
                hyps,
                texts,
                [len(prefixes[i // n_best]) for i in range(len(repeated))],
                with_alignment=with_alignment,
                with_words=with_words,
            )
        space = sentence_space(self.tokenizers.options.tgt_lang)
        joined_lines = []
        begin = 0
        for source, parts_of_line in zip(sources, parts_of_lines, strict=True):
            end = begin + n_best * len(parts_of_line)
            of_line = []
            for rank in range(n_best):
                of_rank = slice(begin + rank, end, n_best)
                whole = joined(translations[of_rank], space=space)
                if source.copied:
                    place_of = partial(
                        place_of_copied,
                        parts=repeated[of_rank],
                        hyps=[hyp.ids for hyp in hyps[of_rank]],
                        texts=texts[of_rank],
                        align=cache(partial(self._align, repeated[of_rank], hyps[of_rank])),
                        tokenizers=self.tokenizers,
                    )
                    whole = replace(whole, text=source.around(whole.text, place_of))
                of_line.append(whole)
            joined_lines.append(of_line)
            begin = end
        self._count_wrong(sources, [of_line[0].text for of_line in joined_lines])
        return joined_lines

    def search(
        self,
        parts: Sequence[Part],
        prefixes: list[Ids],
        *,
        n_best: int = 1,
        is_scored: bool = True,
        on_done: OnDone | None = None,
    ) -> tuple[list[list[Hyp]], list[Ids]]:
        """`Engine.search` for `parts`, and again where terms of the glossary are missing.

        Returns what the hypotheses of each part had to begin with, too.
        """
        found = self.engine.search(
            [part.ids for part in parts],
            prefixes=prefixes,
            n_best=n_best,
            is_scored=is_scored,
            on_done=on_done,
        )
        if self._term_placer is None:
            return found, prefixes
        return self._term_placer.place(parts, found, prefixes, n_best=n_best, is_scored=is_scored)

    def _align(self, parts: Sequence[Part], hyps: Sequence[Hyp], number: int) -> list[int]:
        """The source token that each token of the part `number` attends to most."""
        ids = parts[number].ids
        return self.engine.align([ids], [hyps[number].ids], [range(len(ids))])[0]

    def _detailed(
        self,
        parts: Sequence[Part],
        hyps: Sequence[Hyp],
        texts: Sequence[str],
        nums_given: Sequence[int],
        *,
        with_alignment: bool,
        with_words: bool,
    ) -> list[Translation]:
        """Translations of `parts` with scores, tokens, and perhaps alignments and words."""
        src_ids = [part.ids for part in parts]
        tgt_ids = [hyp.ids for hyp in hyps]
        aligned: list[list[int]] = [[] for _ in hyps]
        if with_alignment:
            aligned = self.engine.align(src_ids, tgt_ids, [range(len(ids)) for ids in src_ids])
        log_probs: list[list[float]] = [[] for _ in hyps]
        if with_words:
            log_probs = self.engine.token_log_probs(src_ids, tgt_ids)
        found = []
        for i, hyp in enumerate(hyps):
            found.append(
                Translation(
                    texts[i],
                    hyp.score,
                    tokens=tuple(self.tokenizers.tgt.tokens(hyp.ids)),
                    src_tokens=tuple(self.tokenizers.src.tokens(src_ids[i])),
                    alignment=tuple((src, tgt) for tgt, src in enumerate(aligned[i])),
                    log_prob=hyp.log_prob,
                    num_given=nums_given[i],
                    words=words_of(hyp.ids, log_probs[i], self.tokenizers.tgt),
                )
            )
        return found

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        """The log-probability of each of `targets` as the translation of its source.

        It is the natural logarithm, and minus infinity for what is impossible: a side that is too
        long, or a translation of an empty source that is not empty.

        Raises:
            UsageError: there are not as many of both, or an exported model translates.
        """
        from mt_cli.translation.scorer import PairScorer

        sources = self._normalized(sources)
        targets = checked_lines(targets)
        if len(sources) != len(targets):
            raise UsageError(f"{len(targets)} targets for {len(sources)} sources")
        models = (self.model, *self.engine.models[1:])
        engine = cast("Searcher", self.engine)  # `model` has refused an exported model
        scorer = PairScorer(
            models,
            self.tokenizers,
            runtime=engine.runtime,
            batch_size=engine.config.batch_size,
        )
        return [log_prob for log_prob, _ in scorer.score(sources, targets)]

    # Warnings

    def _start_counting(self) -> None:
        self._num_lines = 0
        self._changed_numbers: list[int] = []  # numbers of these lines, from 1
        # And of those that lack a term of the glossary, with the first of them.
        self._without_terms: list[tuple[int, str]] = []
        self._num_searched = 0
        self._num_cut = 0  # translations that reached their maximum length

    def take_warnings(self) -> list[str]:
        """What looks wrong with the translations since the last call, a sentence each.

        Numbers that were lost or changed; terms of the glossary that are missing; many translations
        that reached their maximum length.
        """
        warnings = []
        if self._changed_numbers:
            warnings.append(
                f"{len(self._changed_numbers)} of {self._num_lines} lines lost or changed a "
                f"number, the first is line {self._changed_numbers[0]}"
            )
        if self._without_terms:
            line, term = self._without_terms[0]
            warnings.append(
                f"{len(self._without_terms)} of {self._num_lines} lines lack a term of the "
                f"glossary, the first is line {line} ({term})"
            )
        if self._num_cut >= FEW_CUT and self._num_cut > SMALL_SHARE_CUT * self._num_searched:
            warnings.append(
                f"{self._num_cut} of {self._num_searched} translations reached their maximum "
                "length; raise it with --set decoding.max_len_factor=N, unless the model repeats "
                "itself"
            )
        self._start_counting()
        return warnings

    def _count_cut(
        self, parts: Sequence[Part], prefixes: Sequence[Ids], hyps: Sequence[Sequence[Hyp]]
    ) -> None:
        self._num_searched += len(hyps)
        for part, prefix, of_part in zip(parts, prefixes, hyps, strict=True):
            limit = self.engine.limit(len(part.ids), len(prefix))
            self._num_cut += len(of_part[0].ids) >= limit

    def _count_wrong(self, sources: Sequence[Line], translations: Sequence[str]) -> None:
        for source, translation in zip(sources, translations, strict=True):
            self._num_lines += 1
            if self.changes_a_number(source.original, translation):
                self._changed_numbers.append(self._num_lines)
            missing = self.missing_terms(source.original, translation)
            if missing:
                self._without_terms.append((self._num_lines, missing[0]))

    def changes_a_number(self, source: str, translation: str) -> bool:
        """Whether `translation` lost or changed a number of `source`; see `text.numbers`."""
        options = self.tokenizers.options
        return changes_a_number(
            source, translation, src_lang=options.src_lang, tgt_lang=options.tgt_lang
        )

    def missing_terms(self, line: str, translation: str) -> list[str]:
        """The terms of the glossary that `line` has and `translation` does not translate so.

        What is copied has none.
        """
        if self.glossary is None:
            return []
        (source,) = self._read([line])
        terms = self.glossary.terms_in(source.text)
        return [term.name for term in terms if not term.is_in(translation)]

    @cached_property
    def _source_side(self) -> SourceSide:
        return SourceSide(self.tokenizers)

    # Looking inside

    @property
    def model(self) -> "TranslationModel":
        """The model whose attention is shown; of several, the first.

        Raises:
            UsageError: an exported model translates, which has none.
        """
        if not self.engine.models:
            raise UsageError(
                f"{self._name}: an exported model only translates; name the run it is from"
            )
        return self.engine.models[0]

    def parts_of(self, line: str) -> list[Part]:
        """`line` as the model takes it: usually one part; none if there is no word in it.

        Raises:
            UsageError: it is no str.
        """
        return self._split(self._read([checked_line(line, name="line")]))[0]

    # Text to ids, and back

    def _normalized(self, lines: Iterable[str]) -> list[str]:
        """`lines` normalized, and lines in capitals as `decoding.capitals` says.

        Raises:
            UsageError: the translator is a forked process's copy, whose threads are gone.
        """
        if os.getpid() != self._process:
            raise UsageError(
                "this Translator was loaded before a fork; load it in each process, or pickle it"
            )
        reading = self.engine.config.capitals
        return [read_words_in_capitals(normalize(line), reading) for line in checked_lines(lines)]

    def _read(self, lines: Iterable[str]) -> list[Line]:
        """`lines` normalized, each without what is copied."""
        return [read_line(line, knows=self._source_side.knows) for line in self._normalized(lines)]

    def _split(self, lines: Sequence[Line]) -> list[list[Part]]:
        """The parts of each of `lines` that the model can take: usually one; none without words."""
        texts = [line.text for line in lines]
        encoded = self.tokenizers.encode(texts, "src")
        return [self._parts(text, ids) for text, ids in zip(texts, encoded, strict=True)]

    def _parts(self, text: str, ids: list[int]) -> list[Part]:
        """The parts of a line: no longer than the model takes, nor than training showed it."""
        if not ids:
            return []
        trained = self.engine.lengths
        longest = self.engine.longest_sentence
        lang = self.tokenizers.options.src_lang
        sentences = split_sentences(text, lang)
        num_sentences = len(sentences)
        is_like_training = num_sentences <= trained.sentences and len(ids) <= trained.src_tokens
        if len(ids) <= longest and (is_like_training or num_sentences == 1):
            return [Part(text, ids)]
        texts = split_text(
            text,
            lang,
            num_tokens=lambda part: len(self.tokenizers.encode([part], "src")[0]),
            longest=longest,
            longest_together=min(trained.src_tokens, longest),
            most_together=trained.sentences,
        )
        if any(len(ids) > longest for ids in self.tokenizers.encode(sentences, "src")):
            log.log(
                self._level,
                "a line of %d tokens has a sentence of more than the model's %d, which is split: "
                "%.60s…",
                len(ids),
                longest,
                text,
            )
        encoded = self.tokenizers.encode(texts, "src")
        parts = []
        for part, part_ids in zip(texts, encoded, strict=True):
            if part_ids:
                parts.append(Part(part, part_ids[:longest]))
        return parts

    def detokenize(self, parts: Sequence[Part], hyps: Sequence[list[int]]) -> list[str]:
        """The text of each of `hyps`, in which source words stand for what the vocabulary lacks."""
        src = self.tokenizers.src
        tgt = self.tokenizers.tgt
        texts = tgt.decode(hyps)
        if not self.engine.config.replace_unk:
            return texts
        if not (isinstance(src, WordTokenizer) and isinstance(tgt, WordTokenizer)):
            return texts
        with_unknown = [i for i, hyp in enumerate(hyps) if UNK_ID in hyp]
        sources = [parts[i].ids for i in with_unknown]
        aligned = self.engine.align(
            sources, [hyps[i] for i in with_unknown], [unknown_places(ids) for ids in sources]
        )
        for i, ids, places in zip(with_unknown, sources, aligned, strict=True):
            (words,) = split_words([parts[i].text], src.lang)
            if len(words) != len(ids):  # in lower case, the words were others
                (words,) = split_words([normalize(parts[i].text, lowercase=True)], src.lang)
            replaced = []
            for token_id, place in zip(hyps[i], places, strict=True):
                is_unknown = token_id == UNK_ID
                word = words[place].removeprefix(JOINER) if is_unknown else tgt.entries[token_id]
                replaced.append(word)
            texts[i] = join_words(replaced)
        return texts


def _loaded_again(folders: list[Path], options: DecodingOptions) -> Translator:
    return Translator.of_models(open_models(folders), options)
