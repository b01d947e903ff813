"""Corpora that others have published: which of their files, and which lines, are which split.

A row of `PINNED` is all that a corpus needs. A config names it as `data.corpus`, or one of its
splits wherever the path of a text may stand, such as `multi30k:train`. Every file has its address
and sha256 in pinned.sha256.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple


@dataclass(frozen=True)
class PinnedSplit:
    """Lines of published files."""

    files: Mapping[str, tuple[str, ...]]
    """By language, the names of files whose lines follow each other. `deu.txt 2` is the second
    column of a table, below its first line; `deu-eng.zip/deu.txt 2` is that of one in an archive.
    """
    without: tuple[str, ...] = ()
    """Such as `tatoeba:val`, splits with which no pair of this one shares a side, apart from case
    and final marks.
    """
    every: int = 1
    """Only every so many of the pairs that are left."""
    most: int | None = None
    """At most so many of those."""
    is_parallel: bool = True
    """Whether line i of one language translates line i of the other."""

    @property
    def is_cut(self) -> bool:
        """Whether its text has to be made, as it is none of the files as they are."""
        return bool(self.without) or any(" " in name for name in sum(self.files.values(), ()))


@dataclass(frozen=True)
class PinnedCorpus:
    """A corpus whose files are known by their sha256."""

    terms: str
    """Whose text it is and what its licence is, in a sentence."""
    splits: Mapping[str, PinnedSplit]


TATOEBA_2020 = "tatoeba-test-v2020-07-28"
TATOEBA_2021 = "tatoeba-test-v2021-08-07"
PINNED: dict[str, PinnedCorpus] = {
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
    """What stands in place of the path of a text."""

    corpus: str
    split: str
    lang: str
    """The language of the text; empty for that of the side where it stands."""


def pinned_text(path: Path) -> PinnedText | None:
    """What `path`, such as `multi30k:train` or `multi30k:train.en`, stands for; None for a path."""
    corpus, _, name = str(path).partition(":")
    split, _, lang = name.partition(".")
    return PinnedText(corpus, split, lang) if name and corpus in PINNED else None


# What a config says of them


def as_corpora(value: object) -> object:
    """`data.corpus` as a list: `sample` or `files` alone, or pinned corpora."""
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list | tuple):
        are_pinned = len(names) == len(set(names)) > 0 and PINNED.keys() >= set(names)
        if are_pinned or list(names) in (["sample"], ["files"]):
            return names
    pinned = " and ".join(map(repr, PINNED))
    found = json.dumps(value, default=str)
    raise ValueError(f"input should be 'sample', 'files' or one or more of {pinned}, found {found}")


def parallel_splits(corpora: Iterable[str]) -> list[str]:
    """The splits of all `corpora` whose sides translate each other."""
    found: dict[str, None] = {}
    for name in corpora:
        splits = PINNED[name].splits
        found |= dict.fromkeys(split for split in splits if splits[split].is_parallel)
    return list(found)


def pinned_problems(sides: Sequence[Sequence[Path]]) -> Iterator[str]:
    """What is wrong with the pinned texts that are named on one side or on both."""
    for path in dict.fromkeys(chain.from_iterable(sides)):
        text = pinned_text(path)
        if text is None:
            continue
        splits = PINNED[text.corpus].splits
        if text.split not in splits:
            yield f"{path}: {text.corpus} has {', '.join(splits)}"
        elif len(sides) > 1 and not splits[text.split].is_parallel:
            yield f"{path}: its languages are not translations of each other"


def terms_of(corpora: Iterable[str], paths: Iterable[Path]) -> list[str]:
    """The terms of each pinned corpus among `corpora` and `paths`."""
    texts = filter(None, map(pinned_text, paths))
    names = dict.fromkeys((*corpora, *(text.corpus for text in texts)))
    return [PINNED[name].terms for name in names if name in PINNED]
