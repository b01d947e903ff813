"""`doctor`: checks that a trained model computes what a Transformer should, on both backends.

Letters: B batch, S source length, T target length, V vocabulary.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mt_cli.config.schema import Device, Precision
from mt_cli.decoding.rules import Rules
from mt_cli.decoding.search import greedy_search
from mt_cli.machine.device import Runtime, choose_runtime, set_up_process
from mt_cli.model.translation_model import TranslationModel
from mt_cli.runs.opening import open_run
from mt_cli.text import BOS_ID, EOS_ID, PAD_ID, SPECIALS

MAX_LENGTH = 20
TOLERANCES: Mapping[Precision, float] = {"fp32": 1e-3, "bf16": 0.5, "fp16": 0.1}
"""Of log-probabilities; a wrong mask or cache changes them by several units."""


@dataclass(frozen=True)
class Check:
    """One property, and how far the model is from it."""

    name: str
    difference: float
    """The largest difference of log-probabilities."""
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the difference is within the tolerance; NaN is not."""
        return self.difference <= self.tolerance

    def __str__(self) -> str:
        result = "pass" if self.passed else "FAIL"
        return (
            f"{result}  {self.name}  difference {self.difference:.1e}  allowed {self.tolerance:.0e}"
        )


def examine_run(
    run_dir: Path, *, checkpoint: str, device: Device, precision: Precision
) -> list[Check]:
    """Check the model of `checkpoint` in `run_dir` on both backends."""
    set_up_process()
    runtime = choose_runtime(device=device, precision=precision)
    run = open_run(run_dir)
    name = run.resolve_checkpoint(checkpoint)  # the same for both, should training go on meanwhile
    scratch = run.load_model(checkpoint=name, backend="scratch").to(runtime.device)
    pytorch = run.load_model(checkpoint=name, backend="torch").to(runtime.device)
    return examine(scratch, pytorch, runtime=runtime)


def examine(
    scratch: TranslationModel, pytorch: TranslationModel, *, runtime: Runtime
) -> list[Check]:
    """The checks of one model on its two backends, in eval mode."""
    src_ids, tgt_in = _random_batch(scratch)
    with torch.no_grad(), runtime.autocast():
        found = [*_differences(scratch, src_ids, tgt_in, name="scratch")]
        found += _differences(pytorch, src_ids, tgt_in, name="torch")
        ours = _log_probs(scratch, src_ids, tgt_in)
        difference = _distance(ours, _log_probs(pytorch, src_ids, tgt_in))
        found.append(("both backends give the same probabilities", difference))
    tolerance = TOLERANCES[runtime.precision]
    return [Check(claim, difference, tolerance) for claim, difference in found]


def _differences(
    model: TranslationModel, src_ids: Tensor, tgt_in: Tensor, *, name: str
) -> Iterator[tuple[str, float]]:
    """Claims, and how far `model` is from each, for `src_ids` (B, S) and `tgt_in` (B, T)."""
    log_probs = _log_probs(model, src_ids, tgt_in)  # (B, T, V)
    half = tgt_in.shape[1] // 2
    changed = tgt_in.clone()
    changed[:, half:] = tgt_in[:, half:].flip(0)
    first_half = _log_probs(model, src_ids, changed)[:, :half]
    yield f"no information from future tokens ({name})", _distance(log_probs[:, :half], first_half)

    alone = []
    for row, tgt in zip(src_ids, tgt_in, strict=True):
        alone.append(_log_probs(model, row[row != PAD_ID].unsqueeze(0), tgt.unsqueeze(0)))
    difference = _distance(log_probs, torch.cat(alone))
    yield f"padding and the rest of the batch change nothing ({name})", difference

    state = model.start(src_ids)
    steps = [model.step(ids.unsqueeze(1), state) for ids in tgt_in.unbind(1)]
    difference = _distance(torch.cat(steps, dim=1).float().log_softmax(-1), log_probs)
    yield f"step by step equals the full pass ({name})", difference

    limits = torch.full((len(src_ids),), tgt_in.shape[1], device=src_ids.device)
    hyps = greedy_search(model.step, model.start(src_ids), limits, Rules(BOS_ID, EOS_ID))
    leads = [torch.zeros((), device=src_ids.device)]
    for row, hyp in zip(src_ids, hyps, strict=True):
        if hyp:
            forced = torch.tensor([[BOS_ID, *hyp]], device=src_ids.device)
            of_hyp = _log_probs(model, row.unsqueeze(0), forced)[0, : len(hyp)]  # (T, V)
            leads.append((of_hyp.amax(-1) - of_hyp.gather(1, forced[:, 1:].mT)[:, 0]).max())
    difference = float(torch.stack(leads).max())  # NaN if one is
    yield f"teacher-forced argmax equals the greedy prefix ({name})", difference


def _random_batch(model: TranslationModel) -> tuple[Tensor, Tensor]:
    """Source ids (6, S) of different lengths, padded, and target ids (6, T) after `<s>`."""
    generator = torch.Generator().manual_seed(0)
    longest = min(MAX_LENGTH, model.max_len - 2)
    first = len(SPECIALS)
    src_size = model.src_embedding.num_embeddings
    tgt_size = model.tgt_embedding.num_embeddings
    src_ids = torch.randint(first, src_size, (6, longest + 1), generator=generator)
    lengths = torch.linspace(1, longest, 6).long()
    src_ids[torch.arange(6), lengths] = EOS_ID
    src_ids[torch.arange(longest + 1) > lengths.unsqueeze(1)] = PAD_ID
    tgt_in = torch.randint(first, tgt_size, (6, longest), generator=generator)
    tgt_in[:, 0] = BOS_ID
    device = model.output.weight.device
    return src_ids.to(device), tgt_in.to(device)


def _log_probs(model: TranslationModel, src_ids: Tensor, tgt_in: Tensor) -> Tensor:
    return model(src_ids, tgt_in).float().log_softmax(-1)  # (B, T, V)


def _distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())
