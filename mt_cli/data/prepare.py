"""`prepare`: from a corpus to encoded splits, tokenizers and a report.

It reads the training text three times: to hash, to scan and to encode it.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from mt_cli.config.schema import AUGMENT, TRAIN, Config
from mt_cli.data.checks import check_corpus
from mt_cli.data.corpora import (
    Corpus,
    MadeFiles,
    PairSource,
    ParallelText,
    RawPair,
    corpus_hashes,
    files_of,
    find_corpus,
    is_trained_on,
    pinned_hashes,
)
from mt_cli.data.encode import encode_split
from mt_cli.data.encoded import EncodedSplit, TrainingLengths, open_split, tokens_per_word
from mt_cli.data.noise import NoisyPairs
from mt_cli.data.prepared import (
    REPORT,
    CorpusReport,
    Manifest,
    Prepared,
    SideReport,
    SplitReport,
    check_unneeded,
    hashes_path,
    open_prepared,
    shards_in,
)
from mt_cli.data.scan import SplitStatistics, count_common, scan_split, text_options
from mt_cli.data.shards import AppendedShard, Shard, first_tokenizers, warn_of_unprepared
from mt_cli.data.text_files import PACKED_ENDINGS
from mt_cli.errors import DataError, UsageError
from mt_cli.machine.files import (
    MANIFEST,
    built_beside,
    check_outside,
    is_free,
    sha256_bytes,
    sha256_of_files,
    write_atomically,
    write_json,
)
from mt_cli.machine.locks import locked
from mt_cli.machine.process import usable_cores
from mt_cli.text.tokenizers import TOKENIZER_FOLDER, Tokenizers, learn_tokenizers

log = logging.getLogger(__name__)

MAX_WORKERS = 16
"""More workers would wait for the single process that reads and writes."""
PAIRS_LEARNED_FROM = 10_000_000
"""Maximum pairs for learning tokenizers, the same number from the beginning of each file."""
MIN_BYTES_FOR_WORKERS = 1 << 25
"""Below this input size, starting processes costs more time than they save."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of `prepare`; files are translated, found and hashed on demand."""

    config: Config
    tokenizers: Tokenizers | None = None
    """The tokenizers of `tokenizer.from_run` or of the first shard; None to learn them."""
    shard: Shard | AppendedShard | None = None
    """The share of the training text to prepare; tokenizers are learned from all of it."""
    sources: Sequence[Path] = ()
    """Folders with the published files."""
    offline: bool = False
    make_pairs: Callable[[], MadeFiles] = dict
    """Returns the pairs of which a run translates one side, by name; may take hours."""

    @cached_property
    def made(self) -> MadeFiles:
        """The result of `make_pairs`."""
        return self.make_pairs()

    @cached_property
    def whole_corpus(self) -> Corpus:
        """The verified files of every split."""
        return find_corpus(
            self.config.data, sources=self.sources, offline=self.offline, made=self.made
        )

    @cached_property
    def corpus(self) -> Corpus:
        """The corpus to prepare: as a whole, or with the shard's share of the training text."""
        return self._share[0]

    @cached_property
    def _share(self) -> tuple[Corpus, dict[str, str]]:
        return (self.whole_corpus, {}) if self.shard is None else self.shard.cut(self.whole_corpus)

    @cached_property
    def hashes(self) -> dict[str, str]:
        """sha256 of every file, by split and side, and of given tokenizers.

        Pinned hashes are known without reading the files; files in `sources` are read in any case.
        """
        hashes = None
        if not self.sources and self.shard is None:
            hashes = pinned_hashes(self.config.data, self.made)
        if hashes is None:
            _, common = self._share
            hashes = corpus_hashes(self.corpus) | common
        files = {} if self.tokenizers is None else self.tokenizers.to_files()
        for name, content in files.items():
            hashes[f"{TOKENIZER_FOLDER}/{name}"] = sha256_bytes(content)
        return hashes


