"""Published corpora: which files and lines belong to which split.

To add a corpus, add an entry to `PINNED_CORPORA`. A config uses it as `data.corpus`, or one of its
splits in place of a text's path, such as `multi30k:train`. The URLs and sha256 of all files are in
pinned.sha256.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from pydantic_core import PydanticCustomError


@dataclass(frozen=True)
class PinnedSplit:
    """A split: lines of published files."""

    files: Mapping[str, tuple[str, ...]]
    """By language, the names of the files, which are concatenated. `deu.txt 2` is the second column
    of a table, without its first line; `deu-eng.zip/deu.txt 2` is that of a table in an archive.
    """
    without: tuple[str, ...] = ()
    """Splits, such as `tatoeba:val`, that must not share a side with any pair of this one; case and
    final marks are ignored.
    """
    every: int = 1
    """Keep only every n-th of the remaining pairs."""
    most: int | None = None
    """Keep at most this many of those."""
    is_parallel: bool = True
    """Whether the lines of the languages are translations of each other."""

    @property
    def is_cut(self) -> bool:
        """Whether its text must be extracted, because it differs from the published files."""
        return bool(self.without) or any(" " in name for name in sum(self.files.values(), ()))


@dataclass(frozen=True)
class PinnedCorpus:
    """A published corpus; its files are pinned by sha256."""

    terms: str
    """One sentence with the authors and the licence."""
    splits: Mapping[str, PinnedSplit]


TATOEBA_2020 = "tatoeba-test-v2020-07-28"
TATOEBA_2021 = "tatoeba-test-v2021-08-07"
PINNED_CORPORA: dict[str, PinnedCorpus] = {
    "multi30k": PinnedCorpus(
        terms="Multi30k (Elliott et al. 2016) describes photographs of Flickr30k, whose terms "
        "allow research; it carries no licence file",
        splits={
            name: PinnedSplit({"de": (f"{name}.de",), "en": (f"{name}.en",)})
            for name in (
                "train", "val", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco",
                "test_2018_flickr",
            )
        }
        | {
            "captions": PinnedSplit(
                {
                    "de": tuple(f"train.{i}.de" for i in range(1, 6)),
                    "en": tuple(f"train.{i}.en" for i in range(1, 6)),
                },
                is_parallel=False,
            )
        },
    ),
    "tatoeba": PinnedCorpus(
        terms="Tatoeba's sentences are by the contributors of tatoeba.org, CC BY 2.0 FR",
        splits={
            "train": PinnedSplit(
                {
                    "de": ("deu.txt 2", f"{TATOEBA_2021}.deu"),
                    "en": ("deu.txt 1", f"{TATOEBA_2021}.eng"),
                },
                without=("tatoeba:test_2020_tatoeba", "tatoeba:val"),
            ),
            "val": PinnedSplit(
                {"de": (f"{TATOEBA_2021}.deu",), "en": (f"{TATOEBA_2021}.eng",)},
                without=("tatoeba:test_2020_tatoeba",),
                every=7,
                most=1000,
            ),
            "test_2020_tatoeba": PinnedSplit(
                {"de": (f"{TATOEBA_2020}.deu",), "en": (f"{TATOEBA_2020}.eng",)}
            ),
        },
    ),
    "manythings": PinnedCorpus(
        terms="manythings.org/anki has Tatoeba's sentences, by the contributors of tatoeba.org, "
        "CC BY 2.0 FR",
        splits={
            "train": PinnedSplit(
                {"de": ("deu-eng.zip/deu.txt 2",), "en": ("deu-eng.zip/deu.txt 1",)},
                without=("tatoeba:test_2020_tatoeba", "tatoeba:val"),
            )
        },
    ),
}  # fmt: skip


class PinnedText(NamedTuple):
    """A split of a pinned corpus, used in place of a text's path."""

    corpus: str
    split: str
    lang: str
    """The language of the text; empty for the language of its side."""


def pinned_text(path: Path) -> PinnedText | None:
    """Parse `multi30k:train` or `multi30k:train.en`; None for a real path."""
    corpus, _, name = str(path).partition(":")
    split, _, lang = name.partition(".")
    return PinnedText(corpus, split, lang) if name and corpus in PINNED_CORPORA else None


# Use in a config


def as_corpora(value: object) -> object:
    """`data.corpus` as a list: `sample` or `files` alone, or pinned corpora."""
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list | tuple):
        are_pinned = len(names) == len(set(names)) > 0 and PINNED_CORPORA.keys() >= set(names)
        if are_pinned or list(names) in (["sample"], ["files"]):
            return names
    pinned = " and ".join(map(repr, PINNED_CORPORA))
    choices = f"'sample', 'files' or one or more of {pinned}"
    raise PydanticCustomError("expected", f"input should be {choices}")


def parallel_splits(corpora: Iterable[str]) -> list[str]:
    """The parallel splits of all `corpora`."""
    parallel: dict[str, None] = {}
    for name in corpora:
        splits = PINNED_CORPORA[name].splits
        parallel |= dict.fromkeys(split for split in splits if splits[split].is_parallel)
    return list(parallel)


def pinned_problems(sides: Sequence[Sequence[Path]]) -> Iterator[str]:
    """Errors in the pinned texts given for one side or both."""
    for path in dict.fromkeys(chain.from_iterable(sides)):
        text = pinned_text(path)
        if text is None:
            continue
        splits = PINNED_CORPORA[text.corpus].splits
        if text.split not in splits:
            yield f"{path}: {text.corpus} has {', '.join(splits)}"
        elif len(sides) > 1 and not splits[text.split].is_parallel:
            yield f"{path}: its languages are not translations of each other"


def terms_of(corpora: Iterable[str], paths: Iterable[Path]) -> list[str]:
    """The terms of each pinned corpus among `corpora` and `paths`."""
    texts = filter(None, map(pinned_text, paths))
    names = dict.fromkeys((*corpora, *(text.corpus for text in texts)))
    return [PINNED_CORPORA[name].terms for name in names if name in PINNED_CORPORA]
