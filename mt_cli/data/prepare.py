"""`prepare`: from a corpus to encoded splits, tokenizers and a report.

Reads the training text twice and holds none of it: once to learn from, once to encode.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from mt_cli.config.schema import TRAIN, Config
from mt_cli.data.corpora import (
    Corpus,
    CorpusSplit,
    RawPair,
    corpus_hashes,
    find_corpus,
    is_trained_on,
    paths_of,
    pinned_hashes,
    read_pairs,
)
from mt_cli.data.prepared import (
    TOKENIZER,
    CorpusReport,
    EncodedPairs,
    EncodedSplit,
    Prepared,
    Sentences,
    SideReport,
    SplitReport,
    SplitWriter,
    complete_prepared,
    id_type,
    open_prepared,
    open_split,
)
from mt_cli.errors import DataError, UsageError
from mt_cli.machine.files import MANIFEST, built_beside, check_outside, is_free, locked, write_atomically
from mt_cli.machine.processes import ordered_map, usable_cores
from mt_cli.machine.terminal import progress_bar
from mt_cli.text.normalize import Hashes, decode_line, hash_texts, is_valid_utf8, normalize, strip_line_end
from mt_cli.text.tokenizer import (
    SAMPLE_SIZE,
    PairSample,
    TextOptions,
    Tokenizers,
    WordCounts,
    build_word_tokenizers,
    count_pairs,
    learn_subword_tokenizers,
)

log = logging.getLogger(__name__)

PAIRS_PER_JOB = 2000
MOST_WORKERS = 16
"""More would wait for the one process that reads and writes."""
MOST_INVALID = 0.05
"""Share of lines that are not UTF-8 above which the files must be in another encoding."""
WORTH_SEVERAL_WORKERS = 1 << 25
"""Bytes of input below which starting processes costs more time than they save."""


@dataclass(frozen=True)
class GivenTokenizers:
    """The tokenizers of a run, for data on which that run's model is to be trained further."""

    tokenizers: Tokenizers
    sha256: Mapping[str, str]
    """Of their files."""


@dataclass(frozen=True)
class PrepareResult:
    """What `prepare` made or found."""

    folder: Path
    report: CorpusReport
    is_new: bool
    """False where everything was there already and nothing had changed."""


def prepare_corpus(
    config: Config,
    *,
    out: Path,
    given: GivenTokenizers | None = None,
    source: Path | None = None,
    offline: bool = False,
    force: bool = False,
    workers: int = 1,
) -> PrepareResult:
    """Prepare `config`'s corpus into the folder `out`, unless it is there already and nothing changed.

    Without `given` tokenizers, they are learned. `workers` processes do the work, 0 choosing by size; the
    result is the same to the byte.
    """
    with locked(out):
        existing = None if force else _open_existing(out)
        taken = dict(given.sha256) if given else {}
        # Pinned files are known without being at hand; those of --from are looked at all the same.
        pinned = pinned_hashes(config.data) if source is None else None
        if existing and pinned and _is_made_of(existing, config, pinned | taken):
            return PrepareResult(out, existing.report(), is_new=False)
        corpus = find_corpus(config.data, source=source, offline=offline)
        check_outside(out, paths_of(corpus), way_out="copy it to another place")
        inputs = corpus_hashes(corpus) | taken
        if existing and _is_made_of(existing, config, inputs):
            return PrepareResult(out, existing.report(), is_new=False)
        _check_ours(out)
        started_at = time.monotonic()
        with built_beside(out) as folder:
            if not workers:
                sizes = (
                    path.stat().st_size * (3 if path.suffix == ".gz" else 1) for path in paths_of(corpus)
                )
                workers = usable_cores() if sum(sizes) >= WORTH_SEVERAL_WORKERS else 1
            workers = min(workers, MOST_WORKERS)
            tokenizers = given.tokenizers if given else None
            report = _build(config, corpus, folder, inputs=inputs, tokenizers=tokenizers, workers=workers)
    log.info("%s prepared in %.1f s\n%s", out, time.monotonic() - started_at, report.as_text())
    return PrepareResult(out, report, is_new=True)


def _check_ours(out: Path) -> None:
    """Make sure that `out` is free or holds prepared data.

    Raises:
        UsageError: it holds something else, which must not be replaced.
    """
    if not is_free(out) and not (out / MANIFEST).exists():
        raise UsageError(f"{out}: exists and is no prepared data (no {MANIFEST} in it); move it away")


def _open_existing(out: Path) -> Prepared | None:
    """What `out` holds already; None where that is nothing, or damaged."""
    _check_ours(out)
    if is_free(out):
        return None
    try:
        return open_prepared(out)
    except DataError as error:
        log.warning("preparing again: %s", error)
        return None


def _is_made_of(existing: Prepared, config: Config, inputs: dict[str, str]) -> bool:
    return existing.manifest.inputs == inputs and not existing.manifest.differing_keys(config)


