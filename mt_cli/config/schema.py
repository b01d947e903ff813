"""Every key of a config file: its default, its limits and what it means.

A section is a frozen table that knows no other keys. Rules between keys stand in `_problems`.
"""

import json
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

from mt_cli.config.pinned_corpora import as_corpora, parallel_splits, pinned_problems, terms_of

TRAIN = "train"
VAL = "val"
"""The splits that every corpus has."""
TEST = "test"
Side = Literal["src", "tgt"]
SIDES: tuple[Side, Side] = ("src", "tgt")
MORE = "train+"
"""Prefix of the names of pairs that a config adds for training."""
AUGMENT = f"{MORE}augment"
"""The noisy copies that `[data.augment]` adds."""
LANGUAGE_PATTERN = r"^[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*$"
SPLIT_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
MEANINGS = {
    LANGUAGE_PATTERN: "a language code such as de, hsb or zh-TW",
    SPLIT_PATTERN: "a name of letters, digits, _, - and ., such as test_2016",
}


class Section(BaseModel):
    """One table of the file: frozen, strict, and closed to unknown keys."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        defer_build=True,  # no --help needs a validator
    )

    @model_validator(mode="after")
    def _keys_agree(self) -> Self:
        if problems := list(self._problems()):
            raise ValueError("\n".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        """What is wrong with a combination of keys."""
        yield from ()


def _check_count_or_share(value: object) -> object:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40
    is_share = isinstance(value, float) and 0 <= value < 1
    if not is_count and not is_share:
        found = json.dumps(value, default=str)
        raise ValueError(f"expected a whole number, or a share below 1 such as 0.1, found {found}")
    return value


def _as_paths(value: object) -> object:
    paths = [value] if isinstance(value, str | Path) else value
    if not isinstance(paths, list | tuple) or not paths:
        found = json.dumps(value, default=str)
        raise ValueError(f"expected a path, or a list of paths, found {found}")
    return paths


def _check_number_or_name(value: object) -> object:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if not is_number and not (isinstance(value, str) and value):
        found = json.dumps(value, default=str)
        raise ValueError(f"expected a column's number from 1, or its name, found {found}")
    return value


def _as_numbers(value: object) -> object:
    return list(map(float, value.split(","))) if isinstance(value, str) else value


def is_utf8(path: Path) -> bool:
    """Whether a config can hold `path`."""
    return str(path) == str(path).encode(errors="replace").decode()


def _check_utf8(path: Path) -> Path:
    if not is_utf8(path):
        raise ValueError("its name is not UTF-8, and a config cannot hold it; rename it")
    return path


def _as_one_or_list(values: tuple[object, ...]) -> str | list[str]:
    return str(values[0]) if len(values) == 1 else [str(value) for value in values]


SplitName = Annotated[str, Field(pattern=SPLIT_PATTERN)]
Language = Annotated[str, Field(pattern=LANGUAGE_PATTERN)]
Probability = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
# TOML has neither paths nor tuples, the two places where strictness gives way.
FilePath = Annotated[Path, Field(strict=False), AfterValidator(_check_utf8)]
FilePaths = Annotated[
    tuple[FilePath, ...],
    Field(strict=False),
    BeforeValidator(_as_paths),
    PlainSerializer(_as_one_or_list, when_used="json"),
]
"""A path, or a list of them. `multi30k:train` stands for a split of a pinned corpus in the side's
language, `multi30k:train.en` for its English.
"""
Corpora = Annotated[
    tuple[str, ...],
    Field(strict=False),
    BeforeValidator(as_corpora),
    PlainSerializer(_as_one_or_list, when_used="json"),
]
"""The name of a corpus, or a list of those that are pinned."""
Column = Annotated[int | str, BeforeValidator(_check_number_or_name)]
"""A column's number, from 1, or its name."""
Splits = Annotated[tuple[SplitName, ...], Field(strict=False)]
Numbers = Annotated[tuple[float, float], Field(strict=False), BeforeValidator(_as_numbers)]
"""Two numbers; a flag gives them as `0.3,0.25`."""
CountOrShare = Annotated[int | float, BeforeValidator(_check_count_or_share)]
"""`400` is a number of something, `0.1` a share of all there are."""


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
"""How text differs from tidy text; `join` is several lines in one, `numbers` another number."""
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
"""What an exported model's matrices are stored as; `none` is float32."""
# Upper limits that only catch typos.
MAX_WIDTH = 1 << 20
MAX_LAYERS = 1000
MAX_LENGTH = 1 << 16
MAX_COUNT = (1 << 31) - 1
MAX_THREADS = 1 << 10
MAX_FLOAT = 1e38  # fp32 has a little more


