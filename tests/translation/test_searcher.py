"""`Searcher`: however sources are batched and on however many threads, the same comes out in order."""

import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import CPU, random_ids, randomised, tiny_model
from torch.utils._python_dispatch import TorchDispatchMode

from mt_cli.config import DecodingConfig
from mt_cli.decoding.sampling import Sampling
from mt_cli.decoding.search import Hyp
from mt_cli.errors import ResourceError
from mt_cli.machine.device import Runtime
from mt_cli.model.attention_maps import attention_maps
from mt_cli.model.backend import DecoderState
from mt_cli.model.memory_layout import lay_out_for_decoding
from mt_cli.model.translation_model import TranslationModel
from mt_cli.text.symbols import BOS_ID, EOS_ID, PAD_ID
from mt_cli.translation import searcher as module
from mt_cli.translation.searcher import FEWEST_SENTENCES, Searcher

FORBIDDEN = (PAD_ID, BOS_ID)
MODEL = randomised(tiny_model(decoder_layers=3, output_bias=True), seed=24, std=0.4)
LENGTHS = [1, 9, 3, 15, 2, 7, 4, 6, 12, 1] * 3
SOURCES = [row[:n] for row, n in zip(random_ids(30, 15).tolist(), LENGTHS, strict=True)]
WARM = Sampling(temperature=1.5)
BF16 = Runtime(torch.device("cpu"), "bf16")