def _build(
    config: Config,
    corpus: Corpus,
    folder: Path,
    *,
    inputs: dict[str, str],
    tokenizers: Tokenizers | None,
    workers: int,
) -> CorpusReport:
    """Fill `folder`."""
    options = TextOptions(config.data.src_lang, config.data.tgt_lang, config.data.lowercase)
    is_words = config.tokenizer.kind == "spacy"
    surveys = {}
    for name in corpus:
        is_learned_from = name == TRAIN and tokenizers is None
        job = SurveyJob(options, is_learned_from and is_words, is_learned_from and not is_words)
        surveys[name] = _survey(corpus, name, job, workers=workers)
    if tokenizers is None and is_words:
        tokenizers = build_word_tokenizers(surveys[TRAIN].counts, config.tokenizer, options)
    elif tokenizers is None:
        tokenizers = learn_subword_tokenizers(surveys[TRAIN].pairs, config.tokenizer, options)
    for name, data in tokenizers.to_files().items():
        write_atomically(folder / TOKENIZER / name, data)
    splits = {}
    for name in config.data.splits:
        encoded = encode_split(config, corpus, name, tokenizers, folder, workers=workers)
        whole, begin = open_split(folder, name), 0
        for part, of_part in encoded.items():
            pairs = whole.slice(begin, begin + of_part.num_pairs)
            splits[part] = _describe_split(pairs, part, surveys, of_part.dropped)
            begin += of_part.num_pairs
    report = CorpusReport(
        src_vocab_size=tokenizers.src.vocab_size, tgt_vocab_size=tokenizers.tgt.vocab_size, splits=splits
    )
    complete_prepared(folder, config, inputs=inputs, report=report)
    return report


def _survey(corpus: Corpus, name: str, job: "SurveyJob", *, workers: int) -> "Survey":
    survey = survey_split(
        corpus[name], job, label=f"reading {name}", workers=workers if is_trained_on(name) else 1
    )
    log.debug("%s: %d lines read", name, survey.lines)
    if survey.invalid > survey.lines * MOST_INVALID:
        raise DataError(
            f"{corpus[name].src.path}: {survey.invalid} of {survey.lines} pairs are not valid UTF-8; "
            "convert the files first, with iconv -f latin1 -t utf-8 for instance"
        )
    if survey.invalid:
        log.warning(
            "%s: %d pairs are not valid UTF-8; what could not be read is left out", name, survey.invalid
        )
    if not survey.lines:
        raise DataError(f"{corpus[name].src.path}: empty; '{name}' needs at least one line")
    if is_trained_on(name) and not len(survey.pair_hashes):
        raise DataError(f"{corpus[name].src.path}: no line of '{name}' has text on both sides")
    return survey


def _describe_split(
    split: EncodedSplit, name: str, surveys: "dict[str, Survey]", dropped: Counter[str]
) -> SplitReport:
    survey = surveys[name]
    src_in_train = pairs_in_train = None
    if name != TRAIN:
        # Of an added part, what it repeats of the corpus's own; of a test, what any part gives away.
        given = [TRAIN] if is_trained_on(name) else [part for part in surveys if is_trained_on(part)]
        src_in_train = count_common(survey.src_hashes, [surveys[part].src_hashes for part in given])
        pairs_in_train = count_common(survey.pair_hashes, [surveys[part].pair_hashes for part in given])
    return SplitReport(
        lines=survey.lines,
        pairs=len(split),
        dropped=dict(sorted(dropped.items())),
        invalid_utf8=survey.invalid,
        duplicates=survey.duplicates,
        src_in_train=src_in_train,
        pairs_in_train=pairs_in_train,
        src=SideReport.of(split.src),
        tgt=SideReport.of(split.tgt),
    )


# The first pass: counts what there is and gathers what tokenizers learn from


@dataclass
class Survey:
    """What was found in some raw pairs; those with an empty side count as lines only."""

    lines: int = 0
    invalid: int = 0
    """Lines with a side that is not valid UTF-8."""
    src_hashes: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    pair_hashes: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    """Of each filled pair: eight bytes a pair."""
    counts: WordCounts = field(default_factory=WordCounts)
    pairs: list[tuple[str, str]] = field(default_factory=list)
    """The normalised pairs, or a sample of them."""

    @property
    def duplicates(self) -> int:
        """Pairs that repeat an earlier one."""
        return len(self.pair_hashes) - len(np.unique(self.pair_hashes))


@dataclass(frozen=True)
class SurveyJob:
    """What has to be known of some raw pairs."""

    options: TextOptions
    counts_words: bool
    samples_pairs: bool

    def __call__(self, raw: Sequence[RawPair]) -> Survey:
        """Survey `raw`."""
        pairs = [(self._normalize(src), self._normalize(tgt)) for src, tgt in raw]
        filled = [(src, tgt) for src, tgt in pairs if src and tgt]
        return Survey(
            lines=len(raw),
            invalid=sum(not (is_valid_utf8(src) and is_valid_utf8(tgt)) for src, tgt in raw),
            src_hashes=hash_texts(src for src, _ in filled),
            pair_hashes=hash_texts(f"{src}\n{tgt}" for src, tgt in filled),
            counts=count_pairs(filled, self.options) if self.counts_words else WordCounts(),
            pairs=filled if self.samples_pairs else [],
        )

    def _normalize(self, raw: bytes) -> str:
        return normalize(decode_line(raw), lowercase=self.options.lowercase)


