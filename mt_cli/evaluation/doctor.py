"""`doctor`: does a trained model compute what a Transformer should?

Checks a checkpoint through the model's public methods alone, so that a broken mask, cache or
backend shows. Letters: B batch, S source length, T target length, V vocabulary.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mt_cli.config.schema import Backend, Device, Precision
from mt_cli.decoding.rules import Rules
from mt_cli.decoding.search import greedy_search
from mt_cli.machine.device import Runtime, choose_runtime, set_up_process
from mt_cli.model.translation_model import TranslationModel
from mt_cli.runs.run import open_run
from mt_cli.text import BOS_ID, EOS_ID, PAD_ID, SPECIALS

NUM_SENTENCES = 6
LONGEST = 20
TOLERANCES: Mapping[Precision, float] = {"fp32": 1e-3, "bf16": 0.5, "fp16": 0.1}
"""Of log-probabilities; a wrong mask or cache changes them by several units."""
BACKENDS: tuple[Backend, ...] = ("scratch", "torch")


@dataclass(frozen=True)
class Check:
    """What was looked at, and how far it was from what it should be."""

    name: str
    difference: float
    """The largest seen: of log-probabilities, or in tokens where the tolerance is 0."""
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the difference is within the tolerance; one that is no number is not."""
        return self.difference <= self.tolerance

    def __str__(self) -> str:
        verdict = "pass" if self.passed else "FAIL"
        return f"{verdict}  {self.name}  difference {self.difference:.1e}  allowed {self.tolerance:.0e}"


def examine_run(
    run_dir: Path,
    *,
    checkpoint: str = "best",
    device: Device = "cpu",
    precision: Precision = "fp32",
) -> list[Check]:
    """Check the model of `checkpoint` in `run_dir` on both backends.

    Raises:
        ResourceError: there is no such device.
    """
    set_up_process()
    runtime = choose_runtime(device=device, precision=precision)
    run = open_run(run_dir)
    name = run.resolve_checkpoint(checkpoint)  # the same for both, should training go on meanwhile
    scratch, pytorch = (
        run.load_model(checkpoint=name, backend=backend).to(runtime.device) for backend in BACKENDS
    )
    return list(examine(scratch, pytorch, runtime=runtime))


@torch.no_grad()
def examine(
    scratch: TranslationModel, pytorch: TranslationModel, *, runtime: Runtime
) -> Iterator[Check]:
    """The checks of one model on its two backends, in eval mode."""
    tolerance = TOLERANCES[runtime.precision]
    src_ids, tgt_in = _random_batch(scratch)
    with runtime.autocast():
        for backend, model in zip(BACKENDS, (scratch, pytorch), strict=True):
            for claim, difference in CLAIMS.items():
                yield Check(f"{claim} ({backend})", difference(model, src_ids, tgt_in), tolerance)
        both = [_log_probs(model, src_ids, tgt_in) for model in (scratch, pytorch)]
        yield Check("both backends give the same probabilities", _distance(*both), tolerance)


def effect_of_future(model: TranslationModel, src_ids: Tensor, tgt_in: Tensor) -> float:
    """Change the second half of `tgt_in` (B, T): the output of the first half must not move."""
    half = tgt_in.shape[1] // 2
    changed = tgt_in.clone()
    changed[:, half:] = tgt_in[:, half:].flip(0)
    before, after = (_log_probs(model, src_ids, tgt)[:, :half] for tgt in (tgt_in, changed))
    return _distance(before, after)


def effect_of_padding(model: TranslationModel, src_ids: Tensor, tgt_in: Tensor) -> float:
    """Each sentence of `src_ids` (B, S) alone, without padding, must give what it gives in the
    batch.
    """
    together = _log_probs(model, src_ids, tgt_in)
    alone = torch.cat(
        [
            _log_probs(model, row[row != PAD_ID].unsqueeze(0), tgt.unsqueeze(0))
            for row, tgt in zip(src_ids, tgt_in, strict=True)
        ]
    )
    return _distance(together, alone)


def effect_of_steps(model: TranslationModel, src_ids: Tensor, tgt_in: Tensor) -> float:
    """Step by step over `tgt_in` (B, T), the probabilities must be those of one full pass."""
    state = model.start(src_ids)
    steps = torch.cat(
        [model.step(ids, state) for ids in tgt_in.unsqueeze(-1).unbind(1)], dim=1
    )  # (B, T, V)
    return _distance(steps.float().log_softmax(-1), _log_probs(model, src_ids, tgt_in))


def lead_over_greedy(model: TranslationModel, src_ids: Tensor, _tgt_in: Tensor) -> float:
    """How far the most probable token is ahead of the one that greedy search chose; 0 if they
    agree.
    """
    limit = min(LONGEST, model.longest_sentence)
    device = src_ids.device
    limits = torch.full((len(src_ids),), limit, device=device)
    hyps = greedy_search(model.step, model.start(src_ids), limits, Rules(BOS_ID, EOS_ID))
    leads = [0.0]
    for row, hyp in zip(src_ids, hyps, strict=True):
        if hyp:
            forced = torch.tensor([[BOS_ID, *hyp]], device=device)
            log_probs = _log_probs(model, row.unsqueeze(0), forced)[0, : len(hyp)]  # (T, V)
            leads.append(
                _distance(log_probs.amax(-1, keepdim=True), log_probs.gather(1, forced[:, 1:].mT))
            )
    return float(torch.tensor(leads).max())  # NaN if one is, unlike Python's max


CLAIMS: Mapping[str, Callable[[TranslationModel, Tensor, Tensor], float]] = {
    "no information from future tokens": effect_of_future,
    "padding and the rest of the batch change nothing": effect_of_padding,
    "step by step equals the full pass": effect_of_steps,
    "teacher-forced argmax equals the greedy prefix": lead_over_greedy,
}


def _random_batch(model: TranslationModel) -> tuple[Tensor, Tensor]:
    """Source ids (B, S) of different lengths, padded, and target ids (B, T) after `<s>`."""
    generator = torch.Generator().manual_seed(0)
    first = len(SPECIALS)
    longest = min(LONGEST, model.max_len - 2)
    src_vocab_size = model.src_embedding.num_embeddings
    tgt_vocab_size = model.tgt_embedding.num_embeddings
    src_ids = torch.randint(
        first, src_vocab_size, (NUM_SENTENCES, longest + 1), generator=generator
    )
    lengths = torch.linspace(1, longest, NUM_SENTENCES).long()  # (B,)
    src_ids[torch.arange(NUM_SENTENCES), lengths] = EOS_ID
    src_ids[torch.arange(longest + 1) > lengths.unsqueeze(1)] = PAD_ID
    tgt_in = torch.randint(first, tgt_vocab_size, (NUM_SENTENCES, longest), generator=generator)
    tgt_in[:, 0] = BOS_ID
    device = model.output.weight.device
    return src_ids.to(device), tgt_in.to(device)


def _log_probs(model: TranslationModel, src_ids: Tensor, tgt_in: Tensor) -> Tensor:
    log_probs: Tensor = model(src_ids, tgt_in).float().log_softmax(-1)  # (B, T, V)
    return log_probs


def _distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())
