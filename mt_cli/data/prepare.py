"""`prepare`: from a corpus to encoded splits, tokenizers and a report.

Reads the training text four times: to hash it, to check a sample, to learn tokenizers from a
sample, and to encode it.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.schema import AUGMENT, MORE, TRAIN, Config, DataConfig, FilterConfig
from mt_cli.data.augment import NoisyPairs
from mt_cli.data.checks import log_problems, warn_of_known_sources
from mt_cli.data.corpora import (
    Corpus,
    PairSource,
    RawPair,
    TranslatedPairs,
    corpus_hashes,
    files_of,
    find_corpus,
    is_trained_on,
    pinned_hashes,
    tagged,
)
from mt_cli.data.encoded import (
    EncodedPairs,
    EncodedSplit,
    Sentences,
    id_type,
    open_split,
    write_split,
)
from mt_cli.data.files import PACKED_ENDINGS
from mt_cli.data.prepared import (
    CorpusReport,
    Prepared,
    SideReport,
    SplitReport,
    TrainingLengths,
    complete_prepared,
    open_prepared,
)
from mt_cli.data.scan import (
    REASONS,
    SplitStatistics,
    count_common,
    normalized,
    read_groups,
    scan_pairs,
    scan_split,
    text_options,
)
from mt_cli.errors import DataError, UsageError
from mt_cli.machine.files import (
    MANIFEST,
    built_beside,
    check_outside,
    is_free,
    locked,
    sha256_bytes,
    write_atomically,
)
from mt_cli.machine.process import ordered_map, usable_cores
from mt_cli.text.normalize import (
    gist,
    hash_texts,
    strip_line_end,
)
from mt_cli.text.tokenizers import TOKENIZER_FOLDER, Tokenizers, learn_tokenizers

log = logging.getLogger(__name__)

HELD_OUT = "held out"
"""Why lines of text of one side are left out: val or a test has them."""
MAX_WORKERS = 16
"""More would wait for the one process that reads and writes."""
MIN_BYTES_FOR_WORKERS = 1 << 25
"""Bytes of input below which starting processes costs more time than they save."""


@dataclass(frozen=True)
class PrepareResult:
    """What `prepare` made or found."""

    folder: Path
    is_new: bool
    """False where everything was there already and nothing had changed."""
    report: CorpusReport


def prepare_corpus(
    config: Config,
    *,
    out: Path,
    given: Tokenizers | None = None,
    source: Path | None = None,
    offline: bool = False,
    force: bool = False,
    workers: int = 1,
    needed_by: Sequence[Path] = (),
    make_pairs: Callable[[], Mapping[str, TranslatedPairs]] = dict,
) -> PrepareResult:
    """Prepare `config`'s corpus into the folder `out`, unless it is there and nothing changed.

    Without `given` tokenizers, those of the run whose model is to be trained further, they are
    learned. `workers` processes do the work, 0 choosing by size; the result is the same to the
    byte. Without `force`, data that are `needed_by` some runs are not replaced by others.
    `make_pairs` gives, by name, the pairs of which a run makes a side; it may take hours.

    Raises:
        UsageError: `out` holds something else, or what runs need, which must not be replaced.
    """
    if not is_free(out) and not (out / MANIFEST).exists():
        raise UsageError(
            f"{out}: exists and is no prepared data (no {MANIFEST} in it); move it away"
        )
    with locked(out):
        found = None if force or is_free(out) else _open_existing(out)
        usable = found if found is not None and not found.differing_keys(config) else None
        if usable is None and found is not None:
            _check_unneeded(out, needed_by)
        made = make_pairs()  # only then are all inputs known, and whether any has changed
        tokenizer_inputs = {}
        if given is not None:
            for name, content in given.to_files().items():
                tokenizer_inputs[f"{TOKENIZER_FOLDER}/{name}"] = sha256_bytes(content)
        pinned = pinned_hashes(config.data, made)
        # Pinned files are known without being at hand; those of --from are looked at all the same.
        if usable is not None and pinned is not None and source is None:
            inputs = pinned | tokenizer_inputs
            if usable.manifest.inputs == inputs:
                return PrepareResult(out, is_new=False, report=usable.report())
        corpus = find_corpus(config.data, source=source, offline=offline, made=made)
        check_outside(out, files_of(corpus).values(), way_out="copy it to another place")
        inputs = (pinned or corpus_hashes(corpus)) | tokenizer_inputs
        if usable is not None and usable.manifest.inputs == inputs:
            return PrepareResult(out, is_new=False, report=usable.report())
        if found is not None:
            _check_unneeded(out, needed_by)
        began_at = time.monotonic()
        examples = log_problems(corpus, config.data)
        with built_beside(out) as folder:
            builder = _Builder(
                config, corpus, folder, made=made, workers=_num_workers(corpus, workers)
            )
            report = builder.build(given, inputs)
    for name, split in report.splits.items():
        if not is_trained_on(name):
            warn_of_known_sources(name, split.src_in_train or 0, of=split.lines)
    elapsed_s = time.monotonic() - began_at
    log.info("%s\n%s prepared in %.1f s\n%s", examples, out, elapsed_s, report.as_text())
    return PrepareResult(out, is_new=True, report=report)


def _open_existing(folder: Path) -> Prepared | None:
    """The prepared data in `folder`, if they are usable."""
    try:
        return open_prepared(folder)
    except DataError as error:
        log.warning("preparing again: %s", error)
        return None


def _check_unneeded(out: Path, needed_by: Sequence[Path]) -> None:
    if needed_by:
        raise UsageError(
            f"{out} holds what {', '.join(map(str, needed_by))} was trained on, and would hold "
            "something else; give the config another name, or replace the data with --force"
        )


def warn_of_leaks(corpus: Corpus, data: DataConfig) -> None:
    """Warn of held-out splits of which more than a few sources are in training."""
    options = text_options(data)
    sources = {}
    for name, split in corpus.items():
        texts = (gist(normalized(src, options)) for src, _ in split.pairs())
        sources[name] = np.unique(hash_texts(filter(None, texts)))
    trained_on = [hashes for name, hashes in sources.items() if is_trained_on(name)]
    for name, hashes in sources.items():
        if not is_trained_on(name):
            warn_of_known_sources(name, count_common(hashes, trained_on), of=len(hashes))


def scan_part(
    config: Config, text: PairSource, name: str, *, keeps_pairs: bool = False, workers: int
) -> SplitStatistics:
    """Count what is in `text`, the part `name`, and what `[data.filter]` leaves out of it."""
    filtered = config.data.filter if is_trained_on(name) else FilterConfig()
    job = partial(
        scan_pairs,
        options=text_options(config.data),
        filtered=filtered,
        keeps_pairs=keeps_pairs,
    )
    return scan_split(text, name, job, drops_repeats=filtered.duplicates, workers=workers)


def _num_workers(corpus: Corpus, workers: int) -> int:
    """`workers`, or if it is 0 as many as suit the size of the corpus."""
    if not workers:
        num_bytes = 0
        for path in set(files_of(corpus).values()):
            unpacked_share = 3 if path.suffix in PACKED_ENDINGS else 1
            num_bytes += unpacked_share * path.stat().st_size
        workers = usable_cores() if num_bytes >= MIN_BYTES_FOR_WORKERS else 1
    return min(workers, MAX_WORKERS)


class _Builder:
    """Fills a folder of prepared data: scan, learn tokenizers, encode, report."""

    def __init__(
        self,
        config: Config,
        corpus: Corpus,
        folder: Path,
        *,
        made: Mapping[str, TranslatedPairs],
        workers: int,
    ) -> None:
        self._config = config
        self._corpus = corpus
        self._parts: dict[str, PairSource] = dict(corpus)
        self._folder = folder
        self._made = made
        self._workers = workers
        self._statistics: dict[str, SplitStatistics] = {}

    def build(self, given: Tokenizers | None, inputs: dict[str, str]) -> CorpusReport:
        """Fill the folder; without `given` tokenizers, they are learned."""
        options = text_options(self._config.data)
        for name, text in self._corpus.items():
            self._scan(name, text, keeps_pairs=name == TRAIN and given is None)
        drops = {name: each.drops for name, each in self._statistics.items()}
        noisy = NoisyPairs.of(self._corpus, self._config.data, drops=drops)
        if noisy is not None:
            self._parts[AUGMENT] = noisy
            self._scan(AUGMENT, replace(noisy, has_tags=False))
        if given is None:
            pairs = self._statistics[TRAIN].pairs
            tokenizers = learn_tokenizers(pairs, self._config.tokenizer, options)
        else:
            tokenizers = replace(given, options=options)
        for name, content in tokenizers.to_files().items():
            write_atomically(self._folder / TOKENIZER_FOLDER / name, content)
        splits: dict[str, SplitReport] = {}
        for name in self._config.data.splits:
            splits |= self._encode(name, tokenizers)
        report = CorpusReport(
            src_vocab_size=tokenizers.src.vocab_size,
            tgt_vocab_size=tokenizers.tgt.vocab_size,
            splits=splits,
        )
        num_sentences: Counter[int] = Counter()
        for name, statistics in self._statistics.items():
            if is_trained_on(name):
                num_sentences += statistics.num_sentences
        lengths = TrainingLengths.of(open_split(self._folder, TRAIN), num_sentences)
        complete_prepared(self._folder, self._config, inputs=inputs, report=report, lengths=lengths)
        return report

    def _scan(self, name: str, text: PairSource, *, keeps_pairs: bool = False) -> None:
        self._statistics[name] = scan_part(
            self._config,
            text,
            name,
            keeps_pairs=keeps_pairs,
            workers=self._workers,
        )

    def _encode(self, name: str, tokenizers: Tokenizers) -> dict[str, SplitReport]:
        """Write the split `name`; returns the report on each of its parts."""
        parts = [name]
        if name == TRAIN:
            parts += [part for part in self._parts if part != TRAIN and is_trained_on(part)]
        drops = {part: self._statistics[part].drops for part in parts}
        dropped_of_parts = encode_split(
            self._config,
            {part: self._parts[part] for part in parts},
            name,
            tokenizers,
            self._folder,
            drops=drops,
            workers=self._workers,
        )
        split = open_split(self._folder, name)
        reports = {}
        begin = 0
        for part, dropped in dropped_of_parts.items():
            end = begin + self._statistics[part].lines - dropped.total()
            if name == TRAIN and begin == end:
                raise DataError(
                    f"{self._parts[part]}: every training pair was dropped: {dict(dropped)}"
                )
            reports[part] = self._report(split, begin, end, part, dropped)
            begin = end
        return reports

    def _report(
        self, split: EncodedSplit, begin: int, end: int, part: str, dropped: Counter[str]
    ) -> SplitReport:
        """The report on a `part`, whose pairs are `begin` to `end` - 1 of `split`."""
        statistics = self._statistics[part]
        lines = statistics.lines
        made = self._made.get(part.removeprefix(MORE)) if part.startswith(MORE) else None
        if made is not None and made.held_out:
            lines += made.held_out
            dropped = dropped + Counter({HELD_OUT: made.held_out})
        src_in_train = None
        pairs_in_train = None
        if part != TRAIN:
            # Of an added part, what it repeats of the corpus's own pairs; of a test, what any
            # training part gives away.
            known = [TRAIN]
            if not is_trained_on(part):
                known = [each for each in self._statistics if is_trained_on(each)]
            src_in_train = count_common(
                statistics.src_hashes, [self._statistics[each].src_hashes for each in known]
            )
            pairs_in_train = count_common(
                statistics.pair_hashes, [self._statistics[each].pair_hashes for each in known]
            )
        return SplitReport(
            lines=lines,
            pairs=end - begin,
            dropped=dict(sorted(dropped.items())),
            invalid_utf8=statistics.invalid,
            duplicates=len(statistics.pair_hashes) - len(np.unique(statistics.pair_hashes)),
            src_in_train=src_in_train,
            pairs_in_train=pairs_in_train,
            src=SideReport.of(split.src, begin, end),
            tgt=SideReport.of(split.tgt, begin, end),
        )


# Pairs as ids, on disk


def encode_split(
    config: Config,
    parts: Mapping[str, PairSource],
    name: str,
    tokenizers: Tokenizers,
    folder: Path,
    *,
    drops: Mapping[str, NDArray[np.uint8]],
    workers: int,
) -> dict[str, Counter[str]]:
    """Write `parts`, one after the other, as the split `name`; counts what is dropped of each.

    `drops` are the places in `REASONS` of each line of a part.
    """
    is_train = name == TRAIN
    max_len = config.data.max_len if is_train else None
    dropped: dict[str, Counter[str]] = {part: Counter() for part in parts}

    def encoded() -> Iterator[EncodedPairs]:
        for part, text in parts.items():
            job = partial(
                encode_pairs,
                tokenizers=tokenizers,
                max_len=max_len,
                tag=config.data.tag_of(part),
            )
            groups = read_groups(text, label=f"encoding {part}")
            if is_train:
                groups = _kept(groups, drops[part], dropped[part], part=part)
            for pairs in ordered_map(job, groups, workers=workers if is_train else 1):
                if pairs.too_long:
                    dropped[part]["too long"] += pairs.too_long
                yield pairs

    write_split(
        folder,
        name,
        encoded(),
        src_type=id_type(tokenizers.src.vocab_size),
        tgt_type=id_type(tokenizers.tgt.vocab_size),
    )
    return dropped


def _kept(
    groups: Iterable[list[RawPair]], drops: NDArray[np.uint8], dropped: Counter[str], *, part: str
) -> Iterator[list[RawPair]]:
    """Each group without the lines that `drops` has a reason for, which is counted.

    Raises:
        DataError: there are not as many lines as on the first reading.
    """
    begin = 0
    for group in groups:
        codes = drops[begin : begin + len(group)].tolist()
        begin += len(group)
        if len(codes) < len(group):
            break
        dropped.update(REASONS[code] for code in codes if code)
        yield [pair for pair, code in zip(group, codes, strict=True) if not code]
    if begin != len(drops):
        raise DataError(f"the files of {part} changed while they were read; try again")


def encode_pairs(
    raw: Sequence[RawPair], *, tokenizers: Tokenizers, max_len: int | None, tag: str = ""
) -> EncodedPairs:
    """Normalize and encode `raw` lines, with or without their line ends.

    Pairs with a side of more than `max_len` ids are dropped; with None, every pair is kept. The
    word `tag` comes before each source.
    """
    lines = [(strip_line_end(src), strip_line_end(tgt)) for src, tgt in raw]
    sources = [normalized(tagged(src, tag), tokenizers.options) for src, _ in lines]
    targets = [normalized(tgt, tokenizers.options) for _, tgt in lines]
    all_src = tokenizers.src.encode(sources)
    all_tgt = tokenizers.tgt.encode(targets)
    src_ids = []
    tgt_ids = []
    kept = []
    for src, tgt, line in zip(all_src, all_tgt, lines, strict=True):
        if max_len is None or max(len(src), len(tgt)) <= max_len:
            src_ids.append(src)
            tgt_ids.append(tgt)
            kept.append(line)
    split = EncodedSplit(Sentences.of(src_ids), Sentences.of(tgt_ids))
    return EncodedPairs(split, kept, too_long=len(lines) - len(kept))
