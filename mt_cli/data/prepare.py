"""`prepare`: from a corpus to encoded splits, tokenizers and a report.

Reads the training text four times: to hash it, to check a sample, to learn tokenizers from a
sample, and to encode it.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mt_cli.config.schema import AUGMENT, TRAIN, VAL, Config, DataConfig
from mt_cli.data.checks import log_problems, warn_of_known_sources
from mt_cli.data.corpora import (
    Corpus,
    MadeFiles,
    PairSource,
    corpus_hashes,
    files_of,
    find_corpus,
    is_trained_on,
    pinned_hashes,
)
from mt_cli.data.encode import encode_split
from mt_cli.data.encoded import (
    EncodedSplit,
    TrainingLengths,
    open_split,
    tokens_per_word,
)
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
from mt_cli.data.scan import (
    SplitStatistics,
    count_common,
    normalized,
    scan_split,
    text_options,
)
from mt_cli.data.shards import Beginnings, Shard, warn_of_unprepared
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
from mt_cli.text.normalize import gist, hash_texts
from mt_cli.text.tokenizers import TOKENIZER_FOLDER, Tokenizers, learn_tokenizers

log = logging.getLogger(__name__)

MAX_WORKERS = 16
"""More would wait for the one process that reads and writes."""
MIN_BYTES_FOR_WORKERS = 1 << 25
"""Bytes of input below which starting processes costs more time than they save."""


def prepare_corpus(
    config: Config,
    *,
    out: Path,
    given: Tokenizers | None = None,
    sources: Sequence[Path] = (),
    offline: bool = False,
    force: bool = False,
    workers: int = 1,
    needed_by: Sequence[Path] = (),
    make_pairs: Callable[[], MadeFiles] = dict,
    shard: Shard | None = None,
) -> tuple[CorpusReport, bool]:
    """Prepare `config`'s corpus into the folder `out`, unless it is there and nothing changed.

    Without `given` tokenizers, those of the run whose model is to be trained further, they are
    learned. `workers` processes do the work, 0 choosing by size; the result is the same to the
    byte. Without `force`, data that are `needed_by` some runs are not replaced by others.
    `make_pairs` gives, by name, the pairs of which a run makes a side; it may take hours. A `shard`
    has only a share of the training text, but its tokenizers are learned from all of it. Returns
    the report, and whether the data are new.

    Raises:
        UsageError: `out` holds something else, or what runs need, which must not be replaced.
    """
    if shards_in(out):
        return _joined_before(config, out, force=force), False
    if not is_free(out) and not (out / MANIFEST).exists():
        raise UsageError(f"{out}: exists and is no prepared data (no {MANIFEST}); move it away")
    with locked(out):
        found = None if force or is_free(out) else _open_existing(out)
        usable = found if found is not None and not found.differing_keys(config) else None
        if found is not None and usable is None:
            check_unneeded(out, needed_by)
        made = make_pairs()  # only then are all inputs known, and whether any has changed
        of_tokenizers = {}
        for name, content in given.to_files().items() if given else ():
            of_tokenizers[f"{TOKENIZER_FOLDER}/{name}"] = sha256_bytes(content)
        inputs = pinned_hashes(config.data, made)
        corpus = None
        whole = None
        # Pinned files are known without being at hand; those of --from are looked at all the same.
        if usable is None or inputs is None or sources or shard is not None:
            corpus = find_corpus(config.data, sources=sources, offline=offline, made=made)
            check_outside(out, files_of(corpus).values(), way_out="copy it to another place")
            if shard is not None:
                whole = corpus[TRAIN]
                corpus, common = shard.cut(corpus)
                of_tokenizers |= common
            inputs = inputs or corpus_hashes(corpus)
        inputs |= of_tokenizers
        if usable is not None and usable.manifest.inputs == inputs:
            return usable.report(), False
        if found is not None:
            check_unneeded(out, needed_by)
        if corpus is None:
            corpus = find_corpus(config.data, offline=offline, made=made)
        began_at = time.monotonic()
        examples = log_problems(corpus, config.data, is_whole=shard is None)
        workers = _num_workers(corpus, workers)
        if whole is not None and given is None:
            sample = scan_split(
                Beginnings(whole), TRAIN, config.data, keeps_pairs=True, workers=workers
            )
            given = learn_tokenizers(sample.pairs, config.tokenizer, text_options(config.data))
        with built_beside(out) as folder:
            report = _build(
                config, corpus, folder, given, inputs=inputs, workers=workers, shard=shard
            )
    for name, split in report.splits.items():
        if not is_trained_on(name):
            warn_of_known_sources(name, split.src_in_train or 0, of=split.lines)
    elapsed_s = time.monotonic() - began_at
    log.info("%s\n%s prepared in %.1f s\n%s", examples, out, elapsed_s, report.as_text())
    return report, True


def _joined_before(config: Config, out: Path, *, force: bool) -> CorpusReport:
    """The report on the shards in `out`, if they are joined and nothing is to be done."""
    joined = _open_existing(out) if (out / MANIFEST).exists() and not force else None
    if joined is None or joined.differing_keys(config):
        raise UsageError(f"{out}: holds shards; prepare with --shard and --join, or move it away")
    warn_of_unprepared(joined, config)
    return joined.report()


def _open_existing(folder: Path) -> Prepared | None:
    """The prepared data in `folder`, if they are usable."""
    try:
        return open_prepared(folder)
    except DataError as error:
        log.warning("preparing again: %s", error)
        return None


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


def _num_workers(corpus: Corpus, workers: int) -> int:
    """`workers`, or if it is 0 as many as suit the size of the corpus."""
    if not workers:
        num_bytes = 0
        for path in set(files_of(corpus).values()):
            unpacked_share = 3 if path.suffix in PACKED_ENDINGS else 1
            num_bytes += unpacked_share * path.stat().st_size
        workers = usable_cores() if num_bytes >= MIN_BYTES_FOR_WORKERS else 1
    return min(workers, MAX_WORKERS)


def _build(
    config: Config,
    corpus: Corpus,
    folder: Path,
    given: Tokenizers | None,
    *,
    inputs: dict[str, str],
    workers: int,
    shard: Shard | None,
) -> CorpusReport:
    """Fill `folder`: scan, learn tokenizers unless they are `given`, encode, report."""
    data = config.data
    parts: dict[str, PairSource] = dict(corpus)
    scanned: dict[str, SplitStatistics] = {}
    for name, text in corpus.items():
        learns = name == TRAIN and given is None
        scanned[name] = scan_split(
            text, name, data, keeps_pairs=learns, is_whole=shard is None, workers=workers
        )
    noisy = NoisyPairs.of(corpus, data, {name: each.drops for name, each in scanned.items()})
    if noisy is not None:
        parts[AUGMENT] = noisy
        scanned[AUGMENT] = scan_split(noisy, AUGMENT, data, is_whole=shard is None, workers=workers)
    options = text_options(data)
    if given is None:
        tokenizers = learn_tokenizers(scanned[TRAIN].pairs, config.tokenizer, options)
    else:
        tokenizers = replace(given, options=options)
    for name, content in tokenizers.to_files().items():
        write_atomically(folder / TOKENIZER_FOLDER / name, content)
    if shard is not None:
        _write_hashes(folder, scanned)

    splits: dict[str, SplitReport] = {}
    for name in data.splits:
        names = [name]
        if name == TRAIN:
            names += [part for part in parts if part != TRAIN and is_trained_on(part)]
        dropped_of_parts = encode_split(
            config,
            {part: parts[part] for part in names},
            name,
            tokenizers,
            folder,
            drops={part: scanned[part].drops for part in names},
            workers=workers,
        )
        split = open_split(folder, name)
        begin = 0
        for part, dropped in dropped_of_parts.items():
            end = begin + scanned[part].lines - dropped.total()
            if name == TRAIN and begin == end and shard is None:
                raise DataError(f"{parts[part]}: every training pair was dropped: {dict(dropped)}")
            splits[part] = _report(split.between(begin, end), part, dropped, scanned, tokenizers)
            begin = end
    report = CorpusReport(
        src_vocab_size=tokenizers.src.vocab_size,
        tgt_vocab_size=tokenizers.tgt.vocab_size,
        splits=splits,
    )
    num_sentences: Counter[int] = Counter()
    for name, statistics in scanned.items():
        if is_trained_on(name):
            num_sentences += statistics.num_sentences
    lengths = TrainingLengths.of(
        open_split(folder, TRAIN), num_sentences, tokens_per_word=tokens_per_word(folder, VAL)
    )
    write_json(folder / REPORT, report.model_dump())
    manifest = Manifest(
        data=config.data,
        tokenizer=config.tokenizer,
        inputs=inputs,
        outputs=sha256_of_files(folder),
        pairs={name: split.pairs for name, split in report.splits.items()},
        lengths=lengths,
        shard=None if shard is None else str(shard),
        num_sentences={} if shard is None else {str(n): num_sentences[n] for n in num_sentences},
    )
    write_json(folder / MANIFEST, manifest.model_dump(mode="json"))
    return report


def _write_hashes(folder: Path, scanned: Mapping[str, SplitStatistics]) -> None:
    """Write what tells, when shards are joined, which texts are in several parts."""
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
    """The report on a `part`, whose pairs are `split`."""
    statistics = scanned[part]
    src_in_train = None
    pairs_in_train = None
    if part != TRAIN:
        # Of an added part, what it repeats of the corpus's own pairs; of a test, what any
        # training part gives away.
        known = [scanned[TRAIN]]
        if not is_trained_on(part):
            known = [each for name, each in scanned.items() if is_trained_on(name)]
        src_in_train = count_common(statistics.src_hashes, [each.src_hashes for each in known])
        pairs_in_train = count_common(statistics.pair_hashes, [each.pair_hashes for each in known])
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