class ColumnsConfig(Section):
    """Where the two sides stand in files that have columns."""

    src_column: Column | None = None
    """Where `src` stands in tables, .jsonl or .parquet files: a number from 1, a name in a table's
    first line, or a key such as de or translation.de. Without it: column 1, or the key src.
    """
    tgt_column: Column | None = None
    """The same for `tgt`. Without it: column 2, or the key tgt."""


class FilesConfig(ColumnsConfig):
    """Both sides of a split of the `files` corpus: files of lines, or of columns."""

    src: FilePaths
    """Source text, one sentence a line, in a file or a list: plain, .gz, .zst or .xz.

    `clean/*.de.zst` stands for all files that match, sorted.
    """
    tgt: FilePaths
    """Target text, line by line the translation of `src`; the same file, if it has both sides."""

    def _problems(self) -> Iterator[str]:
        yield from pinned_problems([self.src, self.tgt])


class MorePairsConfig(ColumnsConfig):
    """Training pairs beside the corpus's own.

    They are files, or text of one side that a run translates to make the other. With text of the
    target side, that is back-translation (Sennrich et al. 2016).
    """

    src: FilePaths | None = None
    """Source text, as in [data.files.NAME]; not set where a run makes it."""
    tgt: FilePaths | None = None
    """Target text; not set where a run makes it."""
    translate_with: FilePath | None = None
    """The run that makes the other side; it must translate in that direction."""
    translate_by: TranslateBy = "greedy"
    """How it searches: greedily, with a `beam` of 5, or it draws a `sample` at random."""
    share: float = Field(default=1.0, gt=0, le=100)
    """Fraction of them in each epoch: 0.5 is a different half each time, 2 is all of them twice."""

    @property
    def given_side(self) -> Side:
        """The side whose text is there, where a run makes the other."""
        return "tgt" if self.src is None else "src"

    def _problems(self) -> Iterator[str]:
        given = [paths for paths in (self.src, self.tgt) if paths is not None]
        if self.translate_with is None and len(given) < len(SIDES):
            yield "needs src and tgt; or one of them, and translate_with for the other side"
        elif self.translate_with is not None and len(given) != 1:
            yield "translate_with makes one side; name the text of the other, as src or as tgt"
        yield from pinned_problems(given)


class FilterConfig(Section):
    """`[data.filter]`: training pairs to leave out, by their text; other splits keep every line."""

    duplicates: bool = False
    """Leave out pairs that repeat an earlier pair of the same files."""
    copies: bool = False
    """Leave out pairs whose two sides are the same."""
    max_ratio: float = Field(default=0.0, ge=0, le=MAX_FLOAT)
    """Leave out pairs whose longer side has more than this many times the characters of the
    shorter; 0 is off.
    """
    languages: bool = False
    """Leave out pairs with a side that py3langid takes for another language."""

    def _problems(self) -> Iterator[str]:
        if 0 < self.max_ratio < 1:
            yield f"max_ratio must be 0 or at least 1, found {self.max_ratio:g}"


class AugmentConfig(Section):
    """`[data.augment]`: noisy copies of training pairs, as one more part of the training data."""

    kinds: dict[NoiseKind, Share] = Field(default_factory=dict)
    """`[data.augment.kinds]`: the share of the pairs that get a copy of each kind: `lower`,
    `capitals` and `title` case, without `accents`, with `typos`, without `punctuation` or with odd
    one, `mixed`, and two that change targets too: `join`, two or three neighbouring pairs as one,
    and `numbers`, another number in digits on both sides.
    """
    parts: Splits = (TRAIN,)
    """Which pairs are copied: `train`, and names of `[data.more]`."""
    share: float = Field(default=1.0, gt=0, le=100)
    """Fraction of the copies in each epoch: 0.5 is a different half each time."""

    @property
    def shares(self) -> dict[NoiseKind, float]:
        """The kinds that are used, with their shares, in an order that no file changes."""
        return {kind: self.kinds[kind] for kind in get_args(NoiseKind) if self.kinds.get(kind)}


