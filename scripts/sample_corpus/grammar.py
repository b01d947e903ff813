"""Inflection and word order of the sample corpus: the same clause in German and in English.

Draws nothing at random and knows no particular word, except the closed classes.
"""

from dataclasses import dataclass
from typing import Literal

from sample_corpus.lexicon import NUMERALS, QUANTIFIERS, Adjective, Case, Noun, Place, Verb

Slot = Literal["m", "f", "n", "pl"]
"""What an article or an adjective agrees with besides case: the gender, or the plural."""
Determiner = str
"""ein, der, a numeral, a quantifier, or nothing."""
Combination = tuple[str, str, str]
"""What is combined, and the two words: ("subject", "Hund", "schläft")."""

SLOTS: tuple[Slot, ...] = ("m", "f", "n", "pl")
ARTICLES: dict[tuple[str, Case], str] = {
    ("der", "nom"): "der die das die",
    ("der", "acc"): "den die das die",
    ("der", "dat"): "dem der dem den",
    ("ein", "nom"): "ein eine ein -",
    ("ein", "acc"): "einen eine ein -",
    ("ein", "dat"): "einem einer einem -",
}
ADJECTIVE_ENDINGS: dict[tuple[str, Case], str] = {
    ("der", "nom"): "e e e en",
    ("der", "acc"): "en e e en",
    ("der", "dat"): "en en en en",
    ("ein", "nom"): "er e es -",
    ("ein", "acc"): "en e es -",
    ("ein", "dat"): "en en en -",
    ("", "nom"): "er e es e",
    ("", "acc"): "en e es e",
    ("", "dat"): "em er em en",
}
CONTRACTIONS = {("in", "dem"): "im", ("an", "dem"): "am", ("in", "das"): "ins", ("an", "das"): "ans"}
EN_DETERMINERS = {"der": "the", "": "", **NUMERALS, **QUANTIFIERS}
DOUBLED = {"sit", "run", "swim", "jog", "clap", "pet", "hug", "cut", "put"}
SOUNDS_LIKE_CONSONANT = ("uni",)


@dataclass(frozen=True)
class NounPhrase:
    """A noun with its determiner and at most one adjective."""

    noun: Noun
    determiner: Determiner = ""
    adjective: Adjective | None = None
    is_plural: bool = False

    @property
    def slot(self) -> Slot:
        """What its article and adjective agree with."""
        return "pl" if self.is_plural else self.noun.gender

    def de(self, case: Case) -> str:
        """The German phrase in a case."""
        return words(decline_determiner(self.determiner, case, self.slot), self.de_rest(case))

    def de_rest(self, case: Case) -> str:
        """The German phrase without its determiner, whose ending the adjective still depends on."""
        noun = decline_noun(self.noun, case, is_plural=self.is_plural)
        if self.adjective is None:
            return noun
        return words(decline_adjective(self.adjective, self.determiner, case, self.slot), noun)

    def en(self) -> str:
        """The English phrase."""
        noun = self.noun.en_plural if self.is_plural else self.noun.en
        rest = words(self.adjective.en if self.adjective else "", noun)
        if self.determiner == "ein":
            return words(english_article(rest), rest) if self.noun.takes_en_article else rest
        return words(EN_DETERMINERS[self.determiner], rest)

    def combinations(self) -> set[Combination]:
        """The adjective with its noun, if there is one."""
        return {("adjective", self.adjective.stem, self.noun.de)} if self.adjective else set()


