"""Parts of a line, joined again, and what is copied of a line."""

import time

import pytest

from mt_cli.text.tokenizers import Learnt
from mt_cli.translation.result import Translation, joined
from mt_cli.translation.untranslated import ADDRESS, Segment, cut, put_back

LETTERS = "abcdefghijklmnopqrstuvwxyzäöüß"
LEARNT = Learnt(frozenset(f"{LETTERS}{LETTERS.upper()}0123456789 .,:;!?-'()[]"))
DOG = Translation("A dog.", -1.5, ("A", "dog", "."), ("Ein", "Hund", "."), ((0, 0), (1, 1), (2, 2)))
CAT = Translation("Cats!", -0.5, ("Cats", "!"), ("Die", "Katzen", "hier", "!"), ((1, 0), (3, 1)))
NOTHING = Translation("", -0.25, (), ("Ach",), ())


def test_places_in_later_parts_follow_those_of_earlier_ones() -> None:
    whole = joined([DOG, CAT, NOTHING, DOG], space=" ")
    assert whole.text == "A dog. Cats! A dog."
    assert whole.score == -3.75
    assert whole.tokens == (*DOG.tokens, *CAT.tokens, *DOG.tokens)
    assert whole.src_tokens == (*DOG.src_tokens, *CAT.src_tokens, "Ach", *DOG.src_tokens)
    assert whole.alignment == ((0, 0), (1, 1), (2, 2), (4, 3), (6, 4), (8, 5), (9, 6), (10, 7))


def test_symbols_that_the_vocabulary_has_are_translated() -> None:
    learnt = Learnt(LEARNT.characters | {"→"})
    assert cut("Ein → Hund 😀", learnt) == ("Ein → Hund", [Segment("😀", 3)])


def test_signs_that_a_vocabulary_has_by_chance_stay() -> None:
    learnt = Learnt(LEARNT.characters | {"&", "$"})
    assert cut("Max & Anna", learnt) == ("Max Anna", [Segment("&", 1)])
    assert cut("Das kostet 5 $.", learnt) == ("Das kostet.", [Segment("5 $", 2, has_mark=True)])


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("• Ein Hund.", "Ein Hund."),
        ("- Ein Hund.", "Ein Hund."),
        ("-Ein Hund.", "Ein Hund."),
        ("1. Ein Hund.", "Ein Hund."),
        ("a) Ein Hund.", "Ein Hund."),
        ("(3) Ein Hund.", "Ein Hund."),
        ("- [ ] Ein Hund.", "Ein Hund."),
        ("### Ein Hund", "Ein Hund"),
        ("> - „Ein Hund.“", "Ein Hund."),
        ("«Ein Hund.»", "Ein Hund."),
        ("« Ein Hund. »", "Ein Hund."),
        ('"Ein Hund."', "Ein Hund."),
        ("(Ein Hund.)", "Ein Hund."),
        ("**Ein Hund.**", "Ein Hund."),
        ("Ein **roter** Hund.", "Ein roter Hund."),
        ("Ein Ball — ein Hund.", "Ein Ball ein Hund."),
        ("Es kostet 5 €.", "Es kostet."),
        ("Es kostet € 5,50 heute.", "Es kostet heute."),
        ("Siehe § 5 im Buch.", "Siehe im Buch."),
        ("Es sind 30 °C.", "Es sind."),
        ("@anna sieht den #hund.", "sieht den."),
        ("3. Oktober", "3. Oktober"),
        ("3. Junge", "Junge"),
        ("Es kostet 5€.", "Es kostet."),
        ("½ Liter Wasser", "Liter Wasser"),
        ("Es hat 20 m² Platz.", "Es hat Platz."),
        ("2 + 2 = 4 steht da.", "steht da."),
        ("Ein Hund/eine Katze", "Ein Hund eine Katze"),
        ("AT&T baut.", "baut."),
        ("Er fährt 200 km/h schnell", "Er fährt schnell"),
        ("Siehe `x = 3`.", "Siehe."),
        ("@anna Ein Hund", "Ein Hund"),
        ("Er sagt: (ja) und nein!", "Er sagt: ja und nein!"),
        ("Er sagt: „Ja.“ Und „nein“, „nie“.", "Er sagt: Ja. Und nein, nie."),
        ('Ein "Hund", ja!', "Ein Hund, ja!"),
        ("Koch(inn)en hier", "Koch(inn)en hier"),
        ("Guten Morgen, {name}!", "Guten Morgen!"),
        ("Ein <b>roter</b> Ball", "Ein roter Ball"),
        ("- Hallo. - Ja!", "Hallo. Ja!"),
        ("- „Hallo.“ - „Ja.“", "Hallo. Ja."),
        ("**Ein Hund** rennt.", "Ein Hund rennt."),
        ("Ein Hund - ja", "Ein Hund - ja"),
        ("IV. Ein Hund", "Ein Hund"),
        ("ii) Ein Hund", "Ein Hund"),
        ("1.2. Ein Hund", "Ein Hund"),
        ("z. B. Hunde", "z. B. Hunde"),
        ("Das ist www.a.de.", "Das ist."),
        ("12 €", ""),
    ],
)
def test_what_stays_is_cut_out_and_comes_back_where_it_was(line: str, rest: str) -> None:
    text, segments = cut(line, LEARNT)
    assert text == rest
    assert put_back(text, segments, [each.place for each in segments]) == line


