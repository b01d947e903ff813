"""The other engine: folders that `export` wrote for CTranslate2, and search with them. Imports no torch."""

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ValidationError

from mt_cli.config.load import RUN_CONFIG, config_of_bytes, dump_config
from mt_cli.config.schema import Config, DecodingConfig, Device, Quantization
from mt_cli.decoding import Hyp, Sampling, penalty
from mt_cli.errors import DataError, Option, ResourceError, UsageError, shortage
from mt_cli.machine.files import (
    MANIFEST,
    check_hashes,
    read_file,
    read_json,
    recover,
    sha256_of_files,
    write_atomically,
    write_json,
)
from mt_cli.machine.processes import usable_cores
from mt_cli.model.shapes import num_parameters
from mt_cli.runs.run import (
    MOST_CONFIG_BYTES,
    MOST_TOKENIZER_BYTES,
    TOKENIZER,
    CheckpointReference,
    PreparedReference,
    Run,
    is_exported,
    model_shapes,
    open_runs,
    read_tokenizers,
)
from mt_cli.text import UNK_ID
from mt_cli.text.tokenizer import Tokenizers

if TYPE_CHECKING:  # an optional package
    from ctranslate2 import AsyncTranslationResult, TranslationResult

ENGINE: Literal["ctranslate2"] = "ctranslate2"
MOST_BYTES_BESIDE = 1 << 26
"""Of what the engine's files hold beside parameters and positions."""
Ids = Sequence[int]
OnDone = Callable[[Sequence[int]], None]


class ExportManifest(BaseModel):
    """manifest.json of an exported model."""

    format: Literal[1] = 1
    engine: Literal["ctranslate2"] = ENGINE
    quantization: Quantization
    exported_from: CheckpointReference
    prepared: PreparedReference
    sha256: dict[str, str]
    """Of every other file, by relative path."""


@dataclass(frozen=True)
class ExportedRun:
    """An opened exported model: one checkpoint of a run, which translates and does nothing else."""

    folder: Path
    config: Config
    """The run's, but for `[decoding] precision`: the engine computes in what the weights are stored as."""
    manifest: ExportManifest

    @property
    def prepared(self) -> PreparedReference:
        """The data that the run was trained on."""
        return self.manifest.prepared

    @property
    def exported_from(self) -> CheckpointReference:
        """The checkpoint that it was made of."""
        return self.manifest.exported_from

    @property
    def quantization(self) -> Quantization:
        """What matrices are stored as; `none` is float32."""
        return self.manifest.quantization

    @cached_property
    def tokenizers(self) -> Tokenizers:
        """Both sides' tokenizers."""
        return read_tokenizers(self.folder, self.manifest.sha256)

    def check_vocabularies(self) -> None:
        """Make sure that the engine's vocabularies are those of the tokenizers.

        Raises:
            DataError: they are not.
        """
        src, tgt = self.tokenizers.src.entries, self.tokenizers.tgt.entries
        for side, entries in {"shared": src, "source": src, "target": tgt}.items():
            path = self.folder / f"{side}_vocabulary.json"
            if path.name not in self.manifest.sha256:
                continue
            try:
                is_same = json.loads(read_file(path, most=MOST_TOKENIZER_BYTES)) == entries
            except (ValueError, RecursionError):
                is_same = False
            if not is_same:
                raise DataError(f"{path}: not the vocabulary of {self.folder / TOKENIZER}; export it again")

    def resolve_checkpoint(self, name: str) -> str:
        """Name of the checkpoint that `name` means, of which there is one.

        Raises:
            UsageError: `name` means another one.
        """
        own = self.exported_from.checkpoint
        if name not in ("best", own):
            raise UsageError(
                f"{self.folder}: an exported model of {own}, without '{name}'; leave out ",
                Option("checkpoint"),
            )
        return own


AnyRun = Run | ExportedRun
"""What translates: a run, or a model that was exported from one."""


def complete_export(
    folder: Path, run: Run, *, quantization: Quantization, checkpoint: CheckpointReference
) -> ExportedRun:
    """Write the config and the manifest beside what was made of the `checkpoint` of `run` in `folder`."""
    decoding = run.config.decoding.model_copy(update={"precision": "fp32"})
    config = run.config.model_copy(update={"decoding": decoding})
    write_atomically(folder / RUN_CONFIG, dump_config(config).encode())
    manifest = ExportManifest(
        quantization=quantization,
        exported_from=checkpoint,
        prepared=run.prepared,
        sha256=sha256_of_files(folder),
    )
    write_json(folder / MANIFEST, manifest.model_dump())
    return ExportedRun(folder, config, manifest)


