"""`prepare`: from a corpus to encoded splits, tokenizers and a report.

Reads the training text three times: to check a sample, to learn tokenizers from a sample, to encode
it.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.schema import MORE, TRAIN, Config, FilterConfig
from mt_cli.data.corpora import (
    Corpus,
    MadePairs,
    ParallelText,
    RawPair,
    corpus_hashes,
    files_of,
    find_corpus,
    is_trained_on,
    pinned_hashes,
    read_pairs,
)
from mt_cli.data.filter import DUPLICATE, EMPTY, KEPT, REASONS, drop_reason, text_options
from mt_cli.data.oddities import NUM_EXAMPLES, log_oddities, shown_pair, warn_of_known_sources
from mt_cli.data.prepared import (
    TOKENIZER,
    CorpusReport,
    EncodedPairs,
    EncodedSplit,
    Sentences,
    SideReport,
    SplitReport,
    TrainingLengths,
    complete_prepared,
    id_type,
    open_prepared,
    open_split,
    write_split,
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
from mt_cli.machine.limits import usable_cores
from mt_cli.machine.processes import ordered_map
from mt_cli.machine.terminal import progress_shown
from mt_cli.text.normalize import (
    Hashes,
    decode_line,
    hash_texts,
    is_valid_utf8,
    normalize,
    strip_line_end,
)
from mt_cli.text.sentences import split_sentences
from mt_cli.text.tokenizer import SAMPLE_SIZE, TextOptions, Tokenizers, learn_tokenizers, sampled

log = logging.getLogger(__name__)

PAIRS_PER_JOB = 2000
HELD_OUT = "held out"
"""Why lines of text of one side are left out: val or a test has them."""
MOST_WORKERS = 16
"""More would wait for the one process that reads and writes."""
WORTH_SEVERAL_WORKERS = 1 << 25
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
    make_pairs: Callable[[], Mapping[str, MadePairs]] = dict,
) -> PrepareResult:
    """Prepare `config`'s corpus into the folder `out`, unless it is there already and nothing
    changed.

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
        found = existing = None
        if not force and not is_free(out):
            try:
                found = open_prepared(out)
                existing = None if found.differing_keys(config) else found
            except DataError as error:
                log.warning("preparing again: %s", error)
        files = given.to_files() if given else {}
        taken = {f"{TOKENIZER}/{name}": sha256_bytes(data) for name, data in files.items()}

        def check_unneeded() -> None:
            if needed_by and found is not None:
                raise UsageError(
                    f"{out} holds what {', '.join(map(str, needed_by))} was trained on, and would "
                    "hold something else; give the config another name, or replace the data with "
                    "--force"
                )

        if existing is None:
            check_unneeded()
        made = make_pairs()  # only then are all inputs known, and whether any has changed
        pinned = pinned_hashes(config.data, made)
        # Pinned files are known without being at hand; those of --from are looked at all the same.
        if existing and pinned and source is None and existing.manifest.inputs == pinned | taken:
            return PrepareResult(out, is_new=False, report=existing.report())
        corpus = find_corpus(config.data, source=source, offline=offline, made=made)
        paths = files_of(corpus).values()
        check_outside(out, paths, way_out="copy it to another place")
        inputs = (pinned or corpus_hashes(corpus)) | taken
        if existing and existing.manifest.inputs == inputs:
            return PrepareResult(out, is_new=False, report=existing.report())
        check_unneeded()
        started_at = time.monotonic()
        examples = log_oddities(corpus, config.data)
        with built_beside(out) as folder:
            workers = _suited_workers(corpus, workers)
            report = _build(
                config, corpus, folder, inputs=inputs, given=given, made=made, workers=workers
            )
    for name, split in report.splits.items():
        if not is_trained_on(name):
            warn_of_known_sources(name, split.src_in_train or 0, of=split.lines)
    log.info(
        "%s\n%s prepared in %.1f s\n%s",
        examples,
        out,
        time.monotonic() - started_at,
        report.as_text(),
    )
    return PrepareResult(out, is_new=True, report=report)