class DataConfig(Section):
    """`[data]`: which sentences, and which of them train."""

    corpus: Corpora = ("sample",)
    """`sample` is bundled; `multi30k`, `tatoeba` and `manythings` are downloaded; `files` are your
    own. A list such as `["multi30k", "tatoeba"]` joins their splits by name.
    """
    splits: Splits = (TRAIN, VAL, TEST)
    """Splits to prepare: `train` and `val` are needed, the others are test sets."""
    files: dict[SplitName, FilesConfig] = Field(default_factory=dict)
    """For `corpus = "files"`: `[data.files.<split>]` tables with `src` and `tgt` paths."""
    more: dict[SplitName, MorePairsConfig] = Field(default_factory=dict)
    """`[data.more.<name>]` tables: more training pairs; vocabularies are not learned from them."""
    augment: AugmentConfig = Field(default_factory=AugmentConfig)
    """Noisy copies of training pairs."""
    filter: FilterConfig = Field(default_factory=FilterConfig)
    """Which training pairs to leave out."""
    src_lang: Language = "de"
    """Language code of the source side."""
    tgt_lang: Language = "en"
    """Language code of the target side."""
    lowercase: bool = False
    """Lower-case both sides, and the references when scoring."""
    max_len: int = Field(default=128, ge=1, le=MAX_LENGTH)
    """Training pairs with more tokens on a side are left out; other splits keep every line."""

    @property
    def is_files(self) -> bool:
        """Whether every split names its files."""
        return self.corpus == ("files",)

    @property
    def is_pinned(self) -> bool:
        """Whether the splits are those of pinned corpora."""
        return not {"sample", "files"}.intersection(self.corpus)

    @property
    def terms(self) -> list[str]:
        """Whose text it is and what its licence is: a sentence for each pinned corpus."""
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
            yield f"[data.files] belongs to corpus 'files', but the corpus is '{named}'"
        if self.is_pinned:
            known = parallel_splits(self.corpus)
            for name in self.splits:
                if name not in known:
                    yield f"splits: no '{name}' in {list(self.corpus)}, only {', '.join(known)}"
        for name in self.augment.parts:
            if name != TRAIN and name not in self.more:
                yield f"augment.parts names '{name}', but there is no [data.more.{name}]"
        if AUGMENT.removeprefix(MORE) in self.more:
            yield f"more.{AUGMENT.removeprefix(MORE)}: the name stands for [data.augment]"


class TokenizerConfig(Section):
    """`[tokenizer]`: how text becomes ids."""

    kind: TokenizerKind = "bpe"
    """`spacy` words, or SentencePiece subwords learned by `bpe` or `unigram`."""
    vocab_size: int = Field(default=8000, ge=8, le=MAX_COUNT)
    """Most entries of a vocabulary; of subwords exactly so many, if the text has enough."""
    tgt_vocab_size: int | None = Field(default=None, ge=8, le=MAX_COUNT)
    """Most entries of the target vocabulary, if it differs and `joint` is off."""
    min_freq: int = Field(default=2, ge=1, le=MAX_COUNT)
    """Words that occur fewer times become `<unk>` (`spacy` only; counted in at most 500,000
    training pairs).
    """
    joint: bool = True
    """One vocabulary for both sides; `model.tie = "all"` needs it."""
    split_digits: bool = False
    """Make every digit a subword, so that the model can copy numbers it has never seen."""
    from_run: FilePath | None = None
    """Run whose tokenizer is used in place of a new one; `training.init_from` on other data needs
    it.
    """

    def _problems(self) -> Iterator[str]:
        if self.joint and self.tgt_vocab_size is not None:
            yield "tgt_vocab_size is for joint = false; a joint vocabulary has one size"


class ModelConfig(Section):
    """`[model]`: the Transformer."""

    backend: Backend = "scratch"
    """`torch` is nn.Transformer, `scratch` is our own. Their checkpoints run on either."""
    d_model: int = Field(default=256, ge=2, le=MAX_WIDTH)
    """Width of every sublayer's output; even, a multiple of `num_heads`."""
    num_heads: int = Field(default=8, ge=1, le=MAX_WIDTH)
    """Attention heads of each attention."""
    encoder_layers: int = Field(default=3, ge=1, le=MAX_LAYERS)
    """Layers of the encoder."""
    decoder_layers: int = Field(default=3, ge=1, le=MAX_LAYERS)
    """Layers of the decoder."""
    d_ff: int = Field(default=1024, ge=1, le=MAX_WIDTH)
    """Width between the two feed-forward matrices."""
    norm: Literal["pre", "post"] = "pre"
    """Layer norm before each sublayer (Xiong et al. 2020) or after its residual (Vaswani et al.
    2017).
    """
    final_norm: bool = True
    """A layer norm at the end of the encoder and of the decoder."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Position encodings: fixed waves, or parameters."""
    max_len: int = Field(default=256, ge=4, le=MAX_LENGTH)
    """Longest sequence in tokens, with its `<s>` or `</s>`."""
    scale_embeddings: bool = True
    """Multiply embeddings by sqrt(d_model) (Vaswani et al. 2017, 3.4)."""
    tie: Literal["none", "decoder", "all"] = "all"
    """Shared matrices: output and target embedding (`decoder`), or also the source embedding
    (`all`).
    """
    activation: Literal["relu", "gelu"] = "relu"
    """Between the two feed-forward matrices."""
    dropout: Probability = 0.1
    """Dropout of embeddings and of each sublayer's output."""
    attention_dropout: Probability = 0.0
    """Dropout of attention weights."""
    activation_dropout: Probability = 0.0
    """Between the two feed-forward matrices."""
    output_bias: bool = False
    """Whether the output layer has a bias."""

    @property
    def longest_sentence(self) -> int:
        """Most tokens of a sentence, which leave room for `<s>` or `</s>`."""
        return self.max_len - 1

    def _problems(self) -> Iterator[str]:
        if self.d_model % self.num_heads:
            yield f"num_heads {self.num_heads} does not divide d_model {self.d_model}"
        if self.d_model % 2:
            yield f"d_model must be even, found {self.d_model}"


