"""Prepared data: read as they were written, and refused when they have changed."""

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from damage import flip_a_bit

from mt_cli.config.schema import (
    Config,
    DataConfig,
    DecodingConfig,
    FilesConfig,
    ModelConfig,
    TokenizerConfig,
)
from mt_cli.data.encoded import EncodedSplit, Sentences
from mt_cli.data.prepare import prepare_corpus
from mt_cli.data.prepared import Prepared, TrainingLengths, open_prepared
from mt_cli.errors import DataError, PreparedDataError

LINES = {
    "train.src": "ein Hund\nein Ball\n",
    "train.tgt": "a dog\na ball\n",
    "val.src": "  ein\u00a0Hund  \n\nder\u2028Ball\r\n",
    "val.tgt": "a  dog \nnothing\nthe\x0bball",
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("corpus")
    for name, text in LINES.items():
        (folder / name).write_bytes(text.encode())
    files = {
        name: FilesConfig(src=(folder / f"{name}.src",), tgt=(folder / f"{name}.tgt",))
        for name in ("train", "val")
    }
    config = Config(
        data=DataConfig(corpus="files", splits=("train", "val"), files=files),
        tokenizer=TokenizerConfig(kind="bpe", vocab_size=300),
    )
    prepare_corpus(config, out=folder / "made")
    return open_prepared(folder / "made")


@pytest.fixture
def folder(original: Prepared, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copytree(original.folder, tmp_path / "copy"))


# What training shows of lengths


def lengths_of(pairs: Sequence[tuple[int, int]], sentences: Mapping[int, int]) -> TrainingLengths:
    """Those of pairs with so many tokens on each side, and of lines with so many sentences."""
    src, tgt = (Sentences.of([[7] * n for n in side]) for side in zip(*pairs, strict=True))
    return TrainingLengths.of(EncodedSplit(src, tgt), Counter(sentences))


@pytest.mark.parametrize(
    ("num_lines", "expected"),
    [
        ({1: 96, 3: 4}, 1),
        ({1: 95, 3: 5}, 3),
        ({1: 94, 2: 3, 7: 3}, 2),
        ({0: 100}, 1),
        ({}, 1),
    ],
)
def test_sentences_of_a_line_are_those_that_are_common(
    num_lines: Mapping[int, int],
    expected: int,
) -> None:
    assert lengths_of([(5, 5)] * 9, num_lines).sentences == expected


def test_tokens_of_a_source_are_those_of_nearly_all() -> None:
    assert lengths_of([(n, 5) for n in range(1, 101)], {}).src_tokens == 100
    assert lengths_of([(5, 5)] * 9_999 + [(500, 500)], {}).src_tokens == 5


@pytest.mark.parametrize("ratio", [0.2, 1.4, 8])
def test_room_for_translations_is_never_less_than_usual_and_enough_for_targets_of_training(
    ratio: float,
) -> None:
    pairs = [(n, round(ratio * n)) for n in range(1, 60)]
    factor = lengths_of(pairs, {}).max_len_factor
    assert factor >= 1.5
    assert ratio > 1 or factor == 1.5
    room = DecodingConfig(max_len_factor=factor)
    searched = [int(factor * src) + room.max_len_extra for src, _ in pairs]
    assert all(most >= tgt for most, (_, tgt) in zip(searched, pairs, strict=True))


def test_lengths_of_training_are_written_and_read(original: Prepared) -> None:
    lengths = original.manifest.lengths
    assert (lengths.sentences, lengths.max_len_factor) == (1, 1.5)
    assert lengths.src_tokens == max(original.split("train").src.lengths)


def config_of(prepared: Prepared) -> Config:
    return Config.model_validate(
        {"data": prepared.manifest.data, "tokenizer": prepared.manifest.tokenizer}
    )


def test_lines_are_those_of_the_corpus(original: Prepared) -> None:
    assert original.lines("val", "src") == ["  ein\u00a0Hund  ", "", "der\u2028Ball"]
    assert original.lines("val", "tgt") == ["a  dog ", "nothing", "the\x0bball"]


@pytest.mark.parametrize(
    "name", ["train.src.npy", "val.tgt.txt", "tokenizer/joint.model", "report.json"]
)
def test_flipped_byte_is_noticed(folder: Path, name: str) -> None:
    flip_a_bit(folder / name)
    with pytest.raises(PreparedDataError, match=f"{name}: "):
        open_prepared(folder)


@pytest.mark.parametrize(
    "content", ["", "{}", '{"format": 99}'], ids=["empty", "no manifest", "of later"]
)
def test_manifest_of_another_kind_is_refused(folder: Path, content: str) -> None:
    (folder / "manifest.json").write_text(content)
    with pytest.raises(DataError, match=r"manifest\.json: "):
        open_prepared(folder)


def test_same_config_fits(original: Prepared) -> None:
    config = config_of(original)
    open_prepared(original.folder, config.model_copy(update={"model": ModelConfig(d_model=64)}))


def test_other_config_is_answered_with_the_keys_that_differ(original: Prepared) -> None:
    config = config_of(original)
    other = config.model_copy(
        update={
            "data": config.data.model_copy(update={"lowercase": True}),
            "tokenizer": config.tokenizer.model_copy(update={"vocab_size": 400}),
        }
    )
    with pytest.raises(DataError, match=r"data\.lowercase .*; tokenizer\.vocab_size .*300.*400"):
        open_prepared(original.folder, other)
