"""Test sets: splits of a run's data, or the user's own files."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import get_args

from mt_cli.config.schema import DataConfig, NoiseKind
from mt_cli.data.corpora import find_corpus
from mt_cli.data.noise import noisy_test_set
from mt_cli.data.text_files import check_aligned, check_is_lines, read_text, scored_lines
from mt_cli.errors import DataError, MtCliError, UsageError
from mt_cli.machine.files import MANIFEST, sha256_bytes
from mt_cli.text.normalize import decode_line

MAX_STEM = 50
"""Maximum bytes of a file's name that go into a folder's name, which may have 255."""


@dataclass(frozen=True)
class EvalSet:
    """Sources and their references."""

    name: str
    """The split's name, or `files`."""
    sources: list[str]
    """Empty if only translations are scored."""
    refs: list[list[str]]
    """One or several lists of references, each with a line per source."""
    kept_as: str
    """First part of its folder's name in `eval/`; the name of the search follows."""
    data: DataConfig | None = None
    """The data that the split belongs to; None for the user's files."""
    noise: NoiseKind | None = None
    """The kind of noise in `sources`, if any."""

    def noisy(self, kind: NoiseKind, data: DataConfig) -> "EvalSet":
        """The test set with noise of this kind in its sources; `data` gives the languages."""
        refs = []
        for of_all in self.refs:
            sources, with_noise = noisy_test_set(
                self.sources, of_all, kind, src_lang=data.src_lang, tgt_lang=data.tgt_lang
            )
            refs.append(with_noise)
        return replace(
            self,
            name=f"{self.name}+{kind}",
            kept_as=f"{self.kept_as}+{kind}",
            sources=sources,
            refs=refs,
            noise=kind,
        )


@dataclass(frozen=True)
class EvalChoice:
    """The choice of test sets: splits of the run's data (default: every test split), or files."""

    splits: Sequence[str] = ()
    src: Path | None = None
    ref: Sequence[Path] = ()
    data: Path | None = None
    """The prepared folder, if it has moved."""
    noise: Sequence[NoiseKind] = ()
    """Kinds of noise with which each test set is evaluated as well."""

    @classmethod
    def of(
        cls,
        splits: str | Sequence[str],
        src: str | PathLike[str] | None,
        ref: str | PathLike[str] | Sequence[str | PathLike[str]] | None,
        data: str | PathLike[str] | None,
        noise: str | Sequence[str] = (),
    ) -> "EvalChoice":
        """The choice for these arguments, which may be strings."""
        return cls(
            splits=[splits] if isinstance(splits, str) else splits,
            src=None if src is None else Path(src),
            ref=[Path(ref)] if isinstance(ref, str | PathLike) else list(map(Path, ref or ())),
            data=None if data is None else Path(data),
            noise=parse_noise(noise.split(",") if isinstance(noise, str) else noise),
        )

    def with_noise(self, test_sets: Sequence[EvalSet], data: DataConfig) -> list[EvalSet]:
        """`test_sets`, and after each its noisy variants, named such as `test+lower`."""
        found = []
        for test_set in test_sets:
            found.append(test_set)
            found += [test_set.noisy(kind, data) for kind in self.noise]
        return found

    def files(self, *, needs_sources: bool) -> EvalSet | None:
        """The test set in the user's files; None if splits are chosen.

        Raises:
            UsageError: only one of the two files is given. DataError: the files are empty or not
                parallel.
        """
        if not self.ref:
            if self.src is not None:
                raise UsageError("--src works only with --ref, the references of its lines")
            return None
        if self.splits:
            raise UsageError("give either --split or --ref, not both")
        if self.src is None and needs_sources:
            raise UsageError("--ref needs the matching sources: add --src FILE")
        named = [*self.ref, *([] if self.src is None else [self.src])]
        missing = [str(path) for path in named if not path.exists()]
        if missing:
            raise DataError(f"no such file: {', '.join(missing)}")
        for path in named:
            check_is_lines(path)
        contents = list(map(read_text, self.ref))
        refs = list(map(scored_lines, contents, self.ref))
        for path, lines in zip(self.ref, refs, strict=True):
            _check_references(path, lines, of_several=len(refs) > 1)
            check_aligned(path, lines, str(self.ref[0]), refs[0])
        if self.src is None:
            return EvalSet("files", [], refs, kept_as="files")
        src = read_text(self.src)
        sources = scored_lines(src, self.src)
        check_aligned(self.ref[0], refs[0], str(self.src), sources)
        stem = re.sub(r"[^\w.-]+", "_", self.src.stem).lstrip(".")
        stem = stem.encode()[:MAX_STEM].decode(errors="ignore")
        digest = sha256_bytes("".join(map(sha256_bytes, (src, *contents))).encode())
        return EvalSet("files", sources, refs, kept_as=f"{stem}-{digest[:8]}")


def _check_references(path: Path, lines: Sequence[str], *, of_several: bool) -> None:
    """Reject references that would silently give wrong scores."""
    if not lines:
        raise DataError(f"{path}: the file is empty; there is nothing to score")
    if of_several and "" in lines:  # an empty reference lowers TER's mean length, so TER rises
        raise DataError(
            f"{path}: line {lines.index('') + 1} is empty; with several --ref, fill every line"
        )
    if all("\t" in line for line in lines):
        raise DataError(
            f"{path}: every line has a tab; put each reference into its own file and give --ref "
            "for each"
        )


def parse_noise(names: Sequence[str]) -> tuple[NoiseKind, ...]:
    """The kinds of noise in `names`; `all` stands for every kind.

    Raises:
        UsageError: a name is unknown.
    """
    kinds: tuple[NoiseKind, ...] = get_args(NoiseKind)
    found: list[NoiseKind] = []
    for name in names:
        if name not in (*kinds, "all"):
            raise UsageError(f"unknown noise '{name}'; known: all, {', '.join(kinds)}")
        found += [kind for kind in kinds if name in (kind, "all")]
    return tuple(dict.fromkeys(found))


def pinned_splits(data: DataConfig, names: Sequence[str], folder: Path | None) -> list[EvalSet]:
    """Splits of a pinned corpus from its original files, in `folder` or the download cache."""
    if not data.is_pinned:
        return []
    wanted = data.model_copy(update={"splits": names, "more": {}})
    try:
        corpus = find_corpus(wanted, sources=[folder] if folder else (), offline=True)
    except (MtCliError, OSError):
        if folder is None or (folder / MANIFEST).exists():  # the other error says more
            return []
        raise
    found = []
    for name, pair in corpus.items():
        sources = []
        refs = []
        for src, tgt in pair.pairs():
            sources.append(decode_line(src))
            refs.append(decode_line(tgt))
        found.append(EvalSet(name, sources, [refs], name, data))
    return found