@dataclass(frozen=True)
class Clause:
    """A verb with its subject and complements; its methods put them in order for each kind of clause."""

    subject: "Subject"
    verb: Verb
    obj: NounPhrase | None = None
    recipient: NounPhrase | None = None
    place: NounPhrase | None = None
    place_kind: Place | None = None

    def de_main(self, *, front: Literal["subject", "place"] | str = "subject") -> str:
        """German with the finite verb second; `front` may also be an adverbial of time."""
        subject = self.subject.de()
        reflexive = "sich" if self.verb.is_reflexive else ""
        if front == "subject":
            return words(subject, self._finite(), reflexive, self._de_middle(), self.verb.particle)
        first = self.de_place() if front == "place" else front
        middle = self._de_middle(with_place=front != "place")
        return words(first, self._finite(), reflexive, subject, middle, self.verb.particle)

    def de_final(self) -> str:
        """German after "während": subject first, finite verb last; "sich" comes before the subject."""
        reflexive = "sich" if self.verb.is_reflexive else ""
        return words(reflexive, self.subject.de(), self._de_middle(), self.verb.particle + self._finite())

    def de_relative(self) -> str:
        """German relative clause on the subject, without commas."""
        reflexive = "sich" if self.verb.is_reflexive else ""
        pronoun = ARTICLES["der", "nom"].split()[SLOTS.index(self.subject.head.slot)]
        return words(pronoun, reflexive, self._de_middle(), self.verb.particle + self._finite())

    def de_predicate(self) -> str:
        """German finite verb and complements, as after "und"."""
        return words(self._finite(), self._de_middle(), self.verb.particle)

    def de_infinitive(self) -> str:
        """German infinitive with "zu", after "versucht,"."""
        infinitive = (
            f"{self.verb.particle}zu{self.verb.plural}" if self.verb.particle else f"zu {self.verb.plural}"
        )
        return words(self._de_middle(), infinitive)

    def en_main(self, *, front: Literal["subject", "place"] | str = "subject") -> str:
        """English with the progressive; whatever else is in front is set off by a comma."""
        if front == "subject":
            return words(self.subject.en(), self.subject.en_be(), self.en_predicate())
        first = self.en_place() if front == "place" else front
        predicate = self.en_predicate(with_place=front != "place")
        return words(f"{first},", self.subject.en(), self.subject.en_be(), predicate)

    def en_relative(self) -> str:
        """English relative clause on the subject."""
        pronoun = "who" if self.subject.is_human else "that"
        return words(pronoun, self.subject.en_be(), self.en_predicate())

    def en_predicate(self, *, with_place: bool = True) -> str:
        """English participle and complements."""
        return words(progressive(self.verb.en), self._en_complements(), self.en_place() if with_place else "")

    def en_infinitive(self) -> str:
        """English base form and complements."""
        return words(self.verb.en, self._en_complements(), self.en_place())

    def de_place(self) -> str:
        """German adverbial of place, contracted where it must be ("im Park")."""
        if self.place is None or self.place_kind is None:
            return ""
        return de_prepositional(self.place_kind.prep, self.place, "dat")

    def en_place(self) -> str:
        """English adverbial of place."""
        if self.place is None or self.place_kind is None:
            return ""
        return words(self.place_kind.en_prep, self.place.en())

    def combinations(self) -> set[Combination]:
        """Pairs of words that this clause puts together, its noun phrases included."""
        verb = f"{self.verb.plural}:{self.verb.en}"
        found = self.subject.combinations()
        found |= {("subject", phrase.noun.de, verb) for phrase in self.subject.phrases}
        for kind, phrase in (("object", self.obj), ("recipient", self.recipient), ("place", self.place)):
            if phrase is not None:
                found |= {(kind, verb, phrase.noun.de)} | phrase.combinations()
        return found

    def _finite(self) -> str:
        return self.verb.plural if self.subject.takes_plural_verb else self.verb.singular

    def _de_middle(self, *, with_place: bool = True) -> str:
        place = self.de_place() if with_place else ""
        recipient = self.recipient.de("dat") if self.recipient else ""
        obj = de_prepositional(self.verb.prep, self.obj, self.verb.case) if self.obj else ""
        if self.obj is not None and self.obj.determiner == "der":
            return words(recipient, obj, place)  # what is known comes before the place, what is new after it
        return words(place, recipient, obj)

    def _en_complements(self) -> str:
        obj = self.obj.en() if self.obj else ""
        if self.recipient is None:
            return obj
        if self.verb.en_to:
            return words(obj, self.verb.en_to, self.recipient.en())
        return words(self.recipient.en(), obj)