def searcher_of(
    model: TranslationModel = MODEL,
    *,
    sampling: Sampling | None = None,
    seed: int = 1,
    options: Mapping[str, object] = MappingProxyType({}),
    **named: object,
) -> Searcher:
    return Searcher(
        model,
        DecodingConfig.model_validate({**options, **named}),
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


# The same, whatever the batches


@functools.cache
def one_by_one() -> list[list[int]]:
    return [searcher_of().best([source])[0] for source in SOURCES]


def test_sources_are_told_apart() -> None:
    assert len({tuple(hyp) for hyp in one_by_one()}) > 5
    assert len({len(hyp) for hyp in one_by_one()}) > 3


@pytest.mark.parametrize("batch_size", [0, 1, 4, 1000])
def test_batch_size_changes_nothing(batch_size: int) -> None:
    assert searcher_of(batch_size=batch_size).best(SOURCES) == one_by_one()


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("batch_size", [0, 1, 4, 1000])
def test_threads_change_nothing(batch_size: int) -> None:
    assert searcher_of(batch_size=batch_size).best(SOURCES) == one_by_one()


@pytest.mark.usefixtures("three_threads")
def test_threads_change_no_beam() -> None:
    usual = [searcher_of(beam_size=3, batch_size=1).n_best([source], n_best=2)[0] for source in SOURCES]
    assert ids_of(searcher_of(beam_size=3).n_best(SOURCES, n_best=2)) == ids_of(usual)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("batch_size", [0, 1, 4])
def test_batches_and_threads_change_no_sample(batch_size: int) -> None:
    usual = [searcher_of(sampling=WARM).n_best([source], n_best=2)[0] for source in SOURCES]
    found = searcher_of(sampling=WARM, batch_size=batch_size).n_best(SOURCES, n_best=2)
    assert ids_of(found) == ids_of(usual)


@settings(max_examples=15)
@given(st.lists(st.integers(0, len(SOURCES) - 1), max_size=20), st.integers(0, 5))
def test_any_order_and_any_repetition_keep_each_in_its_place(places: list[int], batch_size: int) -> None:
    found = searcher_of(batch_size=batch_size).best([SOURCES[i] for i in places])
    assert found == [one_by_one()[i] for i in places]


# Rules

UNBIASED = randomised(tiny_model(decoder_layers=3), seed=14, std=0.4)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_no_translation_is_shorter_than_the_fewest_tokens(beam_size: int) -> None:
    lengths = [len(hyp) for hyp in searcher_of(UNBIASED, beam_size=beam_size).best(SOURCES)]
    assert min(lengths) < 8
    searcher = searcher_of(UNBIASED, beam_size=beam_size, min_len=8)
    limits = [searcher.limit(len(source)) for source in SOURCES]
    for hyp, limit in zip(searcher.best(SOURCES), limits, strict=True):
        assert min(8, limit) <= len(hyp) <= limit


def test_no_sources_give_no_hypotheses() -> None:
    assert searcher_of().best([]) == []
    assert searcher_of(beam_size=2).n_best([], n_best=2) == []
    assert searcher_of().align([], []) == []


class Conversions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts how often a parameter of `model`, or a part of it, is made into another type."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0
        self._storages = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def __torch_dispatch__(
        self,
        func: object,
        _types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        if func in (torch.ops.aten._to_copy.default, torch.ops.aten.to.dtype):
            self.count += args[0].untyped_storage().data_ptr() in self._storages
        assert callable(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("beam_size", [1, 2])
def test_a_lower_precision_converts_each_weight_once_however_many_steps(beam_size: int) -> None:
    model = randomised(tiny_model(decoder_layers=2, tie="all"))
    lay_out_for_decoding(model)
    config = DecodingConfig(beam_size=beam_size, min_len=100)  # so that every search goes on to its limit
    searcher = Searcher(model, config, runtime=BF16, forbidden_ids=FORBIDDEN)
    counts, lengths = [], []
    for source in ([4], [4] * 9):
        with Conversions(model) as conversions:
            lengths += [len(hyp) for hyp in searcher.best([source])]
        counts.append(conversions.count)
    assert lengths[0] < lengths[1]
    assert counts[0] == counts[1] > 0


def test_a_search_in_bf16_fills_its_batches_up(monkeypatch: pytest.MonkeyPatch) -> None:
    searcher = Searcher(MODEL, DecodingConfig(batch_size=9), runtime=BF16, forbidden_ids=FORBIDDEN)
    shapes = batch_shapes(monkeypatch, searcher, [source for source in SOURCES if len(source) < 15])
    assert sorted(shapes) == [(10, 3), (10, 7), (10, 14)]  # of nine sentences with 3, 7 and 13 tokens


# Batches


def batch_shapes(
    monkeypatch: pytest.MonkeyPatch, searcher: Searcher, sources: Sequence[list[int]] = SOURCES
) -> list[tuple[int, ...]]:
    """Sizes (B, S) of what the model is given for `sources`, as it comes."""
    shapes: list[tuple[int, ...]] = []
    start = TranslationModel.start

    def watched(model: TranslationModel, src_ids: torch.Tensor) -> object:
        shapes.append(tuple(src_ids.shape))
        return start(model, src_ids)

    monkeypatch.setattr(TranslationModel, "start", watched)
    searcher.best(sources)
    return shapes


def test_long_ones_come_first_and_in_smaller_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.TOKENS_AT_ONCE, "cpu", 64)
    shapes = batch_shapes(monkeypatch, searcher_of())
    assert [size * width for size, width in shapes if size * width > 64] == []
    assert [width for _, width in shapes] == sorted((width for _, width in shapes), reverse=True)
    assert shapes[0] == (4, 16)
    assert shapes[-1][0] > 4


def test_a_source_longer_than_the_budget_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.TOKENS_AT_ONCE, "cpu", 10)
    shapes = batch_shapes(monkeypatch, searcher_of())
    assert shapes[:3] == [(1, 16)] * 3


@pytest.mark.parametrize(("options", "largest"), [({}, 12), ({"beam_size": 3}, 4), ({"batch_size": 5}, 5)])
def test_batches_hold_as_many_sentences_as_suit(
    monkeypatch: pytest.MonkeyPatch, options: Mapping[str, object], largest: int
) -> None:
    monkeypatch.setitem(module.HYPS_AT_ONCE, "cpu", 12)
    assert max(size for size, _ in batch_shapes(monkeypatch, searcher_of(options=options))) == largest


@pytest.mark.usefixtures("three_threads")
def test_every_core_has_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sorted(size for size, _ in batch_shapes(monkeypatch, searcher_of())) == [10, 10, 10]


@pytest.mark.usefixtures("three_threads")
def test_last_batches_get_smaller_so_that_cores_end_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.SENTENCES_AT_ONCE, "cpu", 150)
    shapes = batch_shapes(monkeypatch, searcher_of(), [[4, 5]] * 600)
    sizes = sorted((size for size, _ in shapes), reverse=True)
    assert sizes == [150, 150, 100, 67, 64, 64, 5]


@pytest.mark.usefixtures("three_threads")
def test_few_sentences_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = batch_shapes(monkeypatch, searcher_of(), SOURCES[:FEWEST_SENTENCES])
    assert [size for size, _ in shapes] == [FEWEST_SENTENCES]


# Threads and errors