@pytest.mark.parametrize(
    "around", ["{}", "<{}>", "({})", "[{}]", '"{}"', "„{}“", "«{}»", "{},", "({})."]
)
@pytest.mark.parametrize(
    "address",
    ["https://a.de/AbC?q=ä&r=1#x", "HTTP://A.DE", "Www.a.de", "ftp://a.de/(y)", "A+x@b.de"],
)
def test_addresses_are_found_with_the_marks_around_them(address: str, around: str) -> None:
    text = around.format(address)
    copied = text.rstrip(".,")  # marks are the sentence's
    assert ADDRESS.findall(text) == [copied]
    assert ADDRESS.findall(f"Siehe {text} heute") == [copied]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(siehe http://a.de/x) und", ["http://a.de/x"]),
        ("[Hund](http://a.de/x) und", ["(http://a.de/x)"]),
        ("见http://a.de/x。好", ["http://a.de/x"]),
        ("Er sagt: a@b, 3:4, z.B. www. und ://", []),
        ("https://a.de/?id[]=4&b[]=rot für", ["https://a.de/?id[]=4&b[]=rot"]),
        ("(https://a.de/a(b(c))d)", ["(https://a.de/a(b(c))d)"]),
        ("http://[2001:db8::1]/hund", ["http://[2001:db8::1]/hund"]),
    ],
)
def test_marks_of_the_sentence_are_no_part_of_an_address(text: str, expected: list[str]) -> None:
    assert ADDRESS.findall(text) == expected


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("Hallo {name}, komm.", "Hallo, komm."),
        ("{name}, komm.", "komm."),
        ("Zeile eins\\nZeile zwei", "Zeile eins Zeile zwei"),
        ("Ein <b>Hund</b> läuft.", "Ein Hund läuft."),
        ('Ein <x id="2"/> Hund.', "Ein Hund."),
        ("Von %1$s bis %s: {{x}} und ${y}.", "Von bis: und."),
        ("Ein Hund %(name)s!", "Ein Hund!"),
        ("Zu 100 % sicher, 50%der Leute.", None),
        ("C:\\neu ist ein Ordner.", "ist ein Ordner."),
        ("Siehe /etc/passwd, ~/a/b.txt und und/oder.", "Siehe, und und oder."),
        ("Ist 3 < 4 und 5 > 2?", None),
        ("(Ein Hund) [läuft] {im Park}.", "Ein Hund [läuft] {im Park}."),
    ],
)
def test_placeholders_are_left_out_and_come_back_where_they_were(
    text: str, rest: str | None
) -> None:
    learnt = Learnt(LEARNT.characters | set("%<>{}\\/"))
    found, segments = cut(text, learnt)
    assert found == (text if rest is None else rest)
    assert put_back(found, segments, [each.place for each in segments]) == text


def test_placeholders_go_where_their_neighbours_went() -> None:
    _, segments = cut("Ein <b>Hund</b> läuft, {name}.", LEARNT)
    found = put_back("Dog is running fast.", segments, [0, 1, 4])
    assert found == "<b>Dog</b> is running fast, {name}."


@pytest.mark.parametrize(
    "piece",
    [
        "@",
        "a@b.",
        "漢",
        "www.",
        "😀",
        "(http://a",
        "<a@b.c",
        '"',
        "a://(",
        "a://x)",
        "{",
        "<a ",
        "%1",
        "„",
        "( ",
        "<b> ",
    ],
)
def test_a_long_word_takes_linear_time(piece: str) -> None:
    text = piece * (20_000 // len(piece))
    began_at = time.process_time()
    cut(text, LEARNT)
    assert time.process_time() - began_at < 2  # with cubic time, hours


def test_marks_around_words_know_each_other() -> None:
    line = "Er rief „«Ja»“ (oder „nein“) und <b>lief <br/> weg</b>."
    _, segments = cut(line, LEARNT)
    pairs = {
        (segments[each.opening].text, each.text) for each in segments if each.opening is not None
    }
    assert pairs == {("„", "“"), ("«", "»"), ("(", ")"), ("<b>", "</b>")}
    assert [each.opening for each in segments] == [
        None,
        None,
        1,
        0,
        None,
        None,
        5,
        4,
        None,
        None,
        8,
    ]
