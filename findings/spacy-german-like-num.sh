#!/usr/bin/env bash
# spaCy's blank German pipeline knows no number word: like_num of "drei" is False. A good guess: True, as "three" is in English.
# spaCy 3.8.18, Python 3.11. Hurts whoever finds or compares numbers in German text by Token.like_num.
#
# Behaviour: English, French and Czech have lists of number words; German has no `like_num` at all, so that only digits
# (and what looks like them) count. Of 3 numbers in "Drei Hunde, 3 Katzen, zwölf Kinder", one is found.
# Output seen:
#   en three True, fr trois True, cs tři True, de drei False
#   German text: ['3']
set -euo pipefail
place="$(mktemp -d)"
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -qq --disable-pip-version-check spacy==3.8.18
"$place/venv/bin/python" - <<'PY'
import spacy

words = {"en": "three", "fr": "trois", "cs": "tři", "de": "drei"}
found = {lang: spacy.blank(lang)(word)[0].like_num for lang, word in words.items()}
print(", ".join(f"{lang} {words[lang]} {found[lang]}" for lang in words))
numbers = [t.text for t in spacy.blank("de")("Drei Hunde, 3 Katzen, zwölf Kinder") if t.like_num]
print("German text:", numbers)
assert found == {"en": True, "fr": True, "cs": True, "de": False}
assert numbers == ["3"]
PY
