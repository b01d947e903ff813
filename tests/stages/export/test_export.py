"""Exported folders of runs with every kind of tokenizer: they translate as the runs do."""

from functools import cache
from pathlib import Path

import pytest
import torch
from learned import learn_tokenizers
from runs_made import making
from tiny import CPU, TINY, randomised

from mt_cli.config.schema import Config, DataConfig, DecodingConfig, TokenizerConfig
from mt_cli.evaluation.export import Export, export_run
from mt_cli.runs.checkpoint import CheckpointState, checkpoint_name, save_checkpoint
from mt_cli.runs.run import Run
from mt_cli.text import UNK_ID
from mt_cli.text.tokenizer import Tokenizers
from mt_cli.translation.lines import forbidden_ids
from mt_cli.translation.searcher import Searcher
from mt_cli.translation.translator import Translator

PAIRS = [
    ("Ein Hund bellt.", "A dog barks."),
    ("Ein Hund schläft im Garten.", "A dog sleeps in the garden."),
    ("Zwei Männer (und ein Hund) gehen.", "Two men (and a dog) walk."),
] * 4
KINDS = {
    "joint words": TokenizerConfig(kind="spacy", min_freq=1, joint=True),
    "words": TokenizerConfig(kind="spacy", min_freq=1, joint=False),
    "joint bpe": TokenizerConfig(kind="bpe", vocab_size=300, joint=True),
    "bpe": TokenizerConfig(kind="bpe", vocab_size=300, tgt_vocab_size=310, joint=False),
    "joint unigram": TokenizerConfig(kind="unigram", vocab_size=310, joint=True),
    "unigram": TokenizerConfig(kind="unigram", vocab_size=300, tgt_vocab_size=295, joint=False),
}
LINES = [
    "Ein Hund bellt.",
    "",
    "zwei  Hunde\tschlafen",
    "Der Ostfriese (aus Leer) bellt, ¿ja?",
    "<s> <unk> </s> ￭",
]
AWKWARD_LINES = ["zwei\u200b Hunde", "▁", "Ein Mann. " * 30 + "ein Hund, " * 30]
"""Which mt-cli drops letters from, escapes, or splits."""
MODEL = TINY.model_copy(update={"max_len": 48})
every_kind = pytest.mark.parametrize("kind", list(KINDS))
either_case = pytest.mark.parametrize("lowercase", [False, True], ids=["cased", "lower-cased"])


@cache
def tokenizers_of(kind: str, *, lowercase: bool = False) -> Tokenizers:
    pairs = [(src.lower(), tgt.lower()) if lowercase else (src, tgt) for src, tgt in PAIRS]
    return learn_tokenizers(pairs, KINDS[kind], src_lang="de", tgt_lang="en", lowercase=lowercase)


def run_of(
    kind: str,
    folder: Path,
    *,
    lowercase: bool = False,
    unk_bias: float = 0.0,
    decoding: DecodingConfig,
) -> Run:
    """A run with a random model, which likes to say `<unk>` by `unk_bias`, and whose data are not
    at hand.
    """
    tokenizers = tokenizers_of(kind, lowercase=lowercase)
    config = Config(
        model=MODEL.model_copy(update={"output_bias": bool(unk_bias)}),
        data=DataConfig(lowercase=lowercase, max_len=40),
        tokenizer=KINDS[kind],
        decoding=decoding,
    )
    with making(folder, config, tokenizers=tokenizers) as run:
        model = randomised(run.build_model(), std=0.3)
        if unk_bias:
            torch.nn.init.constant_(model.output.bias[UNK_ID], unk_bias)
        save_checkpoint(
            folder / "checkpoints" / checkpoint_name(1),
            dict(model.named_parameters()),
            tensors={},
            state=CheckpointState(1, 0, 1),
        )
        run.point("best", to=checkpoint_name(1))
        return run


@every_kind
@pytest.mark.parametrize("max_len_extra", [1, 100], ids=["limits of their own", "one limit"])
def test_exported_model_translates_lines_as_the_translator_does(
    kind: str, max_len_extra: int, tmp_path: Path
) -> None:
    decoding = DecodingConfig(max_len_extra=max_len_extra, batch_size=2, replace_unk=False)
    run = run_of(kind, tmp_path / "run", decoding=decoding)
    folder = exported(run).folder
    theirs = Translator.load(folder, device="cpu", threads=1)
    forbidden = forbidden_ids(run.tokenizers, decoding)
    searcher = Searcher(
        run.load_model(),
        decoding,
        runtime=CPU,
        forbidden_ids=forbidden,
        lengths=run.lengths,
    )
    ours = Translator(searcher, run.tokenizers)
    lines = [*LINES, *AWKWARD_LINES]
    assert theirs.translate(lines) == ours.translate(lines)
    assert theirs.translate([]) == []


def exported(run: Run) -> Export:
    return export_run(run.folder, run.folder.with_name("exported"))
