"""Shards: equal shares of a corpus's training text, prepared apart, and joined by a manifest.

A shard is prepared data like any other, in the folder `shard-3-of-16` of the prepared folder. When
they are joined, that has test sets and tokenizers too, and a manifest that names the shards.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mt_cli.config.schema import TRAIN, Config
from mt_cli.data.checks import warn_of_known_sources
from mt_cli.data.corpora import Corpus, ParallelText, RawPair, is_trained_on
from mt_cli.data.encoded import TrainingLengths
from mt_cli.data.prepared import (
    HASHES_FOLDER,
    REPORT,
    TRAIN_FILES,
    CorpusReport,
    Manifest,
    Prepared,
    SideReport,
    SplitReport,
    check_unneeded,
    hashes_path,
    open_prepared,
)
from mt_cli.data.scan import count_common
from mt_cli.errors import DataError, PreparedDataError, UsageError
from mt_cli.machine.files import (
    MANIFEST,
    MAX_TEXT_BYTES,
    locked,
    read_file,
    read_json,
    sha256_file,
    sha256_json,
    write_atomically,
    write_json,
)
from mt_cli.text.normalize import Hashes
from mt_cli.text.tokenizers import TOKENIZER_FOLDER, Tokenizers

log = logging.getLogger(__name__)
PAIRS_LEARNED_FROM = 10_000_000
"""Of which the first shard's tokenizers learn, as many from the beginning of each file."""
HASHES_TOGETHER = 1 << 23
"""Hashes of pairs that are compared in memory."""
OF_SHARDS_ALONE = (*TRAIN_FILES, f"{HASHES_FOLDER}/", REPORT)
"""How the names of those files begin that the joined folder does not have."""
FILES = ".files"
"""Ends the key of a part of the corpus whose files are divided; all shards must know the same."""


@dataclass(frozen=True)
class Shard:
    """One of `of` equal shares of the training text, numbered from 1."""

    number: int
    of: int

    @staticmethod
    def parse(text: str) -> "Shard":
        """The shard that is written like 3/16.

        Raises:
            UsageError: it is not.
        """
        found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise UsageError(f"--shard {text}: should be such as 3/16, the third of 16 shards")
        return Shard(int(found[1]), int(found[2]))

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"shard-{self.number}-of-{self.of}"

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def cut(self, corpus: Corpus) -> tuple[Corpus, dict[str, str]]:
        """`corpus` with this share of what is trained on, and what all shards must have in common.

        Whole files are divided where there are enough, and otherwise lines. Shards are runs of
        neighbours, so that one after the other they are the corpus.

        Raises:
            UsageError: there are fewer training pairs than shards.
        """
        kept = {}
        common = {}
        for name, text in corpus.items():
            if not is_trained_on(name):
                kept[name] = text
                continue
            files = text.by_file()
            if len(files) >= self.of:
                begin, end = self._range(len(files))
                src = replace(text.src, paths=text.src.paths[begin:end], first=begin + 1)
                tgt = replace(text.tgt, paths=text.tgt.paths[begin:end], first=begin + 1)
                kept[name] = ParallelText(src, tgt)
                paths = text.src.paths + text.tgt.paths
                sizes = [(path.name, path.stat().st_size) for path in paths]
                common[f"{name}{FILES}"] = sha256_json(sizes)
                continue
            begin, end = self._range(sum(1 for _ in text.pairs()))
            if begin < end:
                kept[name] = replace(text, lines=(begin, end))
            elif name == TRAIN:
                raise UsageError(f"{text}: too few lines for {self.of} shards")
        return kept, common

    def _range(self, size: int) -> tuple[int, int]:
        """Which of `size` things are in this shard."""
        return size * (self.number - 1) // self.of, size * self.number // self.of