@pytest.mark.usefixtures("three_threads")
def test_number_of_threads_is_as_before() -> None:
    searcher_of(batch_size=4).best(SOURCES)
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize(
    ("failure", "expected", "message"),
    [
        (ValueError("broken"), ValueError, "broken"),
        (
            RuntimeError("can't allocate memory"),
            ResourceError,
            r"^out of memory; a single sentence does not fit$",
        ),
    ],
    ids=["an error", "no memory"],
)
def test_error_in_a_batch_surfaces_and_threads_are_as_before(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, expected: type[Exception], message: str
) -> None:
    step = TranslationModel.step

    def fails_for_the_last(model: TranslationModel, ids: torch.Tensor, state: DecoderState) -> torch.Tensor:
        if state.length == 0 and len(ids) in {1, len(SOURCES) % 4}:
            raise failure
        return step(model, ids, state)

    monkeypatch.setattr(TranslationModel, "step", fails_for_the_last)
    with pytest.raises(expected, match=message):
        searcher_of(batch_size=4).best(SOURCES)
    assert torch.get_num_threads() == 3


# Too little memory


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("search", ["greedy", "beams", "samples"])
@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory")], ids=type
)
def test_too_little_memory_gives_the_same_from_smaller_batches_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, search: str, error: Exception
) -> None:
    def found() -> list[list[list[int]]]:
        if search == "greedy":
            return [[ids] for ids in searcher_of(batch_size=16).best(SOURCES)]
        sampling = WARM if search == "samples" else None
        searcher = searcher_of(batch_size=16, beam_size=3, length_penalty=0.6, sampling=sampling)
        return ids_of(searcher.n_best(SOURCES, n_best=2))

    expected = found()
    step = TranslationModel.step
    sizes: list[int] = []

    def lacks_memory(model: TranslationModel, ids: torch.Tensor, state: DecoderState) -> torch.Tensor:
        if state.length == 0:
            sizes.append(len(ids))
            if len(ids) > 4:
                raise error
        return step(model, ids, state)

    monkeypatch.setattr(TranslationModel, "step", lacks_memory)
    assert found() == expected
    assert max(sizes) > 4
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "batches that do not fit are divided in halves" in caplog.text


# Limits, samples, alignments


@pytest.mark.parametrize(
    ("src_length", "expected"), [(1, 4), (2, 6), (5, 12), (15, 15)], ids=["1", "2", "5", "the model's"]
)
def test_limit_grows_with_the_source_up_to_the_models(src_length: int, expected: int) -> None:
    assert searcher_of(max_len_factor=2.0, max_len_extra=2).limit(src_length) == expected


def test_a_source_that_fills_the_model_is_taken() -> None:
    searcher = searcher_of()
    assert MODEL.longest_sentence == 15
    assert len(searcher.best([[4] * 15])) == 1


def test_seed_decides_the_samples() -> None:
    first, again, other = (searcher_of(sampling=WARM, seed=seed).best(SOURCES) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_samples_of_a_sentence_differ_and_are_ranked() -> None:
    found = searcher_of(sampling=WARM).n_best(SOURCES, n_best=4)
    assert max(len({tuple(hyp.ids) for hyp in hyps}) for hyps in found) == 4
    scores = [[hyp.score for hyp in hyps] for hyps in found]
    assert scores == [sorted(each, reverse=True) for each in scores]


@pytest.mark.parametrize("batch_size", [0, 1, 4])
def test_alignment_is_where_the_last_layer_but_one_looks_most(batch_size: int) -> None:
    aligned = searcher_of(batch_size=batch_size).align(SOURCES, one_by_one())
    for source, hyp, places in zip(SOURCES, one_by_one(), aligned, strict=True):
        src_ids, tgt_in = torch.tensor([[*source, EOS_ID]]), torch.tensor([[BOS_ID, *hyp]])
        weights = attention_maps(MODEL, src_ids, tgt_in)["cross"][1, 0].mean(0)  # (T, S)
        assert places == weights[: len(hyp), :-1].argmax(-1).tolist()


@given(st.lists(st.lists(st.integers(4, 10), max_size=15), min_size=1, max_size=6))
@settings(max_examples=15)
def test_alignment_stays_within_the_source_and_has_a_place_for_every_id(hyps: list[list[int]]) -> None:
    aligned = searcher_of().align(SOURCES[: len(hyps)], hyps)
    assert [len(places) for places in aligned] == [len(hyp) for hyp in hyps]
    ends = [max(places, default=0) for places in aligned]
    assert [end for end, source in zip(ends, SOURCES, strict=False) if end >= len(source)] == []


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
    assert len(reports) == 8
    assert threads == {threading.get_ident()}
    assert ids_of(found) == ids_of(searcher.n_best(SOURCES, n_best=1))