def preview_filter(
    config: Config, *, source: Path | None = None, offline: bool = False, workers: int = 1
) -> dict[str, "Survey"]:
    """What `[data.filter]` would leave out of each part that is trained on; prepares nothing."""
    corpus = find_corpus(config.data, source=source, offline=offline)
    log.info("%s", log_oddities(corpus, config.data))
    warn_of_leaks(corpus)
    workers = _suited_workers(corpus, workers)
    return {
        name: _surveyed(config, corpus, name, workers=workers)
        for name in corpus
        if is_trained_on(name)
    }


def warn_of_leaks(corpus: Corpus) -> None:
    """Warn of splits that are scored, of which training has more than a few sources."""
    sources = {name: np.unique(_source_hashes(split)) for name, split in corpus.items()}
    trained_on = [hashes for name, hashes in sources.items() if is_trained_on(name)]
    for name, hashes in sources.items():
        if not is_trained_on(name):
            warn_of_known_sources(name, count_common(hashes, trained_on), of=len(hashes))


def _source_hashes(split: ParallelText) -> Hashes:
    """Of each source line that is not empty."""
    sources = (normalize(decode_line(src)) for src, _ in read_pairs(split))
    return hash_texts(filter(None, sources))


def _surveyed(
    config: Config, corpus: Corpus, name: str, *, keeps_pairs: bool = False, workers: int
) -> "Survey":
    filtered = config.data.filter if is_trained_on(name) else FilterConfig()
    job = partial(
        survey_pairs,
        options=text_options(config.data),
        filtered=filtered,
        keeps_pairs=keeps_pairs,
    )
    return survey_split(corpus[name], name, job, drops_repeats=filtered.duplicates, workers=workers)


def _suited_workers(corpus: Corpus, workers: int) -> int:
    if not workers:
        sizes = [
            path.stat().st_size * (3 if path.suffix in (".gz", ".zst") else 1)
            for path in set(files_of(corpus).values())
        ]
        workers = usable_cores() if sum(sizes) >= WORTH_SEVERAL_WORKERS else 1
    return min(workers, MOST_WORKERS)


def _build(
    config: Config,
    corpus: Corpus,
    folder: Path,
    *,
    inputs: dict[str, str],
    given: Tokenizers | None,
    made: Mapping[str, MadePairs],
    workers: int,
) -> CorpusReport:
    """Fill `folder`."""
    options = text_options(config.data)
    surveys = {}
    for name in corpus:
        keeps_pairs = name == TRAIN and given is None
        surveys[name] = _surveyed(config, corpus, name, keeps_pairs=keeps_pairs, workers=workers)
    if given is None:
        tokenizers = learn_tokenizers(surveys[TRAIN].pairs, config.tokenizer, options)
    else:
        tokenizers = replace(given, options=options)
    for name, data in tokenizers.to_files().items():
        write_atomically(folder / TOKENIZER / name, data)
    splits = {}
    for name in config.data.splits:
        drops = {part: survey.drops for part, survey in surveys.items()}
        dropped_of = encode_split(
            config, corpus, name, tokenizers, folder, drops=drops, workers=workers
        )
        whole, begin = open_split(folder, name), 0
        for part, of_part in dropped_of.items():
            end = begin + surveys[part].lines - of_part.total()
            if name == TRAIN and begin == end:
                path = corpus[part].src
                raise DataError(f"{path}: every training pair was dropped: {dict(of_part)}")
            splits[part] = _describe_split(whole, begin, end, part, surveys, of_part)
            begin = end
    for name, pairs in made.items():
        if pairs.held_out:
            found = splits[f"{MORE}{name}"]
            dropped = {**found.dropped, HELD_OUT: pairs.held_out}
            splits[f"{MORE}{name}"] = replace(
                found, lines=found.lines + pairs.held_out, dropped=dropped
            )
    report = CorpusReport(
        src_vocab_size=tokenizers.src.vocab_size,
        tgt_vocab_size=tokenizers.tgt.vocab_size,
        splits=splits,
    )
    num_sentences = Counter[int]()
    for name, survey in surveys.items():
        if is_trained_on(name):
            num_sentences += survey.num_sentences
    lengths = TrainingLengths.of(open_split(folder, TRAIN), num_sentences)
    complete_prepared(folder, config, inputs=inputs, report=report, lengths=lengths)
    return report


