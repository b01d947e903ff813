"""`DecodingOptions`: what overrides a run's own decoding settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from mt_cli.config.load import explain
from mt_cli.config.schema import Backend, Config, DecodingConfig, Device
from mt_cli.errors import UsageError
from mt_cli.machine.files import sha256_json
from mt_cli.runs.run import Run
from mt_cli.text import BOS_ID, PAD_ID, UNK_ID
from mt_cli.text.tokenizers import Tokenizers

if TYPE_CHECKING:
    from mt_cli.machine.device import Runtime

BEAMS_TO_RERANK = 20


@dataclass(frozen=True)
class DecodingOptions:
    """Overrides of a run's own decoding settings, and where to compute."""

    checkpoint: str | Sequence[str] = "best"
    """One name for all runs, or one name per run."""
    backend: Backend | None = None
    """None uses the backend that the run was trained with."""
    device: Device = "auto"
    threads: int = 0
    search: Mapping[str, object] = field(default_factory=dict)
    """Keys of `[decoding]`; the run's own value is used where a key is absent or None."""
    owns_process: bool = False
    """Whether threads and memory may be set for the whole process, as the CLI does."""

    @classmethod
    def of(cls, keywords: Mapping[str, object]) -> "DecodingOptions":
        """Options from keywords: fields of this class, and keys of `[decoding]`."""
        own: dict[str, Any] = {}
        search: dict[str, object] = {}
        for name, value in keywords.items():
            if name in cls.__dataclass_fields__:
                own[name] = value
            else:
                search[name] = value
        return cls(**own, search=search)

    def set_up_runtime(self, config: DecodingConfig) -> "Runtime":
        """Choose device and precision, and set up the process if `owns_process`.

        Raises:
            ResourceError: the device does not exist, or there are too many threads.
        """
        from mt_cli.machine.device import choose_runtime, set_up_process, survive_fork

        survive_fork()
        if self.owns_process:
            set_up_process(threads=self.threads)
        runtime = choose_runtime(device=self.device, precision=config.precision)
        return runtime if self.owns_process else replace(runtime, threads=self.threads)

    def checkpoints_of(self, runs: Sequence[Run]) -> list[str]:
        """Resolved checkpoint names, one per run; what `best` refers to may change later.

        Raises:
            UsageError: a checkpoint does not exist, or the number of names is wrong.
        """
        names = [self.checkpoint] if isinstance(self.checkpoint, str) else list(self.checkpoint)
        if isinstance(self.checkpoint, str):
            names *= len(runs)
        if len(names) != len(runs):
            raise UsageError(f"checkpoint: got {len(names)} names for {len(runs)} runs")
        return [run.resolve_checkpoint(name) for run, name in zip(runs, names, strict=True)]

    def config_of(self, run: Run) -> DecodingConfig:
        """The run's own decoding settings, overridden by `search`.

        Raises:
            UsageError: an option is wrong; the error lists all of them.
        """
        own: dict[str, object] = run.config.decoding.model_dump()
        given = {key: each for key, each in self.search.items() if each is not None}
        if given.get("temperature"):  # the requested kind of search replaces the run's own
            own |= {"beam_size": 1, "rerank_with": None}
        elif "beam_size" in given:
            own |= {"temperature": 0.0, "top_k": 0, "top_p": 1.0}
            own |= {"rerank_with": None} if given["beam_size"] == 1 else {}
        if "rerank_with" in given and own["beam_size"] == 1:
            own["beam_size"] = BEAMS_TO_RERANK
        tables = {
            "decoding": own | given,
            "model": {} if self.backend is None else {"backend": self.backend},
            "runtime": {"device": self.device, "threads": self.threads},
        }
        try:
            config = Config.model_validate(tables).decoding
        except ValidationError as error:
            raise UsageError("\n".join(explain(error))) from None
        if "seed" in given and not config.temperature:
            raise UsageError("seed only works with sampling; add --sample or set temperature")
        if "rerank_weights" in given and config.rerank_with is None:
            raise UsageError("rerank_weights only work with reranking; set rerank_with too")
        return config


NEVER_CHOSEN = (PAD_ID, BOS_ID)
"""Symbols that never occur in a translation."""


def forbidden_ids(tokenizers: Tokenizers, config: DecodingConfig) -> Sequence[int]:
    """Ids that a search must not choose.

    They include `<unk>`, which is useless to readers, unless a source word will replace it.
    """
    is_replaced = config.replace_unk and tokenizers.kind == "spacy"
    return NEVER_CHOSEN if is_replaced else (*NEVER_CHOSEN, UNK_ID)


NOT_IN_NAME = {"beam_size", "batch_size"}
OF_SAMPLING = ("top_k", "top_p", "seed")


def search_facts(config: DecodingConfig, tokenizers: Tokenizers) -> dict[str, object]:
    """All search settings that differ from their defaults and may change a translation."""
    facts = config.model_dump(mode="json", exclude_defaults=True, exclude=NOT_IN_NAME)
    if config.temperature:
        facts |= {key: getattr(config, key) for key in OF_SAMPLING}
    if config.beam_size == 1:
        facts.pop("length_penalty", None)
    if tokenizers.kind != "spacy":
        facts.pop("replace_unk", None)  # subword models never output `<unk>`
    return facts


def search_name(config: DecodingConfig, facts: Mapping[str, object]) -> str:
    """A name for a search, usable as a folder name: `greedy`, `beam5`, `beam5-1f0c9a52`.

    The suffix is a hash of `facts`.
    """
    name = "greedy" if config.beam_size == 1 else f"beam{config.beam_size}"
    if config.temperature:
        name = "sample"
    return f"{name}-{sha256_json(facts)[:8]}" if facts else name
