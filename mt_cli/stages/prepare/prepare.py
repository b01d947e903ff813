"""The `prepare` command: from a corpus to encoded splits, tokenizers and a report.

Reads the training text twice and holds none of it: once to learn from, once to encode.
"""

import logging
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from mt_cli.artefacts.corpora import (
    TRAIN,
    Corpus,
    corpus_hashes,
    find_corpus,
    is_trained_on,
    paths_of,
    pinned_hashes,
)
from mt_cli.artefacts.files import MANIFEST, is_there, write_atomically
from mt_cli.artefacts.folders import built_beside, check_outside, is_free, recover, remove_leftovers_of
from mt_cli.artefacts.prepared import (
    TOKENIZER,
    Prepared,
    complete_prepared,
    differing_keys,
    open_prepared,
    seal_prepared,
)
from mt_cli.artefacts.run import Run, tokenizer_hashes
from mt_cli.artefacts.split_files import open_split
from mt_cli.config import Config
from mt_cli.data.report import CorpusReport, SplitReport, describe_side, format_report
from mt_cli.data.split import EncodedSplit
from mt_cli.errors import DataError, UsageError
from mt_cli.machine.workers import usable_cores
from mt_cli.stages.prepare.encode_corpus import encode_split
from mt_cli.stages.prepare.given_tokenizer import run_with_tokenizer
from mt_cli.stages.prepare.survey import Survey, SurveyJob, count_common, survey_split
from mt_cli.text.learning import build_word_tokenizers, learn_subword_tokenizers
from mt_cli.text.tokenizer import TextOptions

log = logging.getLogger(__name__)

MOST_WORKERS = 16
"""More would wait for the one process that reads and writes."""

MOST_INVALID = 0.05
"""Share of lines that are not UTF-8 above which the files must be in another encoding."""
WORTH_SEVERAL_WORKERS = 1 << 25
"""Bytes of input below which starting processes costs more time than they save."""


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
    source: Path | None = None,
    offline: bool = False,
    force: bool = False,
    workers: int = 1,
) -> PrepareResult:
    """Prepare `config`'s corpus into the folder `out`, unless it is there already and nothing changed.

    `workers` processes do the work, 0 choosing by size; the result is the same to the byte.
    """
    existing = _open_existing(out)
    remove_leftovers_of(out)
    if force:
        existing = None
    parent = run_with_tokenizer(config) if config.tokenizer.from_run else None
    taken = tokenizer_hashes(parent) if parent else {}
    # Pinned files are known without being at hand; those of --from are looked at all the same.
    pinned = pinned_hashes(config.data) if source is None else None
    if existing and pinned and _is_made_of(existing, config, pinned | taken):
        return _unchanged(existing)
    corpus = find_corpus(config.data, source=source, offline=offline)
    check_outside(out, paths_of(corpus), way_out="copy it to another place")
    inputs = corpus_hashes(corpus) | taken
    if existing and _is_made_of(existing, config, inputs):
        return _unchanged(existing)
    started_at = time.monotonic()
    with built_beside(out) as folder:
        workers = min(workers or _choose_workers(corpus), MOST_WORKERS)
        report = _build(config, corpus, folder, inputs=inputs, parent=parent, workers=workers)
    log.info("%s prepared in %.1f s\n%s", out, time.monotonic() - started_at, format_report(report))
    return PrepareResult(out, report, is_new=True)


def _open_existing(out: Path) -> Prepared | None:
    """What `out` holds already; None where that is nothing, or damaged.

    Raises:
        UsageError: `out` holds something else, which must not be replaced.
    """
    recover(out)
    if is_free(out):
        return None
    if not is_there(out / MANIFEST):
        raise UsageError(f"{out}: exists and is no prepared data (no {MANIFEST} in it); move it away")
    try:
        return open_prepared(out, warns=False)
    except DataError as error:
        log.warning("preparing again: %s", error)
        return None


def _unchanged(existing: Prepared) -> PrepareResult:
    """What is there already, which gets a seal if an early version made it."""
    seal_prepared(existing)
    return PrepareResult(existing.folder, existing.report(), is_new=False)


def _is_made_of(existing: Prepared, config: Config, inputs: dict[str, str]) -> bool:
    return existing.manifest.inputs == inputs and not differing_keys(existing.manifest, config)


def _choose_workers(corpus: Corpus) -> int:
    num_bytes = sum(path.stat().st_size * (3 if path.suffix == ".gz" else 1) for path in paths_of(corpus))
    return usable_cores() if num_bytes >= WORTH_SEVERAL_WORKERS else 1


def _build(
    config: Config, corpus: Corpus, folder: Path, *, inputs: dict[str, str], parent: Run | None, workers: int
) -> CorpusReport:
    """Fill `folder`; without a `parent` run the tokenizers are learned."""
    options = TextOptions(config.data.src_lang, config.data.tgt_lang, config.data.lowercase)
    is_words = config.tokenizer.kind == "spacy"
    surveys = {}
    for name in corpus:
        job = SurveyJob(
            options,
            counts_words=name == TRAIN and is_words,
            samples_pairs=name == TRAIN and not is_words,
        )
        surveys[name] = _survey(corpus, name, job, workers=workers)
    if parent is not None:
        tokenizers = parent.tokenizers
    elif is_words:
        tokenizers = build_word_tokenizers(surveys[TRAIN].counts, config.tokenizer, options)
    else:
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


def _survey(corpus: Corpus, name: str, job: SurveyJob, *, workers: int) -> Survey:
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
    split: EncodedSplit, name: str, surveys: dict[str, Survey], dropped: Counter[str]
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
        src=describe_side(split.src),
        tgt=describe_side(split.tgt),
    )