def survey_split(split: CorpusSplit, job: SurveyJob, *, label: str, workers: int) -> Survey:
    """Read `split` once, holding no more of it than sorted hashes, counts and a sample."""
    whole, sample = Survey(), PairSample(SAMPLE_SIZE, seed=0)
    src_hashes, pair_hashes = [whole.src_hashes], [whole.pair_hashes]
    for part in ordered_map(job, read_groups(split, label=label), workers=workers):
        whole.lines += part.lines
        whole.invalid += part.invalid
        src_hashes.append(part.src_hashes)
        pair_hashes.append(part.pair_hashes)
        whole.counts.update(part.counts)
        for pair in part.pairs:
            sample.add(pair)
    whole.src_hashes = np.sort(np.concatenate(src_hashes))
    whole.pair_hashes = np.sort(np.concatenate(pair_hashes))
    whole.pairs = sample.pairs
    return whole


def count_common(hashes: Hashes, known: Sequence[Hashes]) -> int:
    """How many of `hashes` occur in one of the sorted `known`."""
    found = np.zeros(len(hashes), bool)
    for each in (each for each in known if len(each)):
        found |= each[np.minimum(np.searchsorted(each, hashes), len(each) - 1)] == hashes
    return int(found.sum())


def read_groups(split: CorpusSplit, *, label: str) -> Iterator[list[RawPair]]:
    """A split's raw pairs, `PAIRS_PER_JOB` at a time, with a progress bar where it takes long.

    Groups are the same however many workers take them, and so are the results.
    """
    pairs = read_pairs(split)
    # delay: a bar that would be gone at once is no help
    with progress_bar(label=label, unit=" lines", delay_s=1) as bar:
        while group := list(islice(pairs, PAIRS_PER_JOB)):
            yield group
            bar.update(len(group))


# The second pass: pairs as ids, on disk


@dataclass
class PairCounts:
    """What became of the pairs of some files."""

    num_pairs: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """How many, by reason."""


def encode_split(
    config: Config, corpus: Corpus, name: str, tokenizers: Tokenizers, folder: Path, *, workers: int
) -> dict[str, PairCounts]:
    """Write the encoded split, in which more pairs follow those of `train`: what became of each."""
    is_train = name == TRAIN
    max_len = config.data.max_len if is_train else None
    src_type, tgt_type = id_type(tokenizers.src.vocab_size), id_type(tokenizers.tgt.vocab_size)
    counts = {part: PairCounts() for part in corpus if part == name or (is_train and is_trained_on(part))}
    with SplitWriter(folder, name, src_type=src_type, tgt_type=tgt_type) as writer:
        for part, so_far in counts.items():
            encoder = PairEncoder(tokenizers, max_len, corpus[part].tag)
            groups = read_groups(corpus[part], label=f"encoding {part}")
            for pairs in ordered_map(encoder, groups, workers=workers if is_train else 1):
                writer.write(pairs)
                so_far.num_pairs += len(pairs.kept)
                so_far.dropped.update(pairs.dropped)
            if is_train and not so_far.num_pairs:
                path = corpus[part].src.path
                raise DataError(f"{path}: every training pair was dropped: {dict(so_far.dropped)}")
    return counts


@dataclass(frozen=True)
class PairEncoder:
    """Normalises and encodes raw pairs; can be sent to a worker process."""

    tokenizers: Tokenizers
    max_len: int | None
    """Pairs with a side that is empty or has more ids are dropped; with None, every pair is kept."""
    tag: str = ""
    """A word put before each source that is not empty."""

    def __call__(self, raw: Sequence[tuple[bytes, bytes]]) -> EncodedPairs:
        """Encode `raw` lines, with or without their line ends."""
        lines = [(strip_line_end(src), strip_line_end(tgt)) for src, tgt in raw]
        sources = [self._normalize(src) for src, _ in lines]
        if self.tag:
            sources = [f"{self.tag} {src}" if src else src for src in sources]
        src_ids = self.tokenizers.src.encode(sources)
        tgt_ids = self.tokenizers.tgt.encode([self._normalize(tgt) for _, tgt in lines])
        reasons = [self._drop_reason(src, tgt) for src, tgt in zip(src_ids, tgt_ids, strict=True)]
        rows = [i for i, reason in enumerate(reasons) if reason is None]
        split = EncodedSplit(
            Sentences.of([src_ids[i] for i in rows], vocab_size=self.tokenizers.src.vocab_size),
            Sentences.of([tgt_ids[i] for i in rows], vocab_size=self.tokenizers.tgt.vocab_size),
        )
        dropped = Counter(reason for reason in reasons if reason)
        return EncodedPairs(split, [lines[i] for i in rows], dropped)

    def _normalize(self, line: bytes) -> str:
        return normalize(decode_line(line), lowercase=self.tokenizers.options.lowercase)

    def _drop_reason(self, src: Sequence[int], tgt: Sequence[int]) -> str | None:
        if self.max_len is None:
            return None
        if not src or not tgt:
            return "empty"
        return "too long" if max(len(src), len(tgt)) > self.max_len else None