class TrainingConfig(Section):
    """`[training]`: how the weights are found."""

    init_from: FilePath | None = None
    """A run whose best weights a new run starts with; its model is the same or has more layers."""
    distil_from: FilePaths | None = None
    """Teachers for word-level knowledge distillation (Hinton et al. 2015): a run, or a list. Their
    tokenizer has to be this one's: name one of them as `tokenizer.from_run`.
    """
    distil_share: Share = 0.5
    """Weight of the teachers' predictions in each label; the reference has the rest."""
    max_epochs: int = Field(default=12, ge=1, le=MAX_COUNT)
    """Passes over the training pairs, all with as many updates as the first."""
    max_steps: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Most updates; they may end training before `max_epochs`."""
    tokens_per_batch: int = Field(default=4096, ge=1, le=MAX_COUNT)
    """Largest number of tokens on one side of a batch, padding included."""
    accumulation: int = Field(default=1, ge=1, le=MAX_COUNT)
    """Batches summed into one update."""
    optimizer: OptimizerKind = "adamw"
    """Adam (Kingma and Ba 2015), the same with decoupled weight decay (Loshchilov and Hutter 2019),
    or Muon (Jordan et al. 2024) for the matrices of encoder and decoder, with AdamW for all else.
    """
    weight_decay: float = Field(default=0.0, ge=0, le=MAX_FLOAT)
    """Weight decay of matrices; vectors and embeddings have none."""
    schedule: Schedule = "cosine"
    """After the warm-up: 1/sqrt(step) (Noam), a cosine down to zero, or level."""
    peak_lr: float = Field(default=1e-3, gt=0, le=MAX_FLOAT)
    """Learning rate at the end of the warm-up."""
    warmup_steps: CountOrShare = 0.1
    """Updates of linear rise; below 1, their share of all updates: 0.1 is a tenth."""
    label_smoothing: Probability = 0.1
    """Probability mass spread uniformly over the vocabulary (Szegedy et al. 2016)."""
    r_drop: float = Field(default=0.0, ge=0, le=MAX_FLOAT)
    """Alpha of R-Drop (Liang et al. 2021): each batch passes twice, and both passes must agree, for
    2 to 2.5 times the time; 0 is off.
    """
    clip_norm: float = Field(default=1.0, ge=0, le=MAX_FLOAT)
    """Largest norm of an update's gradient; 0 is no limit."""
    validate_every: int = Field(default=0, ge=0, le=MAX_COUNT)
    """Updates between validations; 0 is once an epoch."""
    best_by: Literal["bleu", "loss"] = "bleu"
    """What decides which checkpoint is best, and when to stop early."""
    patience: int = Field(default=0, ge=0, le=MAX_COUNT)
    """Stop after so many validations without improvement; 0 is never."""
    log_every: int = Field(default=50, ge=1, le=MAX_COUNT)
    """Updates between log lines."""

    def num_warmup_steps(self, total_steps: int) -> int:
        """Updates of the warm-up in a training of `total_steps`."""
        is_share = isinstance(self.warmup_steps, float)
        return round(self.warmup_steps * (total_steps if is_share else 1))