def prepare_corpus(
    inputs: Inputs,
    out: Path,
    *,
    force: bool = False,
    workers: int = 1,
    needed_by: Sequence[Path] = (),
) -> tuple[CorpusReport, bool]:
    """Prepare `inputs` into the folder `out`, unless it is up to date.

    `workers` is the number of processes, 0 chooses by size; the result is byte-identical. Without
    `force`, data that runs need (`needed_by`) is not replaced. Returns the report, and whether the
    data is new.

    Raises:
        UsageError: `out` has other content, or data that runs need.
    """
    if shards_in(out):
        return _joined_before(inputs.config, out, force=force), False
    if inputs.shard is not None and inputs.tokenizers is None:
        learned = first_tokenizers(inputs.config, out.parent, inputs.shard)
        inputs = replace(inputs, tokenizers=learned)
    if not is_free(out) and not (out / MANIFEST).exists():
        raise UsageError(f"{out}: exists, but is not prepared data (no {MANIFEST}); move it away")
    with locked(out):
        existing = None if force or is_free(out) else _open_existing(out)
        if existing is not None:
            has_keys = not existing.differing_keys(inputs.config)
            if has_keys and existing.manifest.inputs == inputs.hashes:
                return existing.report(), False
            check_unneeded(out, needed_by)
        began_at = time.monotonic()
        check_outside(out, files_of(inputs.corpus).values(), way_out="copy it to another place")
        with built_beside(out) as folder:
            report = _build(inputs, folder, workers=_num_workers(inputs.corpus, workers))
    elapsed_s = time.monotonic() - began_at
    log.info("prepared %s in %.1f s\n%s", out, elapsed_s, report.as_text())
    return report, True


def _joined_before(config: Config, out: Path, *, force: bool) -> CorpusReport:
    """The report on the shards in `out`, if they are joined and up to date."""
    joined = _open_existing(out) if (out / MANIFEST).exists() and not force else None
    if joined is None or joined.differing_keys(config):
        raise UsageError(f"{out}: contains shards; use --shard and --join, or move it away")
    warn_of_unprepared(joined, config)
    return joined.report()


def _open_existing(folder: Path) -> Prepared | None:
    """Open the prepared data in `folder`; None if it is not usable."""
    try:
        return open_prepared(folder)
    except DataError as error:
        log.warning("preparing again: %s", error)
        return None


def _num_workers(corpus: Corpus, workers: int) -> int:
    """The number of workers; 0 chooses it by the size of the corpus."""
    if not workers:
        num_bytes = 0
        for path in set(files_of(corpus).values()):
            unpacked_share = 3 if path.suffix in PACKED_ENDINGS else 1
            num_bytes += unpacked_share * path.stat().st_size
        workers = usable_cores() if num_bytes >= MIN_BYTES_FOR_WORKERS else 1
    return min(workers, MAX_WORKERS)


def _build(inputs: Inputs, folder: Path, *, workers: int) -> CorpusReport:
    """Fill `folder`: scan the corpus, learn tokenizers unless given, encode, and report."""
    config = inputs.config
    data = config.data
    is_share = inputs.shard is not None
    hashes = inputs.hashes  # before the text is read, so that a later change is noticed
    scanned = check_corpus(
        inputs.corpus,
        data,
        learns=inputs.tokenizers is None and not is_share,
        is_share=is_share,
        workers=workers,
    )
    tokenizers = _tokenizers(inputs, scanned, workers=workers)
    for name, content in tokenizers.to_files().items():
        write_atomically(folder / TOKENIZER_FOLDER / name, content)
    parts: dict[str, PairSource] = dict(inputs.corpus)
    noisy = NoisyPairs.of(inputs.corpus, data, {name: of.drops for name, of in scanned.items()})
    if noisy is not None:
        parts[AUGMENT] = noisy
        scanned[AUGMENT] = scan_split(noisy, AUGMENT, data, is_share=is_share, workers=workers)
    if is_share:
        _write_hashes(folder, scanned)

    splits: dict[str, SplitReport] = {}
    for name in data.splits:
        of_split = {name: parts[name]}
        if name == TRAIN:
            of_split = {part: text for part, text in parts.items() if is_trained_on(part)}
        drops = {part: scanned[part].drops for part in of_split}
        dropped_of_parts = encode_split(
            config, of_split, name, tokenizers, folder, drops=drops, workers=workers
        )
        split = open_split(folder, name)
        begin = 0
        for part, dropped in dropped_of_parts.items():
            end = begin + scanned[part].lines - dropped.total()
            if name == TRAIN and begin == end and not is_share:
                raise DataError(f"{parts[part]}: every training pair was dropped: {dict(dropped)}")
            splits[part] = _report(split.between(begin, end), part, dropped, scanned, tokenizers)
            begin = end
    report = CorpusReport(
        src_vocab_size=tokenizers.src.vocab_size,
        tgt_vocab_size=tokenizers.tgt.vocab_size,
        splits=splits,
    )
    write_json(folder / REPORT, report.model_dump())
    num_sentences: Counter[int] = Counter()
    for name, statistics in scanned.items():
        if is_trained_on(name):
            num_sentences += statistics.num_sentences
    lengths = TrainingLengths.of(
        open_split(folder, TRAIN), num_sentences, tokens_per_word=tokens_per_word(folder)
    )
    manifest = Manifest(
        data=data,
        tokenizer=config.tokenizer,
        inputs=hashes,
        outputs=sha256_of_files(folder),
        pairs={name: split.pairs for name, split in report.splits.items()},
        lengths=lengths,
        shard=str(inputs.shard) if is_share else None,
        num_sentences={str(n): num_sentences[n] for n in num_sentences} if is_share else {},
    )
    write_json(folder / MANIFEST, manifest.model_dump(mode="json"))
    return report