def open_exported_run(folder: Path) -> ExportedRun:
    """Open an exported model after checking all of its files.

    Raises:
        UsageError: it has no manifest: another program made it.
        DataError: a file is missing or altered.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise UsageError(
            f"{folder}: a model for CTranslate2 without {MANIFEST}, so not made by mt-cli export"
        )
    try:
        manifest = ExportManifest.model_validate(read_json(path))
    except ValidationError as error:
        raise DataError(
            f"{path}: not a manifest of an exported model of format 1; export it again"
        ) from error
    if RUN_CONFIG not in manifest.sha256:
        raise DataError(f"{path}: lists no {RUN_CONFIG}; export it again")
    ours = {n: d for n, d in manifest.sha256.items() if n == RUN_CONFIG or n.startswith(TOKENIZER)}
    check_hashes(folder, ours, most=MOST_TOKENIZER_BYTES)
    content = read_file(folder / RUN_CONFIG, most=MOST_CONFIG_BYTES)
    exported = ExportedRun(folder, config_of_bytes(content, origin=folder / RUN_CONFIG), manifest)
    model = exported.config.model
    positions = 2 * model.max_len * model.d_model
    numbers = num_parameters(model_shapes(model, exported.tokenizers)) + positions
    check_hashes(folder, manifest.sha256, most=4 * numbers + MOST_BYTES_BESIDE)
    return exported


def open_any_runs(folders: Sequence[Path]) -> Sequence[AnyRun]:
    """Open the runs in `folders` as an ensemble, or the one exported model.

    Raises:
        UsageError: as `open_runs`; or an exported model is named beside others.
        DataError: a file is missing or altered.
    """
    for folder in folders:
        recover(folder)
    exported = [folder for folder in folders if is_exported(folder)]
    if not exported:
        return open_runs(folders)
    if len(folders) > 1:
        raise UsageError(
            f"{exported[0]}: an exported model translates alone; an ensemble needs the runs themselves"
        )
    return [open_exported_run(exported[0])]


# Search

SENTENCES_AT_ONCE = {"cpu": 64, "cuda": 128}
BATCHES_AHEAD = 4
"""Of each thread: enough that none waits, few enough that an interrupt is obeyed at once."""
PATIENCE = 2.0
"""Hypotheses that end a search with a length penalty, in multiples of the beam size; 1 costs 0.3 BLEU."""
NO_LIBRARY = "is not found or cannot be loaded"
"""What CTranslate2 says where a library of CUDA is missing, or has another version."""
LEAST_TOP_P = 1e-6
"""CTranslate2 refuses 0, with which only the likeliest token is drawn; so is it with this."""


def check_installed(purpose: str) -> None:
    """Make sure that CTranslate2 can be imported; `purpose` is what needs it.

    Raises:
        ResourceError: it is not installed.
    """
    try:
        import ctranslate2  # noqa: F401
    except ImportError as error:
        raise ResourceError(
            f"{purpose} needs the package ctranslate2, which cannot be imported ({error}); "
            "run: pip install 'mt_cli[export]'"
        ) from error


class ExportedSearcher:
    """Searches for translations with an exported model, under the rules and limits of `Searcher`.

    CTranslate2 decides how a beam is searched. Hypotheses are ranked by our length penalty, not by its own.
    """

    def __init__(
        self,
        run: ExportedRun,
        config: DecodingConfig,
        *,
        forbidden_ids: Ids,
        sampling: Sampling | None = None,
        seed: int = 1,
        device: Device = "auto",
        threads: int = 0,
    ) -> None:
        """Of `forbidden_ids`, only `<unk>` is a choice: the exported weights rule the others out."""
        check_installed(f"{run.folder}, an exported model,")
        import ctranslate2

        self._config = config
        self.longest_sentence = run.config.model.longest_sentence
        """Most ids of a source, and of a hypothesis."""
        self._forbids_unk = UNK_ID in forbidden_ids
        self._sampling = sampling
        self._src_tokens = run.tokenizers.src.entries
        self._tgt_tokens = run.tokenizers.tgt.entries
        self._tgt_ids = {token: i for i, token in enumerate(self._tgt_tokens)}
        self.device = _choose_device(device)
        """On which it computes."""
        if sampling is not None:
            ctranslate2.set_random_seed(seed % 2**32)
        # A thread for each batch is faster than threads that share one, for a single small sentence too.
        # Sampling has one thread, so that results do not depend on timing.
        self._workers = 1 if sampling or self.device == "cuda" else threads or usable_cores()
        run.check_vocabularies()
        with self._failures_explained("the model does not fit", loaded=run.folder):
            self._engine = ctranslate2.Translator(
                str(run.folder), device=self.device, inter_threads=self._workers, intra_threads=1
            )

    @property
    def compute_type(self) -> str:
        """What it computes in, such as `float32`; not every machine can what the weights are stored as."""
        return str(self._engine.compute_type)

    def limit(self, src_length: int) -> int:
        """Most ids of the translation of `src_length` ids."""
        return min(self._config.max_len(src_length), self.longest_sentence)

    def best(self, sources: Sequence[Ids], *, on_done: OnDone | None = None) -> list[list[int]]:
        """The best hypothesis of each of `sources`, none of which is empty."""
        if self._sampling is not None or self._config.beam_size > 1:
            return [hyps[0].ids for hyps in self.n_best(sources, n_best=1, on_done=on_done)]
        # A batch has one limit. Greedy search never looks ahead: to cut is as good as to stop.
        results = self._in_batches(sources, self._search, is_limit_shared=True, on_done=on_done)
        return [
            self._ids(result.hypotheses[0])[: self.limit(len(ids))]
            for ids, result in zip(sources, results, strict=True)
        ]

    def n_best(
        self, sources: Sequence[Ids], *, n_best: int, on_done: OnDone | None = None
    ) -> list[list[Hyp]]:
        """The `n_best` best hypotheses of each of `sources`, the best first."""
        if self._sampling is not None:
            return self._samples(sources, n_best=n_best, on_done=on_done)
        # All that were found: the one that CTranslate2 ranks last may be the first by our penalty.
        num_hyps = n_best if self._config.length_penalty == 0 else self._config.beam_size
        search = partial(self._search, num_hyps=num_hyps)
        results = self._in_batches(sources, search, on_done=on_done)
        return [
            self._ranked(result, limit=self.limit(len(ids)))[:n_best]
            for ids, result in zip(sources, results, strict=True)
        ]

    def align(
        self, sources: Sequence[Ids], hyps: Sequence[Ids], *, among: Sequence[Sequence[int]] | None = None
    ) -> list[list[int]]:
        """The place in its source that each id of `hyps` attends to most; see `Engine.align`.

        Which layer and heads are asked is written in the exported weights.
        """
        aligned: list[list[int]] = []
        for number, (src, hyp) in enumerate(zip(sources, hyps, strict=True)):
            places = range(len(src)) if among is None else among[number]
            rows = self._attention(src, hyp)
            aligned.append([max(places, key=row.__getitem__) for row in rows])
        return aligned

    def _samples(self, sources: Sequence[Ids], *, n_best: int, on_done: OnDone | None) -> list[list[Hyp]]:
        """`n_best` independent samples of each of `sources`, the highest score first."""
        repeated = [ids for ids in sources for _ in range(n_best)]

        def tell(places: Sequence[int]) -> None:
            if on_done is not None:  # a source counts with its first sample
                on_done([place // n_best for place in places if place % n_best == 0])

        results = self._in_batches(repeated, self._search, on_done=tell)
        hyps = [
            self._ranked(result, limit=self.limit(len(ids)))[0]
            for ids, result in zip(repeated, results, strict=True)
        ]
        of_each = (hyps[begin : begin + n_best] for begin in range(0, len(hyps), n_best))
        return [sorted(samples, key=lambda hyp: -hyp.score) for samples in of_each]

    def _search(self, sources: Sequence[Ids], *, num_hyps: int = 1) -> "list[AsyncTranslationResult]":
        """Begin to search for `num_hyps` hypotheses of each of `sources`, as one batch."""
        config, limit = self._config, max(self.limit(len(ids)) for ids in sources)
        drawn = {}
        if self._sampling is not None:
            drawn = {
                "sampling_temperature": self._sampling.temperature,
                "sampling_topk": self._sampling.top_k,
                "sampling_topp": self._sampling.top_p or LEAST_TOP_P,
            }
        return self._translate(
            sources,
            beam_size=1 if drawn else config.beam_size,
            num_hypotheses=num_hyps,
            # Without a penalty, its beams stop at the likeliest hypothesis that has ended.
            length_penalty=1.0 if config.length_penalty else 0.0,
            patience=PATIENCE if config.length_penalty else 1.0,
            no_repeat_ngram_size=config.no_repeat_ngram,
            min_decoding_length=min(config.min_len, limit),
            max_decoding_length=limit,
            disable_unk=self._forbids_unk,
            return_scores=True,
            **drawn,
        )

    def _attention(self, src: Ids, hyp: Ids) -> list[list[float]]:
        """For each id of `hyp`, a weight for each place of `src` and its end."""
        if not hyp:
            return []
        prefix = [[self._tgt_tokens[i] for i in hyp]]
        with self._failures_explained("the sentence does not fit"):
            (pending,) = self._translate(
                [src],
                target_prefix=prefix,
                beam_size=1,
                min_decoding_length=0,
                max_decoding_length=len(hyp),
                return_attention=True,
            )
            rows: list[list[float]] = pending.result().attention[0]
        return rows

    def _translate(self, sources: Sequence[Ids], **options: object) -> "list[AsyncTranslationResult]":
        """Hand `sources` to CTranslate2 as one batch."""
        tokens = [[self._src_tokens[i] for i in ids] for ids in sources]
        pending: list[AsyncTranslationResult] = self._engine.translate_batch(
            tokens, max_input_length=self.longest_sentence + 1, asynchronous=True, **options
        )
        return pending

    def _in_batches(
        self,
        sources: Sequence[Ids],
        search: "Callable[[Sequence[Ids]], list[AsyncTranslationResult]]",
        *,
        is_limit_shared: bool = False,
        on_done: OnDone | None,
    ) -> "list[TranslationResult]":
        """What `search` finds for each of `sources`, a few batches ahead of the one that is waited for."""
        found: dict[int, TranslationResult] = {}
        started: deque[tuple[list[int], list[AsyncTranslationResult]]] = deque()
        batches = self._batches(sources, is_limit_shared=is_limit_shared)
        most = BATCHES_AHEAD * self._workers
        with self._failures_explained("lower ", Option("batch_size"), f" (now {self._batch_size})"):
            while batches or started:
                while batches and len(started) < most:
                    batch = batches.popleft()
                    started.append((batch, search([sources[i] for i in batch])))
                batch, pending = started.popleft()
                found.update((i, each.result()) for i, each in zip(batch, pending, strict=True))
                if on_done is not None:
                    on_done(batch)
        return [found[i] for i in range(len(sources))]

    def _batches(self, sources: Sequence[Ids], *, is_limit_shared: bool) -> deque[list[int]]:
        """The places of all `sources`, the longest first; in a batch are like lengths, or all one limit."""
        order = sorted(range(len(sources)), key=lambda i: len(sources[i]), reverse=True)
        batches: deque[list[int]] = deque()
        for place in order:
            last = batches[-1] if batches else []
            limits = {self.limit(len(sources[i])) for i in (*last[:1], place)}
            if last and len(last) < self._batch_size and (is_limit_shared or len(limits) == 1):
                last.append(place)
            else:
                batches.append([place])
        return batches

    @property
    def _batch_size(self) -> int:
        return self._config.batch_size or SENTENCES_AT_ONCE[self.device]

    def _ranked(self, result: "TranslationResult", *, limit: int) -> list[Hyp]:
        """The hypotheses of `result`, the best first by our length penalty."""
        hyps = []
        for tokens, score in zip(result.hypotheses, result.scores, strict=True):
            length = min(len(tokens) + 1, limit)  # with `</s>`, for which there may have been no room
            log_prob = score * length if self._config.length_penalty else score
            divisor = float(penalty(length, self._config.length_penalty))
            hyps.append(Hyp(self._ids(tokens), log_prob / divisor, log_prob))
        return sorted(hyps, key=lambda hyp: -hyp.score)

    def _ids(self, tokens: Sequence[str]) -> list[int]:
        return [self._tgt_ids[token] for token in tokens]

    @contextmanager
    def _failures_explained(self, *hint: str | Option, loaded: Path | None = None) -> Iterator[None]:
        """Turn what the machine lacks into a `ResourceError`; of memory, it ends in the parts of `hint`.

        What else goes wrong while a folder is `loaded` is damage to it.
        """
        try:
            yield
        except MemoryError as error:
            raise ResourceError("out of memory; ", *hint) from error
        except (RuntimeError, ValueError, LookupError) as error:
            if "out of memory" in str(error):
                raise ResourceError("out of GPU memory; ", *hint) from error
            lacks_library = self.device == "cuda" and NO_LIBRARY in str(error)
            if loaded is not None and shortage(error) is None and not lacks_library:
                raise DataError(f"{loaded}: CTranslate2 cannot load it: {error}; export it again") from error
            if self.device == "cpu":
                raise
            raise ResourceError(
                f"CTranslate2 cannot compute on the GPU: {error}; use ", Option("device", "cpu")
            ) from error


def _choose_device(device: Device) -> str:
    import ctranslate2

    has_cuda = device != "cpu" and ctranslate2.get_cuda_device_count() > 0
    if device == "cuda" and not has_cuda:
        raise ResourceError("no CUDA device found; use ", Option("device", "cpu"), ", or auto")
    return "cuda" if has_cuda else "cpu"
