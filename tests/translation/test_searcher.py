"""`Searcher`: batches and threads change neither the translations nor their order."""

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import CPU, random_ids, randomised, tiny_model

from mt_cli.config.schema import DecodingConfig
from mt_cli.data.prepared import TrainingLengths
from mt_cli.decoding.search import Hyp, Sampling
from mt_cli.errors import ResourceError
from mt_cli.model.attention_maps import attention_maps
from mt_cli.model.model import DecoderState, TranslationModel
from mt_cli.text import BOS_ID, EOS_ID, PAD_ID
from mt_cli.translation.searcher import Searcher

FORBIDDEN = (PAD_ID, BOS_ID)
MODEL = randomised(tiny_model(decoder_layers=3, output_bias=True), seed=24, std=0.4)
LENGTHS = [1, 9, 3, 15, 2, 7, 4, 6, 12, 1, 5] * 2
SOURCES = [row[:n] for row, n in zip(random_ids(22, 15).tolist(), LENGTHS, strict=True)]
WARM = Sampling(temperature=1.5)


def searcher_of(
    model: TranslationModel = MODEL,
    *,
    sampling: Sampling | None = None,
    seed: int = 1,
    **options: object,
) -> Searcher:
    return Searcher(
        model,
        DecodingConfig.model_validate(options),
        runtime=CPU,
        forbidden_ids=FORBIDDEN,
        sampling=sampling,
        seed=seed,
    )


def ids_of(found: Sequence[Sequence[Hyp]]) -> list[list[list[int]]]:
    return [[hyp.ids for hyp in hyps] for hyps in found]


@pytest.fixture
def three_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(threads)


@functools.cache
def one_by_one() -> list[list[int]]:
    return [searcher_of().best([source])[0] for source in SOURCES]


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("batch_size", [0, 4, 1000])
def test_batches_and_threads_change_nothing(batch_size: int) -> None:
    assert searcher_of(batch_size=batch_size).best(SOURCES) == one_by_one()


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("search", [{"beam_size": 3}, {"sampling": WARM}], ids=["beams", "samples"])
def test_batches_and_threads_change_no_beam_and_no_sample(search: dict[str, Any]) -> None:
    alone = searcher_of(batch_size=1, **search)
    usual = [alone.n_best([source], n_best=2)[0] for source in SOURCES]
    found = searcher_of(batch_size=4, **search).n_best(SOURCES, n_best=2)
    assert ids_of(found) == ids_of(usual)


@settings(max_examples=10)
@given(st.lists(st.integers(0, len(SOURCES) - 1), max_size=20), st.integers(0, 5))
def test_any_order_and_any_repetition_keep_each_in_its_place(
    places: list[int], batch_size: int
) -> None:
    found = searcher_of(batch_size=batch_size).best([SOURCES[i] for i in places])
    assert found == [one_by_one()[i] for i in places]


UNBIASED = randomised(tiny_model(decoder_layers=3), seed=14, std=0.4)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_no_translation_is_shorter_than_the_fewest_tokens(beam_size: int) -> None:
    lengths = [len(hyp) for hyp in searcher_of(UNBIASED, beam_size=beam_size).best(SOURCES)]
    assert min(lengths) < 8
    searcher = searcher_of(UNBIASED, beam_size=beam_size, min_len=8)
    limits = [searcher.limit(len(source)) for source in SOURCES]
    for hyp, limit in zip(searcher.best(SOURCES), limits, strict=True):
        assert min(8, limit) <= len(hyp) <= limit


@pytest.mark.parametrize(
    ("factor", "trained", "expected"),
    [(None, 1.5, 7), (None, 2.0, 8), (0.0, 2.0, 4), (1.0, 2.0, 6), (9.0, 2.0, 15)],
)
def test_limit_is_that_of_the_config_or_else_of_training_and_at_most_the_models(
    factor: float | None, trained: float, expected: int
) -> None:
    config = DecodingConfig(max_len_factor=factor, max_len_extra=4)
    lengths = TrainingLengths(max_len_factor=trained)
    searcher = Searcher(MODEL, config, runtime=CPU, forbidden_ids=FORBIDDEN, lengths=lengths)
    assert searcher.limit(2) == expected


