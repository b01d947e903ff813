"""`Engine`: what searches for translations, and which one does for a run.

Knows how engines are made of opened runs; never sees text.
"""

from collections.abc import Sequence
from typing import Protocol

from mt_cli.artefacts.exported_run import AnyRun, ExportedRun
from mt_cli.artefacts.run import Run
from mt_cli.config import Backend, DecodingConfig, Device
from mt_cli.decoding.sampling import Sampling
from mt_cli.decoding.search import Hyp
from mt_cli.errors import Option, UsageError
from mt_cli.machine.device import memory_errors_explained, set_up_runtime
from mt_cli.model.ensemble import Ensemble
from mt_cli.model.memory_layout import lay_out_for_decoding
from mt_cli.translation.options import SearchOptions
from mt_cli.translation.searcher import Ids, OnDone, Searcher


class Engine(Protocol):
    """Source ids in, hypotheses out; no source is empty."""

    @property
    def longest_sentence(self) -> int:
        """Most ids of a source, and of a hypothesis."""

    @property
    def device(self) -> str:
        """On which it computes."""

    def limit(self, src_length: int) -> int:
        """Most ids of the translation of `src_length` ids."""

    def best(self, sources: Sequence[Ids], *, on_done: OnDone | None = None) -> list[list[int]]:
        """The best hypothesis of each of `sources`."""

    def n_best(
        self, sources: Sequence[Ids], *, n_best: int, on_done: OnDone | None = None
    ) -> list[list[Hyp]]:
        """The `n_best` best hypotheses of each of `sources`, the best first."""

    def align(
        self, sources: Sequence[Ids], hyps: Sequence[Ids], *, among: Sequence[Sequence[int]] | None = None
    ) -> list[list[int]]:
        """The place in its source that each id of `hyps` attends to most; with `among`, of those places.

        `</s>` does not count. Heads are averaged in the last layer but one, whose cross-attention aligns
        best (Garg et al. 2019).
        """


def load_engine(
    runs: Sequence[AnyRun],
    config: DecodingConfig,
    *,
    checkpoints: Sequence[str],
    backend: Backend | None,
    forbidden_ids: Ids,
    sampling: Sampling | None,
    seed: int,
    device: Device,
    threads: int,
) -> Engine:
    """The engine that searches with opened `runs`, as `config` says.

    Raises:
        UsageError: there is no such checkpoint.
        ResourceError: no such device, too little memory, or a package is missing.
    """
    exported = next((run for run in runs if isinstance(run, ExportedRun)), None)
    if exported is not None:
        from mt_cli.translation.exported_searcher import ExportedSearcher

        exported.resolve_checkpoint(checkpoints[0])
        return ExportedSearcher(
            exported,
            config,
            forbidden_ids=forbidden_ids,
            sampling=sampling,
            seed=seed,
            device=device,
            threads=threads,
        )
    runtime = set_up_runtime(device=device, precision=config.precision, threads=threads)
    with memory_errors_explained("the model does not fit"):
        models = [
            run.load_model(checkpoint=name, backend=backend)
            for run, name in zip(runs, checkpoints, strict=True)
            if isinstance(run, Run)
        ]
        if runtime.device.type == "cpu":
            for model in models:
                lay_out_for_decoding(model)
        return Searcher(
            (models[0] if len(models) == 1 else Ensemble(models).eval()).to(runtime.device),
            config,
            runtime=runtime,
            forbidden_ids=forbidden_ids,
            sampling=sampling,
            seed=seed,
        )


def check_engine_options(run: AnyRun, search: SearchOptions, *, backend: Backend | None) -> None:
    """Complain about an option that an exported model's engine does not have.

    Raises:
        UsageError: naming the option.
    """
    if not isinstance(run, ExportedRun):
        return
    if backend == "torch":
        raise UsageError(
            f"{run.folder}: an exported model has no layers of ours; leave out ", Option("backend")
        )
    precision = search.get("precision")
    own = {"none": "fp32", "bfloat16": "bf16"}.get(run.quantization, run.quantization)
    if precision not in (None, own):
        raise UsageError(
            f"{run.folder}: exported to compute in {own}; leave out ", Option("precision", precision)
        )
