"""Test sets: splits of a run's data, or files of the user's own."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import get_args

from mt_cli.config.schema import DataConfig, NoiseKind
from mt_cli.data.corpora import find_corpus
from mt_cli.data.files import read_text, scored_lines
from mt_cli.errors import DataError, MtCliError, UsageError
from mt_cli.machine.files import MANIFEST, sha256_bytes
from mt_cli.text.noise import noisy_test_set
from mt_cli.text.normalize import decode_line
from mt_cli.translation.lines import check_aligned

MAX_STEM = 50
"""Bytes of a file's name in the name of a folder, which has 255 at most."""


@dataclass(frozen=True)
class EvalSet:
    """Sources and their references."""

    name: str
    """A split's, or `files`."""
    sources: list[str]
    """Empty if only translations are scored."""
    refs: list[str]
    kept_as: str
    """How the name of its folder in `eval/` begins; the name of the search follows."""
    data: DataConfig | None = None
    """The data whose split it is; none of files that the user named."""
    noise: NoiseKind | None = None
    """The noise in `sources`."""

    def noisy(self, kind: NoiseKind, data: DataConfig) -> "EvalSet":
        """The test set with noise of this kind in its sources, which are in `data`'s languages."""
        sources, refs = noisy_test_set(
            self.sources, self.refs, kind, src_lang=data.src_lang, tgt_lang=data.tgt_lang
        )
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
    """Which test sets: splits of the run's data (by default every test split), or files."""

    splits: Sequence[str] = ()
    src: Path | None = None
    ref: Path | None = None
    data: Path | None = None
    """The prepared folder, if it has moved."""
    noise: Sequence[NoiseKind] = ()
    """Each test set is also translated with noise of these kinds in its sources."""

    @classmethod
    def of(
        cls,
        splits: str | Sequence[str],
        src: str | PathLike[str] | None,
        ref: str | PathLike[str] | None,
        data: str | PathLike[str] | None,
        noise: str | Sequence[str] = (),
    ) -> "EvalChoice":
        """The choice that these arguments, which may be strings, make."""
        return cls(
            splits=[splits] if isinstance(splits, str) else splits,
            src=None if src is None else Path(src),
            ref=None if ref is None else Path(ref),
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
            UsageError: a file is missing beside the other one. DataError: they are empty or not
                parallel.
        """
        if self.ref is None:
            if self.src is not None:
                raise UsageError("--src needs --ref: the references of its lines")
            return None
        if self.splits:
            raise UsageError("give either --split or --ref, not both")
        if self.src is None and needs_sources:
            raise UsageError(
                "runs need something to translate; name the sources of --ref with --src FILE"
            )
        ref = read_text(self.ref)
        refs = scored_lines(ref, self.ref)
        if not refs:
            raise DataError(f"{self.ref}: empty; there is nothing to score")
        if self.src is None:
            return EvalSet("files", [], refs, kept_as="files")
        src = read_text(self.src)
        sources = scored_lines(src, self.src)
        check_aligned(self.ref, refs, str(self.src), sources)
        stem = re.sub(r"[^\w.-]+", "_", self.src.stem).lstrip(".")
        stem = stem.encode()[:MAX_STEM].decode(errors="ignore")
        digest = sha256_bytes(sha256_bytes(src).encode() + sha256_bytes(ref).encode())
        return EvalSet("files", sources, refs, kept_as=f"{stem}-{digest[:8]}")


def parse_noise(names: Sequence[str]) -> tuple[NoiseKind, ...]:
    """The kinds of noise that are named; `all` names every one.

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
    """Splits of a pinned corpus, if its own files are in `folder` or where `prepare` puts them."""
    if data.corpus != "multi30k":
        return []
    wanted = data.model_copy(update={"splits": names, "more": {}})
    try:
        corpus = find_corpus(wanted, source=folder, offline=True)
    except MtCliError:
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
        found.append(EvalSet(name, sources, refs, name, data))
    return found
