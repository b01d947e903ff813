"""`Searcher`: batches and threads change neither the translations nor their order."""

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import CPU, random_ids, randomised, tiny_model

from mt_cli.config.schema import DecodingConfig
from mt_cli.data.lengths import TrainingLengths
from mt_cli.decoding.hypothesis import Hyp
from mt_cli.decoding.sampling import Sampling
from mt_cli.errors import OutOfMemoryError, ResourceError
from mt_cli.model.attention_maps import attention_maps
from mt_cli.model.backend import DecoderState
from mt_cli.model.translation_model import TranslationModel
from mt_cli.text import BOS_ID, EOS_ID, PAD_ID
from mt_cli.translation.halving import Halving
from mt_cli.translation.search_memory import SearchSize
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


def test_beams_that_no_memory_has_room_for_are_refused_by_their_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mt_cli.translation.searcher.free_memory_of", lambda _: 1 << 20)
    with pytest.raises(OutOfMemoryError, match="beam_size"):
        searcher_of(beam_size=1 << 16).n_best(SOURCES, n_best=1)
    assert searcher_of().best(SOURCES) == one_by_one()


@pytest.mark.usefixtures("three_threads")
def test_little_memory_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = ids_of(searcher_of(beam_size=3).n_best(SOURCES, n_best=2))
    monkeypatch.setattr("mt_cli.translation.searcher.free_memory_of", lambda _: 5000)
    assert searcher_of().best(SOURCES) == one_by_one()
    assert ids_of(searcher_of(beam_size=3).n_best(SOURCES, n_best=2)) == usual


def test_a_size_that_did_not_fit_is_not_tried_again() -> None:
    lost = 0

    def work(batch: list[int]) -> list[int]:
        nonlocal lost
        if len(batch) > 500:
            lost += 1
            raise torch.OutOfMemoryError("CUDA out of memory")
        return [-number for number in batch]

    halving = Halving(torch.device("cpu"), if_single=["x"])
    numbers = list(range(2048))
    for _ in range(10):
        assert halving.map(work, numbers) == [-number for number in numbers]
    assert lost == 3


def test_short_sentences_may_be_more_than_the_long_ones_that_did_not_fit() -> None:
    sizes = []

    def work(batch: list[int]) -> list[int]:
        if len(batch) * batch[0] > 100:
            raise RuntimeError("out of memory")
        sizes.append(len(batch))
        return batch

    halving = Halving(torch.device("cpu"), if_single=["x"])
    halving.map(work, [50] * 4, longest=50)
    halving.map(work, [5] * 40, longest=5)
    assert sizes == [2, 2, 20, 20]


def test_first_batches_of_large_models_fit_into_free_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = []
    start = TranslationModel.start
    free = 1 << 20
    monkeypatch.setattr("mt_cli.translation.searcher.free_memory_of", lambda _: free)
    monkeypatch.setattr("mt_cli.translation.searcher.NEGLIGIBLE", 0)

    def note(model: TranslationModel, src_ids: torch.Tensor) -> DecoderState:
        sizes.append(len(src_ids))
        return start(model, src_ids)

    monkeypatch.setattr(TranslationModel, "start", note)
    searcher_of().best([[5] * 9] * 300)
    small = max(sizes)
    assert 1 < small < 300
    sizes.clear()
    free *= 2
    searcher_of().best([[5] * 9] * 300)
    assert max(sizes) == pytest.approx(2 * small, abs=1)


def test_many_beams_take_memory_for_what_each_sees_of_the_others() -> None:
    searcher = searcher_of()
    mask_per_head = 4 * 1000**2 * searcher.limit(9) * searcher.models[0].num_heads  # in fp32
    size = SearchSize(searcher.models, searcher.limit, hyps_each=1000)
    assert size.memory_of_sentence(9) > mask_per_head


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
def test_too_little_memory_gives_the_same_from_smaller_batches_with_one_warning(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    search: dict[str, Any],
    error: Exception,
) -> None:
    expected = searcher_of(batch_size=16, **search).n_best(SOURCES, n_best=1)
    failing(monkeypatch, error, where=lambda size: size > 4)
    found = searcher_of(batch_size=16, **search).n_best(SOURCES, n_best=1)
    assert ids_of(found) == ids_of(expected)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_threads_that_run_out_at_once_give_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    together = threading.Barrier(2)
    halving = Halving(torch.device("cpu"), if_single=("does not fit",))

    def work(batch: list[int]) -> list[int]:
        if len(batch) > 4:
            together.wait(10)
            raise torch.OutOfMemoryError("out of memory")
        return batch

    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda _: halving.map(work, list(range(8))), range(2))
        assert list(found) == [list(range(8))] * 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]


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