def _describe_split(
    split: EncodedSplit,
    begin: int,
    end: int,
    name: str,
    surveys: "dict[str, Survey]",
    dropped: Counter[str],
) -> SplitReport:
    survey = surveys[name]
    src_in_train = pairs_in_train = None
    if name != TRAIN:
        # Of an added part, what it repeats of the corpus's own; of a test, what any part gives
        # away.
        given = (
            [TRAIN] if is_trained_on(name) else [part for part in surveys if is_trained_on(part)]
        )
        src_in_train = count_common(survey.src_hashes, [surveys[part].src_hashes for part in given])
        pairs_in_train = count_common(
            survey.pair_hashes, [surveys[part].pair_hashes for part in given]
        )
    return SplitReport(
        lines=survey.lines,
        pairs=end - begin,
        dropped=dict(sorted(dropped.items())),
        invalid_utf8=survey.invalid,
        duplicates=len(survey.pair_hashes) - len(np.unique(survey.pair_hashes)),
        src_in_train=src_in_train,
        pairs_in_train=pairs_in_train,
        src=SideReport.of(split.src, begin, end),
        tgt=SideReport.of(split.tgt, begin, end),
    )


# The first pass: counts what there is and gathers what tokenizers learn from


@dataclass
class Survey:
    """What was found in some raw pairs; those with an empty side count as lines only."""

    lines: int = 0
    invalid: int = 0
    """Lines with a side that is not valid UTF-8."""
    drops: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    """For each line, why its pair is left out, as a place in `REASONS`; 0 is kept."""
    examples: dict[str, list[str]] = field(default_factory=dict)
    """Some pairs that are left out, by reason."""
    src_hashes: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    pair_hashes: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    """Of each pair that is kept: eight bytes a pair."""
    num_sentences: Counter[int] = field(default_factory=Counter)
    """Sources that are kept, by their number of sentences."""
    pairs: list[tuple[str, str]] = field(default_factory=list)
    """Kept pairs, normalised, or a sample of them; empty unless tokenizers are learned."""

    def dropped(self) -> dict[str, int]:
        """How many pairs are left out, by reason."""
        counts = np.bincount(self.drops, minlength=len(REASONS)).tolist()
        return {
            reason: count
            for reason, count in zip(REASONS, counts, strict=True)
            if reason != KEPT and count
        }

    @property
    def kept(self) -> int:
        """How many pairs are left."""
        return int((self.drops == 0).sum())

    def as_text(self, name: str) -> str:
        """What would be left out of the part `name`, with examples."""
        dropped = self.dropped()
        lines = [f"{name}: {self.lines:,} pairs, {self.kept:,} of them kept"]
        for reason, count in dropped.items():
            lines += [
                f"  {count:,} left out: {reason}",
                *(f"    {each}" for each in self.examples.get(reason, ())),
            ]
        return "\n".join(lines)


