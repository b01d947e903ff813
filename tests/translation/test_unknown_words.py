"""Words that the vocabulary lacks: the source's words or the likeliest real ones replace them."""

from collections.abc import Sequence

import pytest
import torch
from learned import learn_tokenizers
from tiny import CPU, randomised, tiny_model
from torch import Tensor

from mt_cli.config.schema import DecodingConfig, TokenizerConfig
from mt_cli.model.inside import attention_maps
from mt_cli.model.model import DecoderState, TranslationModel
from mt_cli.text import BOS_ID, EOS_ID, UNK_ID
from mt_cli.text.tokenizers import Tokenizers
from mt_cli.text.words import JOINER, split_words
from mt_cli.translation.options import forbidden_ids
from mt_cli.translation.torch_engine import TorchEngine
from mt_cli.translation.translator import Translator

PAIRS = [("Ein Hund bellt.", "A dog barks."), ("Eine Katze schläft.", "A cat sleeps.")]
LINES = ["Ein XYLOPHON bellt.", "Die GIRAFFE, ein Zebra, GNU schläft.", "Ein Hund bellt.", "OKAPI"]


def tokenizers_of(*, lowercase: bool = False) -> Tokenizers:
    pairs = [(src.lower(), tgt.lower()) if lowercase else (src, tgt) for src, tgt in PAIRS]
    config = TokenizerConfig(kind="spacy", vocab_size=100, min_freq=1, joint=False)
    return learn_tokenizers(pairs, config, src_lang="de", tgt_lang="en", lowercase=lowercase)


def translator_of(*, lowercase: bool = False) -> Translator:
    tokenizers = tokenizers_of(lowercase=lowercase)
    src_size, tgt_size = tokenizers.src.vocab_size, tokenizers.tgt.vocab_size
    sizes = {"decoder_layers": 2, "max_len": 24}
    model = tiny_model(src_vocab_size=src_size, tgt_vocab_size=tgt_size, options=sizes)
    model = randomised(model, std=1.0)
    config = DecodingConfig(replace_unk=True)
    forbidden = forbidden_ids(tokenizers, config)
    return Translator(TorchEngine(model, config, runtime=CPU, forbidden_ids=forbidden), tokenizers)


def words_to_ids(*words: str, lowercase: bool = False) -> list[int]:
    entries = tokenizers_of(lowercase=lowercase).tgt.entries
    return [UNK_ID if word == "?" else entries.index(word) for word in words]


def let_say(monkeypatch: pytest.MonkeyPatch, ids: Sequence[int]) -> None:
    """Have every model say `ids`."""
    step = TranslationModel.step

    def say(model: TranslationModel, latest: Tensor, state: DecoderState) -> Tensor:
        wanted = ids[state.length] if state.length < len(ids) else EOS_ID
        logits = step(model, latest, state).fill_(-9)
        logits[..., wanted] = 2
        return logits

    monkeypatch.setattr(TranslationModel, "step", say)


def words_looked_at(
    translator: Translator, line: str, hyp: list[int], *, lowercase: bool
) -> list[str]:
    """The word of `line` that the last layer but one looks at most from each id of `hyp`.

    Of the unknown words, where there are any.
    """
    (ids,) = tokenizers_of(lowercase=lowercase).src.encode([line.lower() if lowercase else line])
    src_ids, tgt_in = torch.tensor([[*ids, EOS_ID]]), torch.tensor([[BOS_ID, *hyp]])
    maps = attention_maps(translator.model, src_ids, tgt_in)
    weights = maps["cross"][0, 0].mean(0).tolist()  # (T, S)
    unknown = [place for place, i in enumerate(ids) if i == UNK_ID] or range(len(ids))
    places = [max(unknown, key=row.__getitem__) for row in weights[: len(hyp)]]
    return [split_words([line], "de")[0][place].removeprefix(JOINER) for place in places]


@pytest.mark.parametrize("lowercase", [False, True], ids=["mixed case", "lower case"])
def test_words_of_the_source_as_they_were_written_stand_for_unknown_ones(
    monkeypatch: pytest.MonkeyPatch, lowercase: bool
) -> None:
    translator = translator_of(lowercase=lowercase)
    hyp = words_to_ids("?", "dog", "?", "?", lowercase=lowercase)
    let_say(monkeypatch, hyp)
    looked_at = [words_looked_at(translator, line, hyp, lowercase=lowercase) for line in LINES]
    assert len({tuple(words) for words in looked_at}) == len(LINES)
    expected = [" ".join([words[0], "dog", *words[2:]]) for words in looked_at]
    assert translator.translate(LINES) == expected
    assert [found[0].text for found in translator.translate_n_best(LINES)] == expected


def test_words_come_from_the_part_of_a_long_line_that_lacks_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"Name{number}" for number in range(30)]
    let_say(monkeypatch, words_to_ids("?"))
    said = translator_of().translate([" ".join(names)])[0].split()
    places = [names.index(name) for name in said]
    assert places == sorted(set(places))
    assert len(places) > 1