@dataclass(frozen=True)
class Beginnings:
    """`PAIRS_LEARNED_FROM` pairs of `text` at most, as many from the beginning of each file."""

    text: ParallelText

    def pairs(self) -> Iterator[RawPair]:
        """The raw lines of both sides, side by side."""
        files = self.text.by_file()
        of_each = -(-PAIRS_LEARNED_FROM // len(files))
        for file in files:
            yield from replace(file, lines=(0, of_each)).pairs()


def first_tokenizers(config: Config, out: Path, shard: Shard) -> Tokenizers:
    """The tokenizers of the first shard in `out`, which the others take.

    Raises:
        DataError: it is not there, or of another config.
    """
    folder = out / Shard(1, shard.of).name
    try:
        return open_prepared(folder, config, check="nothing").tokenizers
    except PreparedDataError as error:
        raise DataError(
            f"{error}; the first shard learns the tokenizers: prepare it before the others, or "
            "bring its folder here"
        ) from error


def join_shards(
    config: Config, out: Path, *, force: bool = False, needed_by: Sequence[Path] = ()
) -> tuple[CorpusReport, bool]:
    """Make prepared data of the shards in `out`, whose files stay where they are.

    Without `force`, data that are `needed_by` some runs are not replaced by others. Memory does not
    grow with the corpus. Returns the report, and whether the data are new.

    Raises:
        DataError: a shard is missing, damaged, of another config or of other files than the rest.
    """
    with locked(out):
        shards = _open_all(config, out)
        report = _joined_report(shards)
        contents = {}
        outputs = {}
        for name, digest in shards[0].manifest.outputs.items():
            if not name.startswith(OF_SHARDS_ALONE):
                contents[name] = read_file(shards[0].folder / name, max_bytes=MAX_TEXT_BYTES)
                outputs[name] = digest
        for shard in shards:
            outputs[f"{shard.folder.name}/{MANIFEST}"] = sha256_file(shard.folder / MANIFEST)
        lengths = [shard.manifest.lengths for shard in shards]
        manifest = Manifest(
            data=config.data,
            tokenizer=config.tokenizer,
            inputs=_joined_inputs(shards),
            outputs=outputs,
            pairs={name: split.pairs for name, split in report.splits.items()},
            lengths=TrainingLengths(
                src_tokens=max(each.src_tokens for each in lengths),
                sentences=max(each.sentences for each in lengths),
                max_len_factor=max(each.max_len_factor for each in lengths),
            ),
            shards=[shard.folder.name for shard in shards],
        )
        document = manifest.model_dump(mode="json")
        is_new = True
        if (out / MANIFEST).exists():
            is_new = read_json(out / MANIFEST) != document
            if is_new and not force:
                check_unneeded(out, needed_by)
        for name, content in contents.items():
            write_atomically(out / name, content)
        write_json(out / REPORT, report.model_dump())
        write_json(out / MANIFEST, document)
    for name, split in report.splits.items():
        if not is_trained_on(name):
            warn_of_known_sources(name, split.src_in_train or 0, of=split.lines)
    log.info("%s joined from %d shards\n%s", out, len(shards), report.as_text())
    return report, is_new


def _open_all(config: Config, out: Path) -> list[Prepared]:
    """All shards in `out`, in order."""
    found = sorted(path.parent.name for path in out.glob(f"shard-*-of-*/{MANIFEST}"))
    divisions = {name.rpartition("-")[2] for name in found}
    if not found:
        raise DataError(f"{out}: no shards; prepare them with --shard 1/N, --shard 2/N …")
    if len(divisions) > 1:
        raise DataError(
            f"{out}: {found[0]} and {found[-1]} are of two divisions; remove those of one"
        )
    of = int(divisions.pop())
    shards = []
    for number in range(1, of + 1):
        shard = Shard(number, of)
        if shard.name not in found:
            raise DataError(f"{out / shard.name}: missing; prepare it with --shard {shard}")
        opened = open_prepared(out / shard.name, config)
        if opened.manifest.shard != str(shard):
            raise DataError(
                f"{opened.folder}: it holds shard {opened.manifest.shard}, which would be there "
                f"twice; prepare it with --shard {shard}"
            )
        shards.append(opened)
    return shards


def _joined_inputs(shards: Sequence[Prepared]) -> dict[str, str]:
    """The inputs of all shards, as of a corpus prepared at once."""
    inputs = _agreed(shards, [shard.manifest.inputs for shard in shards])
    tokenizers = []
    for shard in shards:
        outputs = shard.manifest.outputs.items()
        tokenizers.append({name: of for name, of in outputs if name.startswith(TOKENIZER_FOLDER)})
    own = _agreed(shards, tokenizers)
    if not own.keys() <= shards[0].manifest.inputs.keys():  # the first shard has learned them
        inputs = {key: of for key, of in inputs.items() if key not in own}
    return {key: of for key, of in inputs.items() if not key.endswith(FILES)}


def _agreed(shards: Sequence[Prepared], of_each: Sequence[dict[str, str]]) -> dict[str, str]:
    """The hashes `of_each` shard in one; what several shards have must be the same."""
    agreed: dict[str, str] = {}
    for shard, hashes in zip(shards, of_each, strict=True):
        for key, digest in hashes.items():
            if agreed.setdefault(key, digest) != digest:
                raise DataError(
                    f"{shard.folder}: made of another {key} than the shards before it; prepare "
                    "those again that are older than your files and the first shard"
                )
    return agreed


def _joined_report(shards: Sequence[Prepared]) -> CorpusReport:
    """The report on all shards; in percentiles of lengths, the longest of any shard."""
    reports = [shard.report() for shard in shards]
    names = dict.fromkeys(name for report in reports for name in report.splits)
    trained_on = list(filter(is_trained_on, names))
    splits = {}
    for name in names:
        if not is_trained_on(name):
            known = [hashes for part in trained_on for hashes in _hashes_of(shards, part)]
            (own, *_) = _hashes_of(shards, name)
            splits[name] = (
                reports[0]
                .splits[name]
                .model_copy(
                    update={
                        "src_in_train": count_common(own[0], [sources for sources, _ in known]),
                        "pairs_in_train": count_common(own[1], [pairs for _, pairs in known]),
                    }
                )
            )
            continue
        parts = [report.splits[name] for report in reports if name in report.splits]
        repeats = _count_repeats(shards, name)
        within = sum(part.duplicates for part in parts)
        if repeats > within:
            log.warning(
                "%s: %d pairs are in several shards, and all are kept; shards look for "
                "duplicates by themselves",
                name,
                repeats - within,
            )
        dropped: Counter[str] = Counter()
        for part in parts:
            dropped.update(part.dropped)
        splits[name] = SplitReport(
            lines=sum(part.lines for part in parts),
            pairs=sum(part.pairs for part in parts),
            dropped=dict(sorted(dropped.items())),
            invalid_utf8=sum(part.invalid_utf8 for part in parts),
            duplicates=repeats,
            src_in_train=None if name == TRAIN else sum(part.src_in_train or 0 for part in parts),
            pairs_in_train=(
                None if name == TRAIN else sum(part.pairs_in_train or 0 for part in parts)
            ),
            src=_joined_side([part.src for part in parts]),
            tgt=_joined_side([part.tgt for part in parts]),
        )
    return reports[0].model_copy(update={"splits": splits})


def _joined_side(sides: Sequence[SideReport]) -> SideReport:
    tokens = sum(side.tokens for side in sides)
    unknown = sum(side.unknown for side in sides)
    return SideReport(
        tokens=tokens,
        unknown=unknown,
        unknown_rate=unknown / max(1, tokens),
        lengths={key: max(side.lengths[key] for side in sides) for key in sides[0].lengths},
    )


def _hashes_of(shards: Sequence[Prepared], part: str) -> Iterator[Hashes]:
    """Of each shard that has the `part`, its sorted hashes of sources and of pairs, (2, N).

    They are mapped into memory, where what has been read counts until the array is let go of.
    """
    for shard in shards:
        path = hashes_path(shard.folder, part)
        if path.exists():
            yield np.load(path, mmap_mode="r")


def _count_repeats(shards: Sequence[Prepared], part: str) -> int:
    """How many pairs of the `part` repeat another."""
    num_pairs = sum(hashes.shape[1] for hashes in _hashes_of(shards, part))
    num_ranges = 1 + num_pairs // HASHES_TOGETHER
    bounds = np.linspace(0, float(1 << 64), num_ranges + 1)[:-1].astype(np.uint64)
    repeats = 0
    for number in range(num_ranges):
        within = []
        for _, pairs in _hashes_of(shards, part):
            places = np.searchsorted(pairs, bounds[number : number + 2])
            end = places[1] if number + 1 < num_ranges else len(pairs)
            within.append(np.array(pairs[places[0] : end]))
        together = np.concatenate(within)
        repeats += len(together) - len(np.unique(together))
    return repeats
