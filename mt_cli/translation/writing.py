"""The last steps for a line: decode the hypotheses, join the parts, put back what stayed."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from mt_cli.decoding import Hyp
from mt_cli.text import UNK_ID
from mt_cli.text.language import sentence_space
from mt_cli.text.normalize import normalize
from mt_cli.text.tokenizers import Tokenizer, Tokenizers
from mt_cli.text.words import JOINER, WordTokenizer, join_words, split_words
from mt_cli.translation.engine import CrossAttention, Engine
from mt_cli.translation.reading import Line, Part
from mt_cli.translation.result import Translation, joined
from mt_cli.translation.untranslated import put_back

Pair = tuple[Part, Hyp]
"""A part and its hypothesis."""


def write_lines(
    lines: Sequence[Line],
    hyps: Sequence[Sequence[Hyp]],
    engine: Engine,
    tokenizers: Tokenizers,
    *,
    n_best: int,
    with_alignment: bool,
    with_words: bool,
) -> list[list[Translation]]:
    """The `n_best` translations of each line; `hyps` belong to the parts of all lines, in order."""
    of_parts = iter(hyps)
    pairs: list[Pair] = []
    is_aligned: list[bool] = []
    for line in lines:
        hyps_of_line = [next(of_parts) for _ in line.parts]
        for rank in range(n_best):
            pairs += [(line.parts[i], of_part[rank]) for i, of_part in enumerate(hyps_of_line)]
        is_aligned += [with_alignment or _is_parted(line)] * (n_best * len(hyps_of_line))
    parts = write_parts(
        pairs,
        engine,
        tokenizers,
        is_aligned=is_aligned,
        with_words=with_words,
    )
    space = sentence_space(tokenizers.options.tgt_lang)
    written = []
    done = 0
    for line in lines:
        of_line = []
        for _ in range(n_best):
            own = slice(done, done + len(line.parts))
            translation = joined(parts[own], space=space)
            if line.segments:
                text = _with_segments(translation, line, [hyp for _, hyp in pairs[own]], tokenizers)
                alignment = translation.alignment if with_alignment else ()
                translation = replace(translation, text=text, alignment=alignment)
            of_line.append(translation)
            done = own.stop
        written.append(of_line)
    return written


def write_parts(
    pairs: Sequence[Pair],
    engine: Engine,
    tokenizers: Tokenizers,
    *,
    is_aligned: Sequence[bool],
    with_words: bool = False,
) -> list[Translation]:
    """The translation of each of `pairs`, with an alignment where `is_aligned` is true.

    With `decoding.replace_unk`, source words replace `<unk>`.
    """
    tgt = tokenizers.tgt
    replaces = engine.config.replace_unk and isinstance(tgt, WordTokenizer)
    looked_at = []
    for i, (_, hyp) in enumerate(pairs):
        if is_aligned[i] or (replaces and UNK_ID in hyp.ids):
            looked_at.append(i)
    attentions = engine.attentions(
        [pairs[i][0].ids for i in looked_at], [pairs[i][1].ids for i in looked_at]
    )
    alignments: dict[int, list[int]] = {}
    replaced: dict[int, list[str]] = {}
    for i, weights in zip(looked_at, attentions, strict=True):
        if is_aligned[i]:
            alignments[i] = weights.argmax(-1).tolist()
        if replaces and UNK_ID in pairs[i][1].ids:
            replaced[i] = _without_unknown(*pairs[i], weights, tokenizers)
    log_probs: Sequence[list[float]] = [[] for _ in pairs]
    if with_words:
        log_probs = engine.token_log_probs(
            [part.ids for part, _ in pairs], [hyp.ids for _, hyp in pairs]
        )
    texts = tgt.decode([hyp.ids for _, hyp in pairs])
    written = []
    for i, (part, hyp) in enumerate(pairs):
        written.append(
            Translation(
                join_words(replaced[i]) if i in replaced else texts[i],
                hyp.score,
                tokens=tuple(tgt.tokens(hyp.ids)),
                src_tokens=tuple(tokenizers.src.tokens(part.ids)),
                alignment=tuple((src, t) for t, src in enumerate(alignments.get(i, ()))),
                log_prob=hyp.log_prob,
                num_given=hyp.num_given,
                words=_words(hyp, log_probs[i], tgt, replaced.get(i)),
                is_cut=len(hyp.ids) >= engine.limit(len(part.ids), hyp.num_given),
                is_broken=tgt.is_broken(hyp.ids),
            )
        )
    return written


def _without_unknown(
    part: Part, hyp: Hyp, weights: CrossAttention, tokenizers: Tokenizers
) -> list[str]:
    """The tokens of `hyp`, with each `<unk>` replaced by the source word that it attends to.

    Source words that are unknown themselves are preferred. `weights` are (T, S).
    """
    src = tokenizers.src
    tgt = tokenizers.tgt
    assert isinstance(src, WordTokenizer)
    assert isinstance(tgt, WordTokenizer)
    unknown = [place for place, token_id in enumerate(part.ids) if token_id == UNK_ID]
    among = unknown or list(range(len(part.ids)))
    (words,) = split_words([part.text], src.lang)
    if len(words) != len(part.ids):  # lower case had changed the word boundaries
        (words,) = split_words([normalize(part.text, lowercase=True)], src.lang)
    tokens = []
    for token_id, of_token in zip(hyp.ids, weights, strict=True):
        place = among[int(of_token[among].argmax())]
        is_unknown = token_id == UNK_ID
        tokens.append(words[place].removeprefix(JOINER) if is_unknown else tgt.entries[token_id])
    return tokens


def _words(
    hyp: Hyp, log_probs: Sequence[float], tokenizer: Tokenizer, marked: Sequence[str] | None
) -> tuple[tuple[str, float], ...]:
    """The words of `hyp`, each with the sum of its `log_probs`; none without `log_probs`.

    `marked` is the list of its tokens if some were replaced.
    """
    begins: list[int] = []
    sums: list[float] = []
    for place, (token_id, log_prob) in enumerate(zip(hyp.ids, log_probs, strict=False)):
        if place == 0 or tokenizer.begins_word(token_id):
            begins.append(place)
            sums.append(0.0)
        sums[-1] += log_prob
    texts = []
    for begin, end in pairwise([*begins, len(hyp.ids)]):
        if marked is None:
            texts += tokenizer.decode([hyp.ids[begin:end]])
        else:
            texts.append(join_words(marked[begin:end]))
    return tuple(zip(texts, sums, strict=True))


def _with_segments(
    whole: Translation, line: Line, hyps: Sequence[Hyp], tokenizers: Tokenizers
) -> str:
    """The text of `whole` with the untranslated segments of `line` put back.

    A segment goes where it splits the translation as it splits the source: as few tokens as
    possible attend across it. `hyps` are the hypotheses that `whole` was written from.
    """
    src_ids = chain.from_iterable(part.ids for part in line.parts)
    src_words = np.cumsum([tokenizers.src.begins_word(i) for i in src_ids])  # from 1
    tgt_ids = list(chain.from_iterable(hyp.ids for hyp in hyps))
    begins = [t for t, i in enumerate(tgt_ids) if t and tokenizers.tgt.begins_word(i)]
    ends = np.array([0, *begins, len(tgt_ids)])  # tokens in the first 0, 1, … words
    num_words = len(whole.text.split())
    num_src_words = len(line.text.split())
    is_parted = _is_parted(line)
    attended = src_words[[src for src, _ in whole.alignment]]

    def num_inside(begin: int, end: int) -> NDArray[np.intp]:
        """Number of tokens in the first 0, 1, … words that attend to source words in this range."""
        is_inside = (attended > begin) & (attended <= end)
        return np.concatenate(([0], is_inside.cumsum()))[ends]

    def place_of(place: int) -> int:
        """The number of translated words before a segment that follows `place` source words."""
        if place == 0 or place >= num_src_words:
            return min(place, 1) * num_words
        num_before = num_inside(0, place)
        crossing = ends - num_before + num_before[-1] - num_before
        return min(int(crossing.argmin()), num_words)

    places = [place_of(segment.place) for segment in line.segments]
    for i, segment in enumerate(line.segments):
        if segment.opening is not None and is_parted:
            inside = num_inside(line.segments[segment.opening].place, segment.place)
            first, places[i] = _around(inside, ends, default=places[segment.opening])
            places[segment.opening] = first
    return put_back(whole.text, line.segments, places)


def _around(
    num_inside: NDArray[np.intp], ends: NDArray[np.intp], *, default: int
) -> tuple[int, int]:
    """The span of words with the most tokens inside and the fewest others.

    Both arrays count tokens in the first 0, 1, … words. If no token is inside, the span is the word
    at `default`.
    """
    if not num_inside[-1]:
        default = min(default, len(ends) - 2)
        return default, default + 1
    gains = 2 * num_inside - ends
    last = int((gains[1:] - np.minimum.accumulate(gains[:-1])).argmax()) + 1
    return int(gains[:last].argmin()), last


def _is_parted(line: Line) -> bool:
    """Whether a segment stands between words of `line`, so that its place must be found."""
    num_words = len(line.text.split())
    return any(0 < segment.place < num_words for segment in line.segments)
