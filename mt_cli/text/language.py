"""Languages: codes, names, and language detection with py3langid (Lui and Baldwin 2012)."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

MIN_PROBABILITY = 0.9
"""Minimum probability of a detected language."""
MIN_TEXT = 20
"""Minimum characters for language detection."""
FUNCTION_WORDS = {
    "de": "ein eine einen einem einer eines und ist sind nicht auf aus durch für vom zum zur ich "
    "wir sich auch wird werden haben",
    "en": "the and with this that his her their have they are",
}
"""Words that identify a language immediately, without the half second for py3langid; listed for
some languages only.
"""
WORDS_OF_ONE = 12
"""From this many words on, one function word is not enough."""
CODE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")
"""A language code, optionally with script or region: de, hsb, zh-TW, sr_Latn (RFC 5646)."""
NO_LANGUAGES = (
    "bpe", "csv", "dat", "doc", "hyp", "lc", "log", "low", "md", "new", "out", "raw", "ref", "sgm",
    "src", "tab", "tc", "tgt", "tmx", "tok", "trg", "tsv", "txt", "xlf", "xml",
)  # fmt: skip
"""Common file endings that look like language codes."""
TWO_LETTERS = {
    "afr": "af", "amh": "am", "ara": "ar", "aze": "az", "bel": "be", "ben": "bn", "bos": "bs",
    "bul": "bg", "cat": "ca", "ces": "cs", "cmn": "zh", "cym": "cy", "cze": "cs", "dan": "da",
    "deu": "de", "dut": "nl", "ell": "el", "eng": "en", "epo": "eo", "est": "et", "eus": "eu",
    "fas": "fa", "fin": "fi", "fra": "fr", "fre": "fr", "fry": "fy", "ger": "de", "gle": "ga",
    "glg": "gl", "gre": "el", "guj": "gu", "heb": "he", "hin": "hi", "hrv": "hr", "hun": "hu",
    "hye": "hy", "ice": "is", "ind": "id", "isl": "is", "ita": "it", "jpn": "ja", "kan": "kn",
    "kat": "ka", "kaz": "kk", "khm": "km", "kor": "ko", "lao": "lo", "lat": "la", "lav": "lv",
    "lit": "lt", "ltz": "lb", "mal": "ml", "mar": "mr", "mkd": "mk", "mlt": "mt", "mon": "mn",
    "msa": "ms", "mya": "my", "nep": "ne", "nld": "nl", "nob": "no", "nor": "no", "nno": "nn",
    "pan": "pa", "per": "fa", "pol": "pl", "por": "pt", "pus": "ps", "ron": "ro", "rum": "ro",
    "rus": "ru", "sin": "si", "slk": "sk", "slo": "sk", "slv": "sl", "som": "so", "spa": "es",
    "sqi": "sq", "srp": "sr", "swa": "sw", "swe": "sv", "tam": "ta", "tel": "te", "tha": "th",
    "tur": "tr", "ukr": "uk", "urd": "ur", "uzb": "uz", "vie": "vi", "xho": "xh", "yor": "yo",
    "zho": "zh", "zul": "zu", "chi": "zh", "nb": "no", "bur": "my", "alb": "sq", "arm": "hy",
    "baq": "eu", "geo": "ka", "mac": "mk", "may": "ms", "wel": "cy", "cn": "zh", "jp": "ja",
}  # fmt: skip
"""Two-letter codes for ISO 639-3 and 639-2 codes, and for some other codes in use."""
NAMES = {
    "cs": "czech tschechisch čeština", "da": "danish dänisch dansk", "de": "german deutsch",
    "en": "english englisch", "es": "spanish spanisch español", "fi": "finnish finnisch suomi",
    "fr": "french französisch français", "hu": "hungarian ungarisch magyar",
    "it": "italian italienisch italiano", "ja": "japanese japanisch 日本語",
    "nl": "dutch niederländisch nederlands", "pl": "polish polnisch polski",
    "pt": "portuguese portugiesisch português", "ru": "russian russisch русский",
    "sv": "swedish schwedisch svenska", "tr": "turkish türkisch türkçe",
    "uk": "ukrainian ukrainisch українська", "zh": "chinese chinesisch 中文",
}  # fmt: skip
"""Names of languages in English, in German and in the language itself."""
DETERMINERS = {
    "de": "ein eine einen einem einer eines der die das den dem des",
    "en": "a an the one this that these those some",
}
"""Determiners: a noun phrase begins with at most one; listed for some languages only."""
CHINESE = ("zh", "yue", "wuu", "lzh", "nan", "hak", "gan")
KANA = re.compile("[\u3040-\u30ff]")
HAN = re.compile("[\u3400-\u9fff\U00020000-\U0003ffff]")
HANGUL = re.compile("[\u1100-\u11ff\uac00-\ud7af]")
OTHER_UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\ua000-\ua4cf\ua980-\ua9df]"
)
"""Thai, Lao, Tibetan, Burmese, Khmer, Tai, Yi and Javanese: no spaces between words."""
UNSPACED = f"[{''.join(each.pattern[1:-1] for each in (KANA, HAN, OTHER_UNSPACED))}]"
"""A letter of a script without spaces between words."""
MAIN_SHARE = 0.3
"""Share of letters from which a script counts as the script of the text."""


def unspaced_script(texts: Iterable[str]) -> str:
    """`zh`, `ja`, `ko`, or `other` for another script without spaces; else an empty string.

    Korean counts although it has spaces, because its words have several parts.
    """
    text = "".join(texts)
    num_letters = sum(map(str.isalpha, text))
    counts = {
        "ja": len(KANA.findall(text)),
        "zh": len(HAN.findall(text)),
        "ko": len(HANGUL.findall(text)),
        "other": len(OTHER_UNSPACED.findall(text)),
    }
    if counts["ja"] > MAIN_SHARE / 3 * (counts["ja"] + counts["zh"]):  # Japanese has kanji too
        counts["ja"] += counts["zh"]
    script, count = max(counts.items(), key=lambda each: each[1])
    return script if count > MAIN_SHARE * num_letters else ""


def language_code_in(name: str) -> str | None:
    """The code at the end of a name such as `train.es`, `translation.zh-TW` or `hsb`, if any."""
    ending = name.rpartition(".")[2]
    return ending if CODE.fullmatch(ending) and ending.lower() not in NO_LANGUAGES else None


def base_language(code: str) -> str:
    """The language of `code` without script or region, as a two-letter code if there is one.

    `zh-TW` gives `zh`, `deu` gives `de`.
    """
    language = re.split("[-_]", code.lower())[0]
    return TWO_LETTERS.get(language, language)


def sentence_space(lang: str) -> str:
    """The separator between sentences: a space, or nothing in Chinese and Japanese."""
    return "" if base_language(lang) in (*CHINESE, "ja") else " "


def other_language(text: str, lang: str) -> str | None:
    """The language of `text` if it is clearly not `lang`.

    It is also None if py3langid does not know `lang`.
    """
    identifier = _identifier()
    lang = base_language(lang)
    found, probability = identifier.classify(text)
    is_sure = probability > MIN_PROBABILITY and lang in identifier.labels
    return str(found) if is_sure and base_language(found) != lang else None


def foreign_language(text: str, lang: str) -> str | None:
    """The language of `text` if it is long enough to detect and clearly not `lang`."""
    if len(text.strip()) < MIN_TEXT:
        return None
    words = re.findall(r"\w+", text.casefold())
    known = FUNCTION_WORDS.get(base_language(lang), "").split()
    if len({*words}.intersection(known)) > len(words) // WORDS_OF_ONE:
        return None
    return other_language(text, lang)


def likely_language(text: str) -> str | None:
    """The language of `text`, among those that py3langid knows; None if it is not clear."""
    found, probability = _identifier().classify(text)
    return str(found) if probability > MIN_PROBABILITY and any(map(str.isalpha, text)) else None


def detected_language(text: str, *, among: Sequence[str]) -> tuple[str, float]:
    """The most probable language of `text` among some, and its probability.

    It is another language if that has a probability above one half and the text is long enough. If
    nothing can be detected, it is the first of `among` with probability 0.
    """
    probabilities = dict.fromkeys(map(base_language, among), 0.0)
    if any(map(str.isalpha, text)) and all(map(is_detectable, probabilities)):
        for language, probability in _identifier().rank(text):
            if base_language(language) in probabilities:
                probabilities[base_language(language)] += float(probability)
            elif probability > 0.5 and len(text.strip()) >= MIN_TEXT:
                return str(language), float(probability)
    likeliest = max(probabilities, key=lambda language: probabilities[language])
    total = sum(probabilities.values())
    return likeliest, probabilities[likeliest] / total if total else 0.0


def english_name(code: str) -> str:
    """The English name of a language; the code itself if spaCy does not know it."""
    spacy = find_spec("spacy")  # importing it takes seconds
    if spacy is None or spacy.origin is None:
        return code
    module = Path(spacy.origin).parent / "lang" / base_language(code) / "__init__.py"
    source = module.read_text(encoding="utf-8") if module.is_file() else ""
    found = re.search(r"^class (\w+)\(Language\):", source, re.MULTILINE)
    return found[1] if found else code


def is_name_of(text: str, lang: str) -> bool:
    """Whether `text` is a code or name of `lang`, such as `DE`, `de-AT` or `German (Germany)`."""
    word = re.split(r"[\W_]", text.casefold())[0]
    code = base_language(lang)
    return base_language(word) == code or word in NAMES.get(code, "").split()


def is_detectable(lang: str) -> bool:
    """Whether py3langid knows `lang`."""
    return base_language(lang) in _identifier().labels


@cache
def _identifier() -> "LanguageIdentifier":
    # Lazy and cached: importing it and loading its model takes half a second.
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