def failing(
    monkeypatch: pytest.MonkeyPatch, error: Exception, *, where: Callable[[int], bool]
) -> None:
    """Have every model fail at the start of batches of some sizes."""
    step = TranslationModel.step

    def fail(model: TranslationModel, ids: torch.Tensor, state: DecoderState) -> torch.Tensor:
        if state.length == 0 and where(len(ids)):
            raise error
        return step(model, ids, state)

    monkeypatch.setattr(TranslationModel, "step", fail)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize(
    ("failure", "expected"),
    [(ValueError("broken"), ValueError), (RuntimeError("can't allocate memory"), ResourceError)],
    ids=["an error", "no memory"],
)
def test_error_in_a_batch_surfaces_and_threads_are_as_before(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, expected: type[Exception]
) -> None:
    failing(monkeypatch, failure, where=lambda size: size <= 2)  # the last batch
    with pytest.raises(expected):
        searcher_of(batch_size=4).best(SOURCES)
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize(
    ("search", "error"),
    [
        ({}, torch.OutOfMemoryError("CUDA out of memory")),
        ({"beam_size": 3, "length_penalty": 0.6}, RuntimeError("can't allocate memory")),
        ({"sampling": WARM}, torch.OutOfMemoryError("CUDA out of memory")),
    ],
    ids=["greedy", "beams", "samples"],
)
def test_too_little_memory_gives_the_same_from_smaller_batches(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    search: dict[str, Any],
    error: Exception,
) -> None:
    expected = searcher_of(batch_size=16, **search).n_best(SOURCES, n_best=1)
    failing(monkeypatch, error, where=lambda size: size > 4)
    found = searcher_of(batch_size=16, **search).n_best(SOURCES, n_best=1)
    assert ids_of(found) == ids_of(expected)
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_seed_decides_the_samples() -> None:
    first = searcher_of(sampling=WARM, seed=1).best(SOURCES)
    assert first == searcher_of(sampling=WARM, seed=1).best(SOURCES)
    assert first != searcher_of(sampling=WARM, seed=2).best(SOURCES)


@pytest.mark.parametrize("batch_size", [0, 1, 4])
def test_cross_attention_is_that_of_the_last_layer_but_one(batch_size: int) -> None:
    found = searcher_of(batch_size=batch_size).cross_attention(SOURCES, one_by_one())
    for source, hyp, weights in zip(SOURCES, one_by_one(), found, strict=True):
        src_ids, tgt_in = torch.tensor([[*source, EOS_ID]]), torch.tensor([[BOS_ID, *hyp]])
        maps = attention_maps(MODEL, src_ids, tgt_in)["cross"]
        expected = maps[1, 0].mean(0)[: len(hyp), :-1]  # (T, S)
        torch.testing.assert_close(torch.from_numpy(weights), expected)
        assert weights.argmax(-1).tolist() == expected.argmax(-1).tolist()


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("beam_size", [1, 2], ids=["greedy", "beam"])
def test_every_source_is_reported_once_by_the_callers_thread(beam_size: int) -> None:
    reports: list[list[int]] = []
    threads: set[int] = set()

    def note(places: Sequence[int]) -> None:
        reports.append(list(places))
        threads.add(threading.get_ident())

    searcher = searcher_of(beam_size=beam_size, batch_size=4)
    found = searcher.n_best(SOURCES, n_best=1, on_done=note)
    assert sorted(place for places in reports for place in places) == list(range(len(SOURCES)))
    assert len(reports) == 6
    assert threads == {threading.get_ident()}
    assert ids_of(found) == ids_of(searcher.n_best(SOURCES, n_best=1))
