"""`DecodingOptions`: how runs are decoded, where it is not as their own config says."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from mt_cli.config.load import explain
from mt_cli.config.schema import Backend, Config, DecodingConfig, Device
from mt_cli.decoding.search import Sampling
from mt_cli.errors import UsageError
from mt_cli.machine.files import sha256_json
from mt_cli.runs.opening import open_run_between
from mt_cli.runs.run import ModelFolder, Run
from mt_cli.text.tokenizers import Tokenizers

if TYPE_CHECKING:
    from mt_cli.machine.device import Runtime


@dataclass(frozen=True)
class Reranking:
    """The run of the other direction that chooses among the beams, and its weights.

    The score is log p(y|x) + lambda log p(x|y) + mu |y|: that of Yee et al. (2019) without a
    language model, and with a reward for each token in place of their normalized lengths. The
    weights were tuned on Multi30k's val.
    """

    run_dir: Path
    reverse: float = 0.3
    """Lambda, the weight of the source's log-probability given the translation."""
    length: float = 0.25
    """Mu, the weight of the number of the translation's tokens, `</s>` included."""
    checkpoint: str = "best"

    def open_run(self, *, of: ModelFolder) -> Run:
        """The run, which has to translate back what the run `of` translates.

        Raises:
            UsageError: it does not, or there is no such run.
        """
        data = of.config.data
        return open_run_between(
            data.tgt_lang, data.src_lang, self.run_dir, asked_by="--rerank-with"
        )


@dataclass(frozen=True)
class DecodingOptions:
    """How runs are decoded, where it is not as their own config says."""

    checkpoint: str | Sequence[str] = "best"
    """One name for all runs, or one for each."""
    backend: Backend | None = None
    """None is what the run was trained with."""
    device: Device = "auto"
    threads: int = 0
    search: Mapping[str, object] = field(default_factory=dict)
    """Keys of `[decoding]`; one that is absent or None is the run's own."""
    sampling: Sampling | None = None
    """Draws translations at random, in place of a search."""
    seed: int = 1
    """Of the sampling."""
    reranking: Reranking | None = None
    """Which other run chooses among the beams."""
    owns_process: bool = False
    """Whether threads and memory may be set for the whole process, as the program does."""

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
        """Choose device and precision, and set up the process if it is ours.

        Raises:
            ResourceError: there is no such device, or so many threads cannot be set.
        """
        from mt_cli.machine.device import choose_runtime, set_up_process, survive_fork

        survive_fork()
        if self.owns_process:
            set_up_process(threads=self.threads)
        runtime = choose_runtime(device=self.device, precision=config.precision)
        return runtime if self.owns_process else replace(runtime, threads=self.threads)

    def checkpoints_of(self, runs: Sequence[ModelFolder]) -> list[str]:
        """Names of the checkpoints of `runs`; what `best` means may change later.

        Raises:
            UsageError: there is no such checkpoint, or not one name for each run.
        """
        names = [self.checkpoint] if isinstance(self.checkpoint, str) else list(self.checkpoint)
        if isinstance(self.checkpoint, str):
            names *= len(runs)
        if len(names) != len(runs):
            raise UsageError(
                f"checkpoint: expected one name for each run, found {len(names)} for {len(runs)}"
            )
        return [run.resolve_checkpoint(name) for run, name in zip(runs, names, strict=True)]

    def config_of(self, run: ModelFolder) -> DecodingConfig:
        """The run's own decoding settings, with those of `search` in their place.

        Raises:
            UsageError: naming every wrong option.
        """
        if self.sampling is not None and self.search.get("beam_size") not in (None, 1):
            raise UsageError(
                "sampling draws translations and beams search for them; give one of the two"
            )
        decoding: dict[str, object] = run.config.decoding.model_dump()
        for name, value in self.search.items():
            if value is not None or name not in decoding:
                decoding[name] = value
        tables = {
            "decoding": decoding,
            "model": {} if self.backend is None else {"backend": self.backend},
            "runtime": {"device": self.device, "threads": self.threads, "seed": self.seed},
        }
        try:
            return Config.model_validate(tables).decoding
        except ValidationError as error:
            raise UsageError("\n".join(explain(error))) from None


NOT_IN_NAME = ("beam_size", "batch_size")


def search_facts(
    config: DecodingConfig,
    tokenizers: Tokenizers,
    *,
    sampling: Sampling | None = None,
    seed: int = 1,
) -> dict[str, object]:
    """Every setting of a search that is not at its default and may change a translation."""
    facts: dict[str, object] = {}
    if sampling is not None:
        facts |= {**asdict(sampling), "seed": seed}
    for key, field_info in DecodingConfig.model_fields.items():
        value = getattr(config, key)
        if key not in NOT_IN_NAME and value != field_info.default:
            facts[key] = value
    if config.beam_size == 1:
        facts.pop("length_penalty", None)
    if tokenizers.kind != "spacy":
        facts.pop("replace_unk", None)  # subwords never say `<unk>`
    return facts


def search_name(
    config: DecodingConfig, facts: Mapping[str, object], *, sampling: Sampling | None = None
) -> str:
    """A word for a search that can name a folder: `greedy`, `beam5`, `beam5-1f0c9a52`.

    The digest stands for all `facts` about it that are not at their defaults.
    """
    name = "greedy" if config.beam_size == 1 else f"beam{config.beam_size}"
    if sampling is not None:
        name = "sample"
    return f"{name}-{sha256_json(facts)[:8]}" if facts else name
