"""All keys of a config file, with defaults, limits and meanings.

A section is a frozen model that forbids unknown keys. `_problems` checks rules between keys.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from mt_cli.config.pinned_corpora import as_corpora, parallel_splits, pinned_problems, terms_of

TRAIN = "train"
VAL = "val"
"""The two splits that every corpus has."""
TEST = "test"
Side = Literal["src", "tgt"]
SIDES: tuple[Side, Side] = ("src", "tgt")
MORE = "train+"
"""Prefix of the names of additional training pairs."""
AUGMENT = f"{MORE}augment"
"""Name of the noisy copies from `[data.augment]`."""
LANGUAGE_PATTERN = r"^[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*$"
SPLIT_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
MEANINGS = {
    LANGUAGE_PATTERN: "a language code such as de, hsb or zh-TW",
    SPLIT_PATTERN: "a name of letters, digits, _, - and ., such as test_2016",
}


class Section(BaseModel):
    """A table of the file: frozen, strict, without unknown keys."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        defer_build=True,  # --help needs no validators
    )

    @model_validator(mode="after")
    def _keys_agree(self) -> Self:
        if problems := list(self._problems()):
            raise ValueError("\n".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        """Errors in combinations of keys."""
        yield from ()


def _check_count_or_share(value: object) -> object:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40
    is_share = isinstance(value, float) and 0 <= value < 1
    if not is_count and not is_share:
        raise PydanticCustomError(
            "expected", "expected a whole number, or a share below 1 such as 0.1"
        )
    return value


def _as_paths(value: object) -> object:
    paths = [value] if isinstance(value, str | Path) else value
    if not isinstance(paths, list | tuple) or not paths:
        raise PydanticCustomError("expected", "expected a path, or a list of paths")
    return paths


def _check_number_or_name(value: object) -> object:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if not is_number and not (isinstance(value, str) and value):
        raise PydanticCustomError("expected", "expected a column's number from 1, or its name")
    return value


def _as_numbers(value: object) -> object:
    return list(map(float, value.split(","))) if isinstance(value, str) else value


def is_utf8(path: Path) -> bool:
    """Whether `path` is valid UTF-8, which a config needs."""
    return str(path) == str(path).encode(errors="replace").decode()


def _check_utf8(path: Path) -> Path:
    if not is_utf8(path):
        raise ValueError("the file's name is not UTF-8, so a config cannot hold it; rename it")
    return path


def _as_one_or_list(values: tuple[object, ...]) -> str | list[str]:
    return str(values[0]) if len(values) == 1 else [str(value) for value in values]


SplitName = Annotated[str, Field(pattern=SPLIT_PATTERN)]
Language = Annotated[str, Field(pattern=LANGUAGE_PATTERN)]
Probability = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
# TOML has neither paths nor tuples, so these two are not strict.
FilePath = Annotated[Path, Field(strict=False), AfterValidator(_check_utf8)]
FilePaths = Annotated[
    tuple[FilePath, ...],
    Field(strict=False),
    BeforeValidator(_as_paths),
    PlainSerializer(_as_one_or_list, when_used="json"),
]
"""A path, or a list of paths. `multi30k:train` stands for a split of a pinned corpus in the side's
language, `multi30k:train.en` for its English text.
"""
Corpora = Annotated[
    tuple[str, ...],
    Field(strict=False),
    BeforeValidator(as_corpora),
    PlainSerializer(_as_one_or_list, when_used="json"),
]
"""The name of a corpus, or a list of pinned corpora."""
Column = Annotated[int | str, BeforeValidator(_check_number_or_name)]
"""A column's number, from 1, or its name."""
Splits = Annotated[tuple[SplitName, ...], Field(strict=False)]
Numbers = Annotated[tuple[float, float], Field(strict=False), BeforeValidator(_as_numbers)]
"""Two numbers; `0.3,0.25` on the command line."""
CountOrShare = Annotated[int | float, BeforeValidator(_check_count_or_share)]
"""`400` is a count, `0.1` a share of the total."""


BACKENDS = {
    "scratch": ("mt_cli.model.scratch", "ScratchBackend"),
    "torch": ("mt_cli.model.torch_backend", "TorchBackend"),
}
"""Each backend's name, and the module and class that build it."""


def _check_backend(name: str) -> str:
    if name not in BACKENDS:
        known = " or ".join(map(repr, BACKENDS))
        raise ValueError(f"input should be {known}, found {name!r}")
    return name


Backend = Annotated[
    str, AfterValidator(_check_backend), Field(json_schema_extra={"enum": list(BACKENDS)})
]
NoiseKind = Literal[
    "lower", "capitals", "title", "accents", "typos", "punctuation", "mixed", "join", "numbers"
]
"""Kinds of noise; `join` puts several lines into one, `numbers` changes a number."""
CapitalsReading = Literal["as_is", "lower", "title"]
Device = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["fp32", "bf16", "fp16"]
PrecisionChoice = Literal["auto", "fp32", "bf16", "fp16"]
GraphsChoice = Literal["auto", "off"]
Schedule = Literal["inverse_sqrt", "cosine", "constant"]
OptimizerKind = Literal["adam", "adamw", "muon"]
TokenizerKind = Literal["spacy", "bpe", "unigram"]
TranslateBy = Literal["greedy", "beam", "sample"]
TrackerName = Literal["none", "tensorboard", "trackio", "wandb"]
ExportTarget = Literal["ctranslate2", "argos", "run"]
"""What a run is exported to."""
Quantization = Literal[
    "none", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16"
]
"""Number format of an exported model's matrices; `none` is float32."""
# Upper limits that only catch typos.
MAX_WIDTH = 1 << 20
MAX_LAYERS = 1000
MAX_LENGTH = 1 << 16
MAX_COUNT = (1 << 31) - 1
MAX_THREADS = 1 << 10
MAX_FLOAT = 1e38  # fp32 goes a little higher


class ColumnsConfig(Section):
    """The columns of the two sides, for files with columns."""

    src_column: Column | None = None
    """Column of `src` in tables, .jsonl or .parquet files: a number from 1, a name in a table's
    first line, or a key such as de or translation.de. Default: column 1, or the key src.
    """
    tgt_column: Column | None = None
    """Column of `tgt`, as for `src`. Default: column 2, or the key tgt."""


class FilesConfig(ColumnsConfig):
    """Both sides of a split of the `files` corpus: text files, or files with columns."""

    src: FilePaths
    """Source text, one sentence per line, in one file or a list of files: plain, .gz, .zst or .xz.

    `clean/*.de.zst` stands for all matching files, sorted.
    """
    tgt: FilePaths
    """Target text, aligned with `src` line by line; the same file if it has both sides."""

    def _problems(self) -> Iterator[str]:
        yield from pinned_problems([self.src, self.tgt])


class MorePairsConfig(ColumnsConfig):
    """Additional training pairs.

    They come from files, or from text of one side that a run translates. With text of the target
    side, this is back-translation (Sennrich et al. 2016).
    """

    src: FilePaths | None = None
    """Source text, as in [data.files.NAME]; not set if a run creates it."""
    tgt: FilePaths | None = None
    """Target text; not set if a run creates it."""
    translate_with: FilePath | None = None
    """The run that creates the other side; it must translate in that direction."""
    translate_by: TranslateBy = "greedy"
    """How that run searches: `greedy`, with a `beam` of 5, or by drawing a random `sample`."""
    share: float = Field(default=1.0, gt=0, le=100)
    """Fraction of these pairs per epoch: 0.5 is a different half each time, 2 is all of them twice.
    """

    @property
    def given_side(self) -> Side:
        """The side whose text is given, if a run creates the other."""
        return "tgt" if self.src is None else "src"

    def _problems(self) -> Iterator[str]:
        given = [paths for paths in (self.src, self.tgt) if paths is not None]
        if self.translate_with is None and len(given) < len(SIDES):
            yield "needs src and tgt, or one of them and translate_with"
        elif self.translate_with is not None and len(given) != 1:
            yield "translate_with creates one side, so give only the other, as src or tgt"
        yield from pinned_problems(given)


class FilterConfig(Section):
    """`[data.filter]`: which training pairs to skip; other splits keep every line."""

    duplicates: bool = False
    """Skip pairs that repeat an earlier pair of the same files."""
    copies: bool = False
    """Skip pairs whose two sides are identical."""
    max_ratio: float = Field(default=0.0, ge=0, le=MAX_FLOAT)
    """Skip pairs whose longer side has more than this many times the characters of the shorter; 0
    is off.
    """
    languages: bool = False
    """Skip pairs with a side in another language, as detected by py3langid."""

    def _problems(self) -> Iterator[str]:
        if 0 < self.max_ratio < 1:
            yield f"max_ratio must be 0 or at least 1, found {self.max_ratio:g}"


class AugmentConfig(Section):
    """`[data.augment]`: noisy copies of training pairs, added to the training data."""

    kinds: dict[NoiseKind, Share] = Field(default_factory=dict)
    """`[data.augment.kinds]`: the share of pairs that get a copy of each kind: `lower`, `capitals`
    and `title` case, without `accents`, with `typos`, without or with odd `punctuation`, `mixed`,
    and two kinds that also change the target: `join` (two or three neighbouring pairs in one) and
    `numbers` (another number, in digits, on both sides).
    """
    parts: Splits = (TRAIN,)
    """Which pairs to copy: `train`, and names of `[data.more]`."""
    share: float = Field(default=1.0, gt=0, le=100)
    """Fraction of the copies per epoch: 0.5 is a different half each time."""

    @property
    def shares(self) -> dict[NoiseKind, float]:
        """The kinds in use with their shares, in an order that does not depend on the file."""
        return {kind: self.kinds[kind] for kind in get_args(NoiseKind) if self.kinds.get(kind)}


class DataConfig(Section):
    """`[data]`: the corpus, its splits and its languages."""

    corpus: Corpora = ("sample",)
    """`sample` is bundled; `multi30k`, `tatoeba` and `manythings` are downloaded; `files` are your
    own. A list such as `["multi30k", "tatoeba"]` joins splits of the same name.
    """
    splits: Splits = (TRAIN, VAL, TEST)
    """Splits to prepare: `train` and `val` are required, the others are test sets."""
    files: dict[SplitName, FilesConfig] = Field(default_factory=dict)
    """For `corpus = "files"`: `[data.files.<split>]` tables with `src` and `tgt` paths."""
    more: dict[SplitName, MorePairsConfig] = Field(default_factory=dict)
    """`[data.more.<name>]` tables: more training pairs; vocabularies are not learned from them."""
    augment: AugmentConfig = Field(default_factory=AugmentConfig)
    """Noisy copies of training pairs."""
    filter: FilterConfig = Field(default_factory=FilterConfig)
    """Which training pairs to skip."""
    src_lang: Language = "de"
    """Language code of the source side."""
    tgt_lang: Language = "en"
    """Language code of the target side."""
    lowercase: bool = False
    """Lower-case both sides, and the references when scoring."""
    max_len: int = Field(default=128, ge=1, le=MAX_LENGTH)
    """Skip training pairs with more tokens on a side; other splits keep every line."""

    @property
    def is_files(self) -> bool:
        """Whether the corpus is the user's own files."""
        return self.corpus == ("files",)

    @property
    def is_pinned(self) -> bool:
        """Whether the corpus consists of pinned corpora."""
        return not {"sample", "files"}.intersection(self.corpus)

    @property
    def terms(self) -> list[str]:
        """Authors and licence of each pinned corpus, in one sentence each."""
        named: list[FilesConfig | MorePairsConfig] = list(self.files.values())
        named += self.more.values()
        paths = chain.from_iterable((*(each.src or ()), *(each.tgt or ())) for each in named)
        return terms_of(self.corpus, paths)

    def lang(self, side: Side) -> Language:
        """The language of this side."""
        return self.src_lang if side == "src" else self.tgt_lang

    def _problems(self) -> Iterator[str]:
        missing = [name for name in (TRAIN, VAL) if name not in self.splits]
        if missing:
            yield f"splits must name {' and '.join(missing)}, found {list(self.splits)}"
        if len(set(self.splits)) < len(self.splits):
            yield f"splits must differ, found {list(self.splits)}"
        if self.is_files:
            for name in dict.fromkeys(self.splits):
                if name not in self.files:
                    yield f"corpus 'files' needs a [data.files.{name}] table with src and tgt"
        elif self.files:
            named = " and ".join(self.corpus)
            yield f"[data.files] needs corpus = 'files', but the corpus is '{named}'"
        if self.is_pinned:
            known = parallel_splits(self.corpus)
            for name in self.splits:
                if name not in known:
                    yield f"splits: no '{name}' in {list(self.corpus)}, only {', '.join(known)}"
        for name in self.augment.parts:
            if name != TRAIN and name not in self.more:
                yield f"augment.parts names '{name}', but there is no [data.more.{name}]"
        if AUGMENT.removeprefix(MORE) in self.more:
            yield f"more.{AUGMENT.removeprefix(MORE)}: this name is reserved for [data.augment]"


class TokenizerConfig(Section):
    """`[tokenizer]`: how text becomes ids."""

    kind: TokenizerKind = "bpe"
    """`spacy` words, or SentencePiece subwords learned by `bpe` or `unigram`."""
    vocab_size: int = Field(default=8000, ge=8, le=MAX_COUNT)
    """Maximum vocabulary size; for subwords the exact size, if the text has enough of them."""
    tgt_vocab_size: int | None = Field(default=None, ge=8, le=MAX_COUNT)
    """Maximum size of the target vocabulary, if it differs and `joint` is off."""
    min_freq: int = Field(default=2, ge=1, le=MAX_COUNT)
    """Rarer words become `<unk>` (`spacy` only; counted in at most 500,000 training pairs)."""
    joint: bool = True
    """One vocabulary for both sides; `model.tie = "all"` needs it."""
    split_digits: bool = False
    """Make every digit a subword, so that the model can copy unseen numbers."""
    from_run: FilePath | None = None
    """Run whose tokenizer to use instead of learning one; required for `training.init_from` on
    other data.
    """

    def _problems(self) -> Iterator[str]:
        if self.joint and self.tgt_vocab_size is not None:
            yield "tgt_vocab_size needs joint = false; a joint vocabulary has one size"


class ModelConfig(Section):
    """`[model]`: the Transformer."""

    backend: Backend = "scratch"
    """`torch` is nn.Transformer, `scratch` is our own. Checkpoints work with both."""
    d_model: int = Field(default=256, ge=2, le=MAX_WIDTH)
    """Width of every sublayer's output; even, a multiple of `num_heads`."""
    num_heads: int = Field(default=8, ge=1, le=MAX_WIDTH)
    """Heads of each attention."""
    encoder_layers: int = Field(default=3, ge=1, le=MAX_LAYERS)
    """Number of encoder layers."""
    decoder_layers: int = Field(default=3, ge=1, le=MAX_LAYERS)
    """Number of decoder layers."""
    d_ff: int = Field(default=1024, ge=1, le=MAX_WIDTH)
    """Width of the hidden feed-forward layer."""
    norm: Literal["pre", "post"] = "pre"
    """Layer norm before each sublayer (Xiong et al. 2020) or after its residual (Vaswani et al.
    2017).
    """
    final_norm: bool = True
    """Layer norm at the end of the encoder and of the decoder."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Position encodings: fixed sinusoids, or learned parameters."""
    max_len: int = Field(default=256, ge=4, le=MAX_LENGTH)
    """Maximum sequence length in tokens, including `<s>` or `</s>`."""
    scale_embeddings: bool = True
    """Multiply embeddings by sqrt(d_model) (Vaswani et al. 2017, 3.4)."""
    tie: Literal["none", "decoder", "all"] = "all"
    """Share the output matrix and target embedding (`decoder`), or these and the source embedding
    (`all`).
    """
    activation: Literal["relu", "gelu"] = "relu"
    """Activation of the feed-forward layers."""
    dropout: Probability = 0.1
    """Dropout of embeddings and of each sublayer's output."""
    attention_dropout: Probability = 0.0
    """Dropout of attention weights."""
    activation_dropout: Probability = 0.0
    """Dropout after the activation of the feed-forward layers."""
    output_bias: bool = False
    """Whether the output layer has a bias."""

    @property
    def longest_sentence(self) -> int:
        """Maximum tokens of a sentence, which leave room for `<s>` or `</s>`."""
        return self.max_len - 1

    def _problems(self) -> Iterator[str]:
        if self.d_model % self.num_heads:
            yield f"num_heads {self.num_heads} does not divide d_model {self.d_model}"
        if self.d_model % 2:
            yield f"d_model must be even, found {self.d_model}"


class TrainingConfig(Section):
    """`[training]`: optimizer, schedule, batches, loss and validation."""

    init_from: FilePath | None = None
    """Run whose best weights to start from; its model must be the same or have more layers."""
    distil_from: FilePaths | None = None
    """Teachers for word-level knowledge distillation (Hinton et al. 2015): a run, or a list. They
    must have the same tokenizer: set `tokenizer.from_run` to one of them.
    """
    distil_share: Share = 0.5
    """Weight of the teachers' predictions in each label; the reference has the rest."""
    max_epochs: int = Field(default=12, ge=1, le=MAX_COUNT)
    """Maximum passes over the training pairs; all have the same number of updates."""
    max_steps: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Maximum number of updates; may end training before `max_epochs`."""
    tokens_per_batch: int = Field(default=4096, ge=1, le=MAX_COUNT)
    """Maximum tokens on each side of a batch, padding included."""
    accumulation: int = Field(default=1, ge=1, le=MAX_COUNT)
    """Batches summed into one update."""
    optimizer: OptimizerKind = "adamw"
    """`adam` (Kingma and Ba 2015), `adamw` with decoupled weight decay (Loshchilov and Hutter
    2019), or `muon` (Jordan et al. 2024) for the matrices of encoder and decoder, with AdamW for
    everything else.
    """
    weight_decay: float = Field(default=0.0, ge=0, le=MAX_FLOAT)
    """Weight decay of matrices; not applied to vectors and embeddings."""
    schedule: Schedule = "cosine"
    """Learning rate after the warm-up: 1/sqrt(step) (Noam), a cosine down to zero, or constant."""
    peak_lr: float = Field(default=1e-3, gt=0, le=MAX_FLOAT)
    """Learning rate at the end of the warm-up."""
    warmup_steps: CountOrShare = 0.1
    """Updates of linear warm-up; below 1, a share of all updates: 0.1 is a tenth."""
    label_smoothing: Probability = 0.1
    """Probability mass spread uniformly over the vocabulary (Szegedy et al. 2016)."""
    r_drop: float = Field(default=0.0, ge=0, le=MAX_FLOAT)
    """Alpha of R-Drop (Liang et al. 2021): each batch is passed twice, and differences between the
    passes are penalized; takes 2 to 2.5 times as long; 0 is off.
    """
    clip_norm: float = Field(default=1.0, ge=0, le=MAX_FLOAT)
    """Maximum norm of an update's gradient; 0 is no limit."""
    validate_every: int = Field(default=0, ge=0, le=MAX_COUNT)
    """Updates between validations; 0 validates after each epoch."""
    best_by: Literal["bleu", "loss"] = "bleu"
    """Measure on val that chooses the best checkpoint and decides on early stopping."""
    patience: int = Field(default=0, ge=0, le=MAX_COUNT)
    """Stop after this many validations without improvement; 0 is never."""
    log_every: int = Field(default=50, ge=1, le=MAX_COUNT)
    """Updates between log lines."""

    def num_warmup_steps(self, total_steps: int) -> int:
        """Number of warm-up updates in a training of `total_steps`."""
        is_share = isinstance(self.warmup_steps, float)
        return round(self.warmup_steps * (total_steps if is_share else 1))


class DecodingConfig(Section):
    """`[decoding]`: how to search for a translation."""

    beam_size: int = Field(default=1, ge=1, le=MAX_LENGTH)
    """Hypotheses kept per sentence; 1 is greedy."""
    length_penalty: float = Field(default=0.0, ge=0, le=10)
    """Alpha of Wu et al. (2016): higher values favour longer translations; 0 is no penalty."""
    max_len_factor: float | None = Field(default=None, ge=0, le=MAX_LENGTH)
    """A translation has at most `max_len_factor` · source tokens + `max_len_extra` tokens. Default:
    1.5, or more if the targets of the training pairs are longer.
    """
    max_len_extra: int = Field(default=10, ge=1, le=MAX_LENGTH)
    """See `max_len_factor`."""
    no_repeat_ngram: int = Field(default=0, ge=0, le=MAX_LENGTH)
    """Forbid repeating any sequence of this many tokens within a translation; 0 is off."""
    capitals: CapitalsReading = "lower"
    """How to read a line of several words in capitals: `as_is`, in `lower` case, or with a capital
    for each word (`title`). `evaluate --noise capitals` shows what is best for a model.
    """
    replace_unk: bool = True
    """Replace `<unk>` with the source word that it attends to; subword models have no `<unk>`."""
    batch_size: int = Field(default=0, ge=0, le=MAX_COUNT)
    """Sentences per batch, grouped by length; 0 picks a size for the device."""
    precision: Precision = "fp32"
    """Precision of matrix products when translating. In 16 bits, a translation may depend on the
    batch and on the machine.
    """

    temperature: float = Field(default=0.0, ge=0, le=1e6)
    """Above 0, sample translations at random; values below 1 favour likely tokens."""
    top_k: int = Field(default=0, ge=0, le=MAX_COUNT)
    """Sample only from the k likeliest tokens (Fan et al. 2018); 0 is all."""
    top_p: Share = 1.0
    """Sample only from the fewest tokens whose probabilities sum to this (Holtzman et al. 2020)."""
    seed: int = Field(default=1, ge=0, lt=2**63)
    """Random seed for sampling."""
    glossary: FilePath | None = None
    """File of terms and their translations: a term, a tab and its translation per line."""
    rerank_with: FilePath | None = None
    """Run of the opposite direction that reranks the hypotheses; use a large beam."""
    rerank_weights: Numbers = (0.3, 0.25)
    """Lambda and mu in log p(y|x) + lambda log p(x|y) + mu |y|: the score of Yee et al. (2019)
    without a language model and with a reward per token. Tuned on Multi30k's val.
    """

    def _problems(self) -> Iterator[str]:
        if self.temperature and self.beam_size > 1:
            yield "temperature samples, beam_size searches; set only one of them"
        if not self.temperature and (self.top_k or self.top_p < 1):
            yield "top_k and top_p need a temperature, such as 1"
        if self.rerank_with is not None and self.beam_size == 1:
            yield "rerank_with needs a beam_size of 2 or more, such as 20"


class RuntimeConfig(Section):
    """`[runtime]`: hardware and process settings."""

    device: Device = "auto"
    """`auto` uses a CUDA GPU if there is one."""
    precision: PrecisionChoice = "auto"
    """Precision of the layers in training, and of Muon's matrix products. `auto` is bf16 if the
    device is fast with it (a CPU is timed when training starts), else fp16 on a GPU with matrix
    units for it, else fp32.
    """
    graphs: GraphsChoice = "auto"
    """`auto` replays updates as CUDA graphs on a GPU, with one launch per update. It needs
    `training.accumulation = 1`, one process and no `model.output_bias`; otherwise, and if a graph
    cannot be captured, updates run as usual.
    """
    threads: int = Field(default=0, ge=0, le=MAX_THREADS)
    """CPU threads; 0 uses OMP_NUM_THREADS, or all cores available to the process."""
    track: TrackerName = "none"
    """Experiment tracker for the curves: `tensorboard` (files in the run folder), `trackio` (on
    this machine) or `wandb` (Weights & Biases). Each needs a package: `pip install '.[trackio]'`.
    """
    seed: int = Field(default=1, ge=0, lt=2**63)
    """Random seed of the training: weights, order of the pairs, dropout."""


class Config(Section):
    """All sections; absent keys have their defaults."""

    data: DataConfig = Field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = Field(default_factory=TokenizerConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    decoding: DecodingConfig = Field(default_factory=DecodingConfig)
    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig)

    def _problems(self) -> Iterator[str]:
        if self.model.tie == "all" and not self.tokenizer.joint:
            yield "model.tie = 'all' shares one embedding, so it needs tokenizer.joint = true"
        if self.data.max_len > self.model.longest_sentence:
            yield (
                f"data.max_len {self.data.max_len} plus <s> or </s> exceeds "
                f"model.max_len {self.model.max_len}"
            )