class DecodingConfig(Section):
    """`[decoding]`: how a translation is searched for."""

    beam_size: int = Field(default=1, ge=1, le=MAX_LENGTH)
    """Hypotheses kept of each sentence; 1 is greedy."""
    length_penalty: float = Field(default=0.0, ge=0, le=10)
    """Alpha of Wu et al. (2016): higher values favour longer texts; 0 ranks by probability alone.
    """
    max_len_factor: float | None = Field(default=None, ge=0, le=MAX_LENGTH)
    """A translation ends after `max_len_factor` · source tokens + `max_len_extra` tokens. Not set:
    1.5, or more where the training pairs' targets are longer than that.
    """
    max_len_extra: int = Field(default=10, ge=1, le=MAX_LENGTH)
    """See `max_len_factor`."""
    no_repeat_ngram: int = Field(default=0, ge=0, le=MAX_LENGTH)
    """Forbid sequences of so many tokens to occur twice in a translation; 0 is no limit."""
    capitals: CapitalsReading = "lower"
    """How a line of several words in capitals is read: `as_is`, in `lower` case, or with a capital
    for each word (`title`). `evaluate --noise capitals` shows what is best for a model.
    """
    replace_unk: bool = True
    """Copy the source word where the model writes `<unk>`. Subwords have no `<unk>`."""
    batch_size: int = Field(default=0, ge=0, le=MAX_COUNT)
    """Sentences in a batch, grouped by length; 0 picks a size for the device."""
    precision: Precision = "fp32"
    """Precision of matrix products when translating. In 16 bits, a sentence may be
    translated differently in another batch or on another machine.
    """

    temperature: float = Field(default=0.0, ge=0, le=1e6)
    """Above 0, translations are drawn at random; below 1, likely tokens are preferred."""
    top_k: int = Field(default=0, ge=0, le=MAX_COUNT)
    """Draw only from the so many likeliest tokens (Fan et al. 2018); 0 is all."""
    top_p: Share = 1.0
    """Draw only from the fewest tokens whose probabilities sum to this (Holtzman et al. 2020)."""
    seed: int = Field(default=1, ge=0, lt=2**63)
    """Seed of sampling."""
    glossary: FilePath | None = None
    """File of terms and their translations: a term, a tab and its translation on each line."""
    rerank_with: FilePath | None = None
    """Run of the other direction that chooses among the beams; use many beams."""
    rerank_weights: Numbers = (0.3, 0.25)
    """Lambda and mu of log p(y|x) + lambda log p(x|y) + mu |y|: the score of Yee et al. (2019)
    without a language model, and with a reward for each token. Tuned on Multi30k's val.
    """

    def _problems(self) -> Iterator[str]:
        if self.temperature and self.beam_size > 1:
            yield "temperature draws translations and beam_size searches for them; set one of them"
        if not self.temperature and (self.top_k or self.top_p < 1):
            yield "top_k and top_p need a temperature, such as 1"
        if self.rerank_with is not None and self.beam_size == 1:
            yield "rerank_with chooses among beams: beam_size has to be 2 or more, such as 20"


class RuntimeConfig(Section):
    """`[runtime]`: hardware and process settings."""

    device: Device = "auto"
    """`auto` takes a CUDA GPU if there is one."""
    precision: PrecisionChoice = "auto"
    """Precision of the layers in training, and of Muon's matrix products. `auto` is bf16 where the
    device is fast in it (a CPU is timed when training starts), else fp16 on a GPU with matrix units
    for it, else fp32.
    """
    graphs: GraphsChoice = "auto"
    """`auto` replays updates as CUDA graphs on a GPU: one launch each. It needs
    `training.accumulation = 1`, one process and no `model.output_bias`; otherwise, and if a graph
    cannot be captured, updates run as usual.
    """
    threads: int = Field(default=0, ge=0, le=MAX_THREADS)
    """CPU threads; 0 is OMP_NUM_THREADS, or all cores that the process may use."""
    track: TrackerName = "none"
    """Experiment tracker that gets the curves too: `tensorboard` (files in the run folder),
    `trackio` (on this machine) or `wandb` (Weights & Biases). Each is a package: `pip install
    '.[trackio]'`.
    """
    seed: int = Field(default=1, ge=0, lt=2**63)
    """Seed of the training: weights, order of the pairs, dropout, noise."""


class Config(Section):
    """All sections. An absent key is its default."""

    data: DataConfig = Field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = Field(default_factory=TokenizerConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    decoding: DecodingConfig = Field(default_factory=DecodingConfig)
    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig)

    def _problems(self) -> Iterator[str]:
        if self.model.tie == "all" and not self.tokenizer.joint:
            yield "model.tie = 'all' shares one embedding: it needs tokenizer.joint = true"
        if self.data.max_len > self.model.longest_sentence:
            yield (
                f"data.max_len {self.data.max_len} plus <s> or </s> exceeds "
                f"model.max_len {self.model.max_len}"
            )