def survey_split(
    split: ParallelText,
    name: str,
    job: Callable[[Sequence[RawPair]], Survey],
    *,
    drops_repeats: bool = False,
    workers: int,
) -> Survey:
    """Read `split` once, holding no more of it than sorted hashes, counts, drops and a sample.

    Raises:
        DataError: it is empty, or not in UTF-8.
    """
    whole = Survey()
    src_hashes, pair_hashes, drops = [whole.src_hashes], [whole.pair_hashes], [whole.drops]
    groups = read_groups(split, label=f"reading {name}")

    def pairs() -> Iterator[tuple[str, str]]:
        for part in ordered_map(job, groups, workers=workers if is_trained_on(name) else 1):
            whole.lines += part.lines
            whole.invalid += part.invalid
            src_hashes.append(part.src_hashes)
            pair_hashes.append(part.pair_hashes)
            drops.append(part.drops)
            whole.num_sentences += part.num_sentences
            for reason, examples in part.examples.items():
                known = whole.examples.setdefault(reason, [])
                known += examples[: NUM_EXAMPLES - len(known)]
            yield from part.pairs

    sample = sampled(enumerate(pairs()), SAMPLE_SIZE, seed=0)
    whole.src_hashes = np.concatenate(src_hashes)
    whole.drops, whole.pair_hashes = np.concatenate(drops), np.concatenate(pair_hashes)
    repeats = _drop_repeats(whole) if drops_repeats else np.empty(0, np.intp)
    is_repeat = np.isin(np.array([place for place, _ in sample], np.intp), repeats).tolist()
    whole.pairs = [pair for (_, pair), drop in zip(sample, is_repeat, strict=True) if not drop]
    whole.src_hashes.sort()
    whole.pair_hashes.sort()
    log.debug("%s: %d lines read", name, whole.lines)
    if whole.invalid:
        log.warning(
            "%s: %d pairs are not valid UTF-8; what could not be read is left out",
            name,
            whole.invalid,
        )
    if not whole.lines:
        raise DataError(f"{split.src}: empty; '{name}' needs at least one line")
    if is_trained_on(name) and not whole.kept:
        if whole.dropped().keys() == {EMPTY}:
            raise DataError(f"{split.src}: no line of '{name}' has text on both sides")
        raise DataError(f"{split.src}: every pair of '{name}' is left out: {whole.dropped()}")
    return whole


def _drop_repeats(survey: Survey) -> NDArray[np.intp]:
    """Drop the pairs that repeat an earlier one; gives their places among the kept."""
    order = np.argsort(
        survey.pair_hashes, kind="stable"
    )  # of equal ones, the first stays the first
    in_order = survey.pair_hashes[order]
    repeats: NDArray[np.intp] = order[1:][in_order[1:] == in_order[:-1]]
    survey.drops[np.flatnonzero(survey.drops == 0)[repeats]] = REASONS.index(DUPLICATE)
    survey.src_hashes = np.delete(survey.src_hashes, repeats)
    survey.pair_hashes = np.delete(survey.pair_hashes, repeats)
    return repeats


def survey_pairs(
    raw: Sequence[RawPair],
    *,
    options: TextOptions,
    filtered: FilterConfig,
    keeps_pairs: bool = False,
) -> Survey:
    """What is found in the pairs `raw`; it `keeps_pairs` for tokenizers to learn from."""
    pairs = [(_normalized(src, options), _normalized(tgt, options)) for src, tgt in raw]
    reasons = [drop_reason(src, tgt, filtered, options) for src, tgt in pairs]
    examples: dict[str, list[str]] = {}
    for reason, (src, tgt) in zip(reasons, pairs, strict=True):
        if reason and len(known := examples.setdefault(reason, [])) < NUM_EXAMPLES:
            known.append(shown_pair(src, tgt))
    kept = [pair for pair, reason in zip(pairs, reasons, strict=True) if not reason]
    num_sentences = Counter[int]()
    for (source, _), reason in zip(raw, reasons, strict=True):
        if not reason:  # counted in the case of the file, as when a line is translated
            sentences = split_sentences(normalize(decode_line(source)), options.src_lang)
            num_sentences[len(sentences)] += 1
    return Survey(
        lines=len(raw),
        invalid=sum(not (is_valid_utf8(src) and is_valid_utf8(tgt)) for src, tgt in raw),
        drops=np.array([REASONS.index(reason) for reason in reasons], np.uint8),
        examples=examples,
        src_hashes=hash_texts(src for src, _ in kept),
        pair_hashes=hash_texts(f"{src}\n{tgt}" for src, tgt in kept),
        num_sentences=num_sentences,
        pairs=kept if keeps_pairs else [],
    )


def _normalized(raw: bytes, options: TextOptions) -> str:
    return normalize(decode_line(raw), lowercase=options.lowercase)


