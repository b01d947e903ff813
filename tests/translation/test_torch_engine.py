"""`TorchEngine`: batches and threads change neither the translations nor their order."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from tiny import CPU, random_ids, randomised, tiny_model

from mt_cli.config.schema import DecodingConfig
from mt_cli.errors import ResourceError
from mt_cli.model.inside import attention_maps
from mt_cli.model.model import DecoderState, TranslationModel
from mt_cli.text import BOS_ID, EOS_ID, PAD_ID
from mt_cli.translation.torch_engine import TorchEngine

FORBIDDEN = (PAD_ID, BOS_ID)
MODEL = randomised(tiny_model(decoder_layers=3, output_bias=True), seed=24, std=0.4)
LENGTHS = [1, 9, 3, 15, 2, 7, 4, 6, 12, 1, 5] * 2
SOURCES = [row[:n] for row, n in zip(random_ids(22, 15).tolist(), LENGTHS, strict=True)]
WARM: dict[str, Any] = {"temperature": 1.5}
NO_MEMORY = RuntimeError("can't allocate memory")  # as on a CPU
every_search = pytest.mark.parametrize(
    "search",
    [{}, {"beam_size": 3, "length_penalty": 0.6}, WARM],
    ids=["greedy", "beams", "samples"],
)


def engine_of(**options: object) -> TorchEngine:
    config = DecodingConfig.model_validate(options)
    return TorchEngine(MODEL, config, runtime=CPU, forbidden_ids=FORBIDDEN)


def found(
    torch_engine: TorchEngine, sources: Sequence[list[int]] = SOURCES, *, n_best: int = 1
) -> list[list[list[int]]]:
    """The ids of the hypotheses of each source."""
    hyps_of_sources = torch_engine.search(sources, n_best=n_best, is_scored=n_best > 1)
    return [[hyp.ids for hyp in hyps] for hyps in hyps_of_sources]


@pytest.fixture
def three_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("batch_size", [0, 4, 1000])
@every_search
def test_batches_and_threads_change_nothing(search: dict[str, Any], batch_size: int) -> None:
    n_best = 2 if search else 1
    alone = engine_of(batch_size=1, **search)
    usual = [found(alone, [source], n_best=n_best)[0] for source in SOURCES]
    assert found(engine_of(batch_size=batch_size, **search), n_best=n_best) == usual


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
def test_error_in_a_batch_surfaces_and_threads_are_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing(monkeypatch, NO_MEMORY, where=lambda size: size <= 2)  # the last batch
    with pytest.raises(ResourceError):
        found(engine_of(batch_size=4, beam_size=2))
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
@every_search
def test_too_little_memory_gives_the_same_from_smaller_batches(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    search: dict[str, Any],
) -> None:
    torch_engine = engine_of(batch_size=16, **search)
    expected = found(torch_engine)
    failing(monkeypatch, NO_MEMORY, where=lambda size: size > 4)
    assert found(torch_engine) == expected
    assert {record.levelname for record in caplog.records} == {"WARNING"}


@pytest.mark.parametrize("batch_size", [0, 1, 4])
def test_cross_attention_is_that_of_the_last_layer_but_one(batch_size: int) -> None:
    torch_engine = engine_of(batch_size=batch_size)
    hyps = [of_source[0] for of_source in found(torch_engine)]
    maps = torch_engine.cross_attention(SOURCES, hyps)
    for source, hyp, weights in zip(SOURCES, hyps, maps, strict=True):
        src_ids, tgt_in = torch.tensor([[*source, EOS_ID]]), torch.tensor([[BOS_ID, *hyp]])
        every_layer = attention_maps(MODEL, src_ids, tgt_in)["cross"]
        expected = every_layer[1, 0].mean(0)[: len(hyp), :-1]  # (T, S)
        torch.testing.assert_close(torch.from_numpy(weights), expected)
        assert weights.argmax(-1).tolist() == expected.argmax(-1).tolist()
