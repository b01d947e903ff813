"""Scores against sacreBLEU's own command, and symptoms of bad output."""

import importlib.util
import re
from pathlib import Path

import pytest
from sacrebleu_command import command_intervals, command_scores

from mt_cli.evaluation.scoring import Scores, make_metrics, score, score_bleu, symptoms
from mt_cli.evaluation.significance import paired_tests

SAMPLE_FILE = Path(__file__).parents[2] / "data" / "sample" / "test.en"
SAMPLE = SAMPLE_FILE.read_text(encoding="utf-8").splitlines()[:40]
SHUFFLED = [" ".join(sorted(line.split(), key=len)) for line in SAMPLE]
REFS = ["A man is sleeping on a bench.", "Two dogs, playing in the snow!", "Don't  walk - run."]
REFS += ["", "Äpfel"]
HYPS = ["A man sleeps on a bench.", "two dogs playing in the snow!", "Don't walk - run."]
HYPS += ["Nothing", ""]
CHINESE = ["狗在城里买旧书。", "猫在家里看见了3只白马！", "他们昨天去公园。", "一个 OK 的人。"]
CHINESE_HYPS = ["狗在城里买书。", "猫在家里看3只马！", "昨天他们去公园。", "一个人。"]
THAI = ["สุนัขวิ่งในสวน", "แมวสองตัวนอนหลับ", "ผู้ชายคนหนึ่งเล่นกีตาร์"]
THAI_HYPS = ["สุนัขนอนในสวน", "แมวตัวนอนหลับ", "ผู้ชายคนเล่นกีตาร์"]


def as_printed(scores: Scores) -> dict[str, str]:
    """To the digits that `command_scores` gives."""
    return {each.name: f"{each.score:.10f}" for each in scores.metrics.values()}


@pytest.mark.parametrize(
    ("lowercase", "flags", "case"),
    [(False, [], "case:mixed"), (True, ["-lc", "--chrf-lowercase"], "case:lc")],
    ids=["cased", "lower-cased"],
)
def test_scores_equal_those_of_the_command_to_ten_digits(
    tmp_path: Path, lowercase: bool, flags: list[str], case: str
) -> None:
    scores = score(HYPS, REFS, lowercase=lowercase)
    assert as_printed(scores) == command_scores(tmp_path, HYPS, REFS, *flags)
    bleu, chrf = (scores.metrics[name].signature.split("|") for name in ("bleu", "chrf"))
    assert {case, "tok:13a", "smooth:exp", "nrefs:1"} < set(bleu)
    assert {case, "nc:6", "nw:0"} < set(chrf)


def test_intervals_equal_those_of_the_command_to_the_printed_digits(tmp_path: Path) -> None:
    shuffled = score(SHUFFLED, SAMPLE)
    printed = {each.name: str(each.interval) for each in shuffled.metrics.values()}
    assert printed == command_intervals(tmp_path, SHUFFLED, SAMPLE)
    assert "bs:1000|seed:12345" in printed["BLEU"]


# Languages

JAPANESE = ["犬が町で古い本を買う。", "猫が家で白い馬を見た！"]
KOREAN = ["개가 도시에서 책을 산다.", "고양이가 집에서 말을 본다!"]
HAS_MECAB = any(map(importlib.util.find_spec, ("MeCab", "mecab_ko")))


@pytest.mark.parametrize(
    ("lang", "tokenizer", "hyps", "refs"),
    [
        ("zh", "zh", CHINESE_HYPS, CHINESE),
        ("th", "char", THAI_HYPS, THAI),
    ],
)
def test_scores_of_a_language_without_spaces_equal_those_of_the_command(
    tmp_path: Path, lang: str, tokenizer: str, hyps: list[str], refs: list[str]
) -> None:
    flags = ("-tok", tokenizer, "--ter-normalized", "--ter-asian-support")
    expected = command_scores(tmp_path, hyps, refs, *flags)
    scores = score(hyps, refs, lang=lang)
    assert as_printed(scores) == expected
    assert score_bleu(hyps, refs, lang=lang).score == scores.metrics["bleu"].score


def tokenizer_of(refs: list[str], lang: str) -> str:
    signature = score_bleu(["A dog."] * len(refs), refs, lang=lang).signature
    (tokenizer,) = (part for part in signature.split("|") if part.startswith("tok:"))
    return tokenizer.removeprefix("tok:")


@pytest.mark.parametrize(
    ("refs", "langs", "tokenizer"),
    [
        (CHINESE, ["zh", "zh-TW", "zh_Hant", "zho", "cmn", "yue", ""], "zh"),
        (THAI, ["th", "tha", ""], "char"),
        (["ခွေးက ပန်းခြံထဲမှာ ပြေးနေတယ်။"], ["my", "mya", ""], "char"),
        (SAMPLE, ["en", "de", "hsb", "xx", ""], "13a"),
        (["Собака бежит."], ["ru", ""], "13a"),
        (["कुत्ता बगीचे में दौड़ता है।"], ["hi", ""], "13a"),
        (["", ""], ["", "de"], "13a"),
    ],
    ids=["zh", "th", "my", "en", "ru", "hi", "nothing"],
)
def test_words_are_told_apart_as_the_language_does_whether_it_is_given_or_not(
    refs: list[str], langs: list[str], tokenizer: str
) -> None:
    assert [tokenizer_of(refs, lang) for lang in langs] == [tokenizer] * len(langs)


@pytest.mark.skipif(HAS_MECAB, reason="needs that mecab is missing")
@pytest.mark.parametrize(("refs", "lang"), [(JAPANESE, "jpn"), (JAPANESE, ""), (KOREAN, "ko")])
def test_characters_stand_for_words_where_mecab_is_missing(refs: list[str], lang: str) -> None:
    assert tokenizer_of(refs, lang) == "char"
    assert score(refs, refs, lang=lang).metrics["bleu"].score == pytest.approx(100)


def test_paired_tests_take_words_as_the_scores_do() -> None:
    ((bleu, *_),) = paired_tests(
        CHINESE_HYPS, [CHINESE], [CHINESE], make_metrics(CHINESE), resamples=20, trials=20
    )
    assert bleu.baseline.score == score_bleu(CHINESE_HYPS, CHINESE, lang="zh").score
    assert bleu.system.score == pytest.approx(100)
    assert "tok:zh" in bleu.bootstrap_signature.split("|")


# Symptoms


def test_each_symptom_counts_its_lines_and_names_the_first() -> None:
    hyps = ["A dog .", "A cat .", "a a a a a", "A man."]
    tokenised, looping = symptoms(hyps, ["A dog."] * 4)
    assert re.match(r"2 of 4 .* line 1, ", tokenised)
    assert re.match(r"1 of 4 .* line 3; .*--no-repeat-ngram", looping)


def test_references_that_repeat_themselves_as_much_excuse_the_output() -> None:
    lines = ["A dog.", "no no no no"] * 5
    assert symptoms(lines, lines) == []


def test_tokenised_references_are_told_whatever_the_output_looks_like() -> None:
    (told,) = symptoms(["A dog."] * 10, ["A dog.", "A cat ."] * 5)
    assert re.match(r"5 of 10 references .* line 2, ", told)