def count_common(hashes: Hashes, known: Sequence[Hashes]) -> int:
    """How many of `hashes` occur in one of the sorted `known`."""
    found = np.zeros(len(hashes), bool)
    for each in (each for each in known if len(each)):
        found |= each[np.minimum(np.searchsorted(each, hashes), len(each) - 1)] == hashes
    return int(found.sum())


def read_groups(split: ParallelText, *, label: str) -> Iterator[list[RawPair]]:
    """A split's raw pairs, `PAIRS_PER_JOB` at a time, with a progress bar.

    Groups are the same however many workers take them, and so are the results.
    """
    pairs = read_pairs(split)
    with progress_shown(label, unit="lines") as update:
        while group := list(islice(pairs, PAIRS_PER_JOB)):
            yield group
            update(len(group))


# The second pass: pairs as ids, on disk


def encode_split(
    config: Config,
    corpus: Corpus,
    name: str,
    tokenizers: Tokenizers,
    folder: Path,
    *,
    drops: Mapping[str, NDArray[np.uint8]],
    workers: int,
) -> dict[str, Counter[str]]:
    """Write the encoded split, in which more pairs follow those of `train`; counts what is dropped.

    `drops` are the places in `REASONS` of each line of a part.
    """
    is_train = name == TRAIN
    max_len = config.data.max_len if is_train else None
    dropped = {
        part: Counter[str]()
        for part in corpus
        if part == name or (is_train and is_trained_on(part))
    }
    tags = {f"{MORE}{more}": pairs.tag for more, pairs in config.data.more.items()}

    def encoded() -> Iterator[EncodedPairs]:
        for part, so_far in dropped.items():
            job = partial(
                encode_pairs, tokenizers=tokenizers, max_len=max_len, tag=tags.get(part, "")
            )
            groups = read_groups(corpus[part], label=f"encoding {part}")
            if is_train:
                groups = _kept(groups, drops[part], so_far)
            for pairs in ordered_map(job, groups, workers=workers if is_train else 1):
                so_far.update({"too long": pairs.too_long} if pairs.too_long else {})
                yield pairs

    write_split(
        folder,
        name,
        encoded(),
        [id_type(each.vocab_size) for each in (tokenizers.src, tokenizers.tgt)],
    )
    return dropped


def _kept(
    groups: Iterable[list[RawPair]], drops: NDArray[np.uint8], dropped: Counter[str]
) -> Iterator[list[RawPair]]:
    """Each group without the lines that `drops` has a reason for, which is counted."""
    begin = 0
    for group in groups:
        codes = drops[begin : begin + len(group)].tolist()
        begin += len(group)
        dropped.update(REASONS[code] for code in codes if code)
        yield [pair for pair, code in zip(group, codes, strict=True) if not code]


def encode_pairs(
    raw: Sequence[RawPair], *, tokenizers: Tokenizers, max_len: int | None, tag: str = ""
) -> EncodedPairs:
    """Normalise and encode `raw` lines, with or without their line ends.

    Pairs with a side of more than `max_len` ids are dropped; with None, every pair is kept. `tag`
    is a word put before each source.
    """
    lines = [(strip_line_end(src), strip_line_end(tgt)) for src, tgt in raw]
    sources = [_normalized(src, tokenizers.options) for src, _ in lines]
    src_ids = tokenizers.src.encode([f"{tag} {src}" for src in sources] if tag else sources)
    tgt_ids = tokenizers.tgt.encode([_normalized(tgt, tokenizers.options) for _, tgt in lines])
    lengths = [max(len(src), len(tgt)) for src, tgt in zip(src_ids, tgt_ids, strict=True)]
    rows = [i for i, length in enumerate(lengths) if max_len is None or length <= max_len]
    split = EncodedSplit(
        Sentences.of([src_ids[i] for i in rows]), Sentences.of([tgt_ids[i] for i in rows])
    )
    return EncodedPairs(split, [lines[i] for i in rows], too_long=len(lines) - len(rows))
