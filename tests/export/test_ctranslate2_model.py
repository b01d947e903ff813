"""Converted models against the models that they came from, in every option of their shape."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import get_args

import ctranslate2
import pytest
import torch
from tiny import MODEL_OPTIONS, TINY, covering, random_ids, randomised, tiny_model, with_bos
from torch import Tensor

from mt_cli.config.schema import Quantization
from mt_cli.decoding.search import Rules, greedy_search
from mt_cli.export.ctranslate2_model import write_model
from mt_cli.model.model import TranslationModel
from mt_cli.text import BOS_ID, EOS_ID, SPECIALS
from mt_cli.translation.options import NEVER_CHOSEN

TOKENS = [*SPECIALS, "a", "b", "c", "d", "e", "f", "g"]
LONGEST = 10


def converted(
    model: TranslationModel,
    options: Mapping[str, object] = MappingProxyType({}),
    *,
    quantization: Quantization = "none",
    ruled_out: Sequence[int] = (),
) -> ctranslate2.Translator:
    """`model`, which was made with `options`, as CTranslate2 loads it."""
    config = TINY.model_copy(update=dict(options))
    with TemporaryDirectory() as name:
        write_model(
            Path(name),
            model,
            config,
            src_tokens=TOKENS,
            tgt_tokens=TOKENS,
            quantization=quantization,
            ruled_out=ruled_out,
        )
        return ctranslate2.Translator(name, intra_threads=1)


def named(ids: Tensor) -> list[list[str]]:
    return [[TOKENS[i] for i in row] for row in ids.tolist()]


def with_eos(ids: Tensor) -> Tensor:
    return torch.cat([ids, torch.full_like(ids[:, :1], EOS_ID)], dim=1)


def log_probs(model: TranslationModel, src_ids: Tensor, tgt_ids: Tensor) -> Tensor:
    """Of each token of `tgt_ids` (B, T) and of the end after it, (B, T+1)."""
    with torch.no_grad():
        logits = model(with_eos(src_ids), with_bos(tgt_ids))
    chosen: Tensor = logits.log_softmax(-1).gather(-1, with_eos(tgt_ids).unsqueeze(-1))
    return chosen.squeeze(-1)


def greedy(model: TranslationModel, src_ids: Tensor) -> list[list[str]]:
    with torch.no_grad():
        state = model.start(with_eos(src_ids))
        limits = torch.full((len(src_ids),), LONGEST)
        hyps = greedy_search(model.step, state, limits, Rules(BOS_ID, EOS_ID, NEVER_CHOSEN))
    return [[TOKENS[i] for i in hyp] for hyp in hyps]


def exported_greedy(
    translator: ctranslate2.Translator, src_ids: Tensor, *, is_ruled_out: bool = False
) -> list[list[str]]:
    results = translator.translate_batch(
        named(src_ids),
        beam_size=1,
        min_decoding_length=0,
        max_decoding_length=LONGEST,
        suppress_sequences=[] if is_ruled_out else [[TOKENS[i]] for i in NEVER_CHOSEN],
    )
    return [result.hypotheses[0] for result in results]


@pytest.mark.parametrize(
    "options", covering(MODEL_OPTIONS), ids=lambda options: str([*options.values()])
)
def test_exported_model_gives_the_same_probabilities_and_tokens(options: dict[str, object]) -> None:
    model = randomised(tiny_model(options=options))
    exported = converted(model, options)
    src_ids, tgt_ids = random_ids(8, 6), random_ids(8, 5, seed=1)
    scored = exported.score_batch(named(src_ids), named(tgt_ids))
    theirs = torch.tensor([result.log_probs for result in scored])
    torch.testing.assert_close(theirs, log_probs(model, src_ids, tgt_ids), rtol=1e-5, atol=1e-4)
    assert exported_greedy(exported, src_ids) == greedy(model, src_ids)


@pytest.mark.parametrize("output_bias", [True, False])
def test_tokens_that_are_ruled_out_stay_unsaid(output_bias: bool) -> None:
    model = randomised(tiny_model(output_bias=output_bias))
    with torch.no_grad():
        model.output.weight[list(NEVER_CHOSEN)] *= 100
        if output_bias:
            model.output.bias[list(NEVER_CHOSEN)] = 100.0
    src_ids = random_ids(8, 6)
    exported = converted(model, {"output_bias": output_bias}, ruled_out=NEVER_CHOSEN)
    said = exported_greedy(exported, src_ids, is_ruled_out=True)
    assert said == greedy(model, src_ids)
    assert {SPECIALS[i] for i in NEVER_CHOSEN}.isdisjoint(token for hyp in said for token in hyp)


@pytest.mark.parametrize("quantization", get_args(Quantization))
def test_every_quantization_loads_and_translates(quantization: Quantization) -> None:
    translator = converted(randomised(tiny_model()), quantization=quantization)
    assert len(exported_greedy(translator, random_ids(3, 6))) == 3