@dataclass(frozen=True)
class Beginnings:
    """At most `PAIRS_LEARNED_FROM` pairs of `text`, the same number from each file's beginning."""

    text: ParallelText

    def __str__(self) -> str:
        return str(self.text)

    def pairs(self) -> Iterator[RawPair]:
        """The raw pairs of lines."""
        files = self.text.by_file()
        of_each = -(-PAIRS_LEARNED_FROM // len(files))
        for file in files:
            yield from replace(file, lines=(0, of_each)).pairs()


def _tokenizers(
    inputs: Inputs, scanned: Mapping[str, SplitStatistics], *, workers: int
) -> Tokenizers:
    """The given tokenizers, or new ones learned from the whole training text."""
    data = inputs.config.data
    if inputs.tokenizers is not None:
        return replace(inputs.tokenizers, options=text_options(data))
    pairs = scanned[TRAIN].pairs
    if inputs.shard is not None:
        text = Beginnings(inputs.whole_corpus[TRAIN])
        pairs = scan_split(text, TRAIN, data, keeps_pairs=True, workers=workers).pairs
    return learn_tokenizers(pairs, inputs.config.tokenizer, text_options(data))


def _write_hashes(folder: Path, scanned: Mapping[str, SplitStatistics]) -> None:
    """Write hashes of texts, to find texts in several parts when shards are joined."""
    hashes_path(folder, TRAIN).parent.mkdir()
    for name, statistics in scanned.items():
        hashes = np.stack((statistics.src_hashes, statistics.pair_hashes))
        np.save(hashes_path(folder, name), hashes)


def _report(
    split: EncodedSplit,
    part: str,
    dropped: Counter[str],
    scanned: Mapping[str, SplitStatistics],
    tokenizers: Tokenizers,
) -> SplitReport:
    """The report on a `part` with the pairs `split`."""
    statistics = scanned[part]
    src_in_train = None
    pairs_in_train = None
    if part != TRAIN:
        # An additional training part is compared with the corpus's own pairs, val and tests with
        # all training parts.
        training = [scanned[TRAIN]]
        if not is_trained_on(part):
            training = [of for name, of in scanned.items() if is_trained_on(name)]
        src_in_train = count_common(statistics.src_hashes, [of.src_hashes for of in training])
        pairs_in_train = count_common(statistics.pair_hashes, [of.pair_hashes for of in training])
    return SplitReport(
        lines=statistics.lines,
        pairs=len(split),
        dropped=dict(sorted(dropped.items())),
        invalid_utf8=statistics.invalid,
        duplicates=len(statistics.pair_hashes) - len(np.unique(statistics.pair_hashes)),
        src_in_train=src_in_train,
        pairs_in_train=pairs_in_train,
        src=SideReport.of(split.src, tokenizers.src.unknown_ids),
        tgt=SideReport.of(split.tgt, tokenizers.tgt.unknown_ids),
    )