@dataclass(frozen=True)
class Subject:
    """One noun phrase or two joined by "und", with what describes them."""

    phrases: tuple[NounPhrase, ...]
    is_human: bool
    is_group: bool = False
    """ "eine Gruppe von …", with a singular verb."""
    attribute: NounPhrase | None = None
    attribute_prep: Literal["mit", "in"] = "mit"
    relative: Clause | None = None

    @property
    def head(self) -> NounPhrase:
        """The first noun phrase, which a relative pronoun agrees with."""
        return self.phrases[0]

    @property
    def takes_plural_verb(self) -> bool:
        """Agreement of the finite verb."""
        return len(self.phrases) > 1 or (self.head.is_plural and not self.is_group)

    @property
    def is_many(self) -> bool:
        """More than one in meaning."""
        return len(self.phrases) > 1 or self.head.is_plural

    def de(self) -> str:
        """German, in the nominative."""
        if self.is_group:
            return words("eine Gruppe von", self.head.de("dat"))
        attribute = de_prepositional(self.attribute_prep, self.attribute, "dat") if self.attribute else ""
        relative = f", {self.relative.de_relative()}," if self.relative else ""
        return words(" und ".join(phrase.de("nom") for phrase in self.phrases), attribute) + relative

    def en(self) -> str:
        """English."""
        prep = {"mit": "with", "in": "in"}[self.attribute_prep]
        attribute = words(prep, self.attribute.en()) if self.attribute else ""
        relative = self.relative.en_relative() if self.relative else ""
        joined = " and ".join(phrase.en() for phrase in self.phrases)
        return words("a group of" if self.is_group else "", joined, attribute, relative)

    def en_be(self) -> str:
        """The auxiliary that agrees."""
        return "are" if self.takes_plural_verb else "is"

    def combinations(self) -> set[Combination]:
        """Adjectives with nouns, and whatever the relative clause combines."""
        found = {pair for phrase in self.phrases for pair in phrase.combinations()}
        if self.attribute is not None:
            found |= self.attribute.combinations()
        return found | (self.relative.combinations() if self.relative else set())


def decline_determiner(determiner: Determiner, case: Case, slot: Slot) -> str:
    """An article in its form; numerals do not change, quantifiers take -n in the dative."""
    if (determiner, case) in ARTICLES:
        return ARTICLES[determiner, case].split()[SLOTS.index(slot)]
    return determiner + "n" if determiner in QUANTIFIERS and case == "dat" else determiner


def decline_adjective(adjective: Adjective, determiner: Determiner, case: Case, slot: Slot) -> str:
    """An adjective with the weak, mixed or strong ending that its determiner asks for."""
    kind = determiner if determiner in {"ein", "der"} else ""
    return adjective.stem + ADJECTIVE_ENDINGS[kind, case].split()[SLOTS.index(slot)]


def decline_noun(noun: Noun, case: Case, *, is_plural: bool) -> str:
    """A noun in its form: weak nouns change in the singular, plurals take -n in the dative."""
    if not is_plural:
        return noun.de_plural if noun.is_weak and case != "nom" else noun.de
    return noun.de_plural + ("n" if case == "dat" and not noun.de_plural.endswith(("n", "s")) else "")


def de_prepositional(prep: str, phrase: NounPhrase, case: Case) -> str:
    """A noun phrase after a preposition, if there is one, with "in dem" contracted to "im"."""
    determiner = decline_determiner(phrase.determiner, case, phrase.slot)
    contraction = CONTRACTIONS.get((prep, determiner))
    return words(contraction, phrase.de_rest(case)) if contraction else words(prep, phrase.de(case))


def english_article(following: str) -> str:
    """Return "a" or "an", by the sound that follows."""
    return "an" if following[0] in "aeiou" and not following.startswith(SOUNDS_LIKE_CONSONANT) else "a"


def progressive(phrase: str) -> str:
    """English -ing form of the first word of a verb phrase."""
    verb, _, rest = phrase.partition(" ")
    if verb == "lie":
        stem = "ly"
    elif verb in DOUBLED:
        stem = verb + verb[-1]
    else:
        stem = verb[:-1] if verb.endswith("e") and not verb.endswith("ee") else verb
    return words(stem + "ing", rest)


def words(*parts: str) -> str:
    """Join what is there with spaces."""
    return " ".join(part for part in parts if part)


def sentence(text: str) -> str:
    """Capitalise the first letter and end with a full stop; a closing comma gives way to it."""
    return text[0].upper() + text[1:].rstrip(",") + "."
