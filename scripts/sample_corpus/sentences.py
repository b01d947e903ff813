"""Sentences of the sample corpus, drawn at random: which words, in which kind of sentence.

Owns what makes sense together; knows no endings, no word order and no splits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from sample_corpus.grammar import Clause, Combination, NounPhrase, Subject, sentence, words
from sample_corpus.lexicon import (
    ADJECTIVES,
    NUMERALS,
    PLACES,
    PLACES_OF,
    QUANTIFIERS,
    TIMES,
    Noun,
    Place,
    Verb,
    expand,
    nouns_named,
)
from sample_corpus.verbs import BARE_VERBS, OBJECT_VERBS, WEAR

HUMANS = expand("people baby")
CLOTHES = expand("clothes dress")
MASCULINE = "man boy"
VERBS = BARE_VERBS + OBJECT_VERBS
POSTURES = tuple(verb for verb in BARE_VERBS if verb.en in {"sit", "stand", "lie"})
COMMON = {"Mann", "Frau", "Junge", "Mädchen", "Kind", "Hund", "Katze", "Pferd"}
"""Nouns drawn three times as often as their neighbours."""
OBJECT_DETERMINERS = (("ein", False), ("der", False), ("", True), ("zwei", True), ("drei", True))


@dataclass(frozen=True)
class Pair:
    """A sentence in both languages, and the pairs of words that it combines."""

    de: str
    en: str
    combinations: frozenset[Combination]


class Sampler:
    """Draws sentences; within one, no noun comes twice."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.used: set[str] = set()

    def pair(self) -> Pair:
        """Draw a sentence of any kind."""
        kinds = (
            self.plain,
            self.meanwhile,
            self.relative,
            self.described_object,
            self.doing_both,
            self.attempt,
        )
        while True:
            self.used.clear()
            pair = self.rng.choices(kinds, weights=(48, 14, 12, 7, 12, 7))[0]()
            if pair is not None:
                return pair

    def plain(self) -> Pair | None:
        """One clause, with the subject, the place or a time in front."""
        clause = self.clause(self.rng.choice(VERBS))
        if clause is None:
            return None
        front_de, front_en = "subject", "subject"
        is_weather = clause.place_kind is not None and "weather" in clause.place_kind.groups
        if clause.place is not None and not clause.verb.needs_place and self.chance(0.3):
            front_de = front_en = "place"
        elif not is_weather and clause.subject.attribute is None and self.chance(0.15):
            front_de, front_en = self.rng.choice(tuple(TIMES.items()))
        return make_pair(clause.de_main(front=front_de), clause.en_main(front=front_en), [clause])

    def meanwhile(self) -> Pair | None:
        """A main clause and a clause with "während", one of them at most with a place."""
        main = self.clause(self.rng.choice(VERBS), is_short=True)
        if main is None:
            return None
        side = self.clause(
            self.rng.choice(VERBS), has_place=None if main.place is None else False, is_short=True
        )
        if side is None or main.verb.plural == side.verb.plural:
            return None
        de = f"{main.de_main()}, während {side.de_final()}"
        return make_pair(de, f"{main.en_main()}, while {side.en_main()}", [main, side])

    def relative(self) -> Pair | None:
        """A subject with a relative clause."""
        clause = self.clause(self.rng.choice(VERBS), is_short=True, has_place=False)
        if clause is None or clause.subject.is_group or len(clause.subject.phrases) > 1:
            return None
        described = self.description(clause.subject, clause, is_calm=clause.verb.is_calm)
        if described is None:
            return None
        clause = replace(clause, subject=replace(clause.subject, relative=described))
        return make_pair(clause.de_main(), clause.en_main(), [clause])

    def described_object(self) -> Pair | None:
        """A living object with a relative clause at the end of the sentence."""
        verbs = [verb for verb in OBJECT_VERBS if set(expand(verb.obj)) & set(PLACES_OF)]
        clause = self.clause(self.rng.choice(verbs), is_short=True, has_place=False)
        if clause is None or clause.obj is None or clause.obj.noun.group not in PLACES_OF:
            return None
        head = Subject((clause.obj,), is_human=clause.obj.noun.group in HUMANS)
        described = self.description(head, clause, is_calm=True)
        if described is None:
            return None
        de = f"{clause.de_main()}, {described.de_relative()}"
        return make_pair(de, words(clause.en_main(), described.en_relative()), [clause, described])

    def doing_both(self) -> Pair | None:
        """One subject that sits or stands somewhere and does something small there."""
        posture = self.clause(self.rng.choice(POSTURES[:2]), has_place=True)
        if posture is None:
            return None
        calm = [verb for verb in VERBS if verb.is_calm and is_done_at(posture.place_kind, verb)]
        second = (
            self.clause(self.rng.choice(calm), subject=posture.subject, has_place=False) if calm else None
        )
        if second is None:
            return None
        de = f"{posture.de_main()} und {second.de_predicate()}"
        return make_pair(de, f"{posture.en_main()} and {second.en_predicate()}", [posture, second])

    def attempt(self) -> Pair | None:
        """A subject that tries to do something."""
        verb = self.rng.choice([verb for verb in VERBS if verb.can_be_tried])
        clause = self.clause(verb, has_place=False)
        if clause is None:
            return None
        subject = clause.subject
        tries = "versuchen" if subject.takes_plural_verb else "versucht"
        de = f"{words(subject.de(), tries)}, {clause.de_infinitive()}"
        return make_pair(
            de, words(subject.en(), subject.en_be(), "trying to", clause.en_infinitive()), [clause]
        )

    def description(self, subject: Subject, main: Clause, *, is_calm: bool) -> Clause | None:
        """A relative clause on a subject: what it wears, or where it is while it keeps still.

        None if it does not go with the main clause.
        """
        if subject.is_human and (not is_calm or self.chance(0.5)):
            is_like = main.verb.plural == WEAR.plural or (
                main.obj is not None and main.obj.noun.group in CLOTHES
            )
            return None if is_like else self.clause(WEAR, subject=subject, has_place=False)
        postures = POSTURES[:2] if subject.is_human else POSTURES
        clause = self.clause(self.rng.choice(postures), subject=subject, has_place=True) if is_calm else None
        return clause if clause is not None and is_done_at(clause.place_kind, main.verb) else None

    def clause(
        self,
        verb: Verb,
        *,
        subject: Subject | None = None,
        has_place: bool | None = None,
        is_short: bool = False,
    ) -> Clause | None:
        """A clause with a verb, or None where nothing fits; `has_place=None` leaves the place to chance."""
        if has_place is None:
            has_place = bool(verb.at) and (verb.needs_place or self.chance(0.75 if not verb.obj else 0.4))
        if has_place < verb.needs_place or (subject and not is_able(subject, verb)):
            return None
        subject = subject or self.subject(verb, is_short=is_short)
        recipient = self.simple_phrase(nouns_named(verb.recipient)) if verb.recipient else None
        obj = self.object(verb, subject) if verb.obj else None
        kind = self.place_kind(verb, subject) if has_place else None
        if (
            (verb.obj and obj is None)
            or (verb.recipient and recipient is None)
            or (has_place and kind is None)
        ):
            return None
        place = self.place(kind) if kind else None
        return Clause(subject, verb, obj, recipient, place, kind)

    def subject(self, verb: Verb, *, is_short: bool = False) -> Subject:
        """One or several who may do this."""
        nouns = self.unused(nouns_named(verb.by))
        noun = self.pick(nouns)
        is_human = noun.group in HUMANS
        if self.chance(0.08) and not is_short and len(nouns) > 1:
            others = [other for other in nouns if (other.group in HUMANS) == is_human and other != noun]
            partner = self.pick(others)
            phrases = tuple(self.described(item, "ein", clashes=verb.clashes) for item in (noun, partner))
            return Subject(phrases, is_human)
        if self.chance(0.05):
            return Subject(
                (self.described(noun, "", is_plural=True, clashes=verb.clashes),), is_human, is_group=True
            )
        determiner, is_plural = self.subject_determiner(is_plural_only=verb.is_plural_only)
        phrase = self.described(noun, determiner, is_plural=is_plural, clashes=verb.clashes)
        subject = Subject((phrase,), is_human)
        is_dressed = not is_short and noun.group in expand("people") and verb.obj == "" and self.chance(0.45)
        return self.dressed(subject) if is_dressed else subject

    def subject_determiner(self, *, is_plural_only: bool) -> tuple[str, bool]:
        """A determiner, and whether its noun is plural."""
        singular = [("ein", False)] * 9 + [("der", False)] * 3
        plural = [(word, True) for word in (*NUMERALS, *NUMERALS, *QUANTIFIERS, "", "der")]
        return self.rng.choice(plural if is_plural_only or self.chance(0.38) else singular)

    def dressed(self, subject: Subject) -> Subject:
        """The same with clothes, hair or a beard."""
        group = subject.head.noun.group
        choices = ["head", "head", "body", "hair"] + (["beard"] if group == "man" else [])
        choices += [] if group in MASCULINE or group == "kid" else ["dress"]
        noun = self.pick(self.unused(nouns_named(self.rng.choice(choices))))
        is_plural = subject.head.is_plural or noun.group == "hair"
        determiner = "" if is_plural else subject.head.determiner
        phrase = self.described(noun, determiner, is_plural=is_plural, always=True)
        return replace(
            subject, attribute=phrase, attribute_prep="in" if noun.group in {"body", "dress"} else "mit"
        )

    def object(self, verb: Verb, subject: Subject) -> NounPhrase | None:
        """What a verb is done to, in a number that goes with the subject's."""
        clashes = verb.clashes
        nouns = self.unused(nouns_named(verb.obj))
        if any(phrase.noun.group not in expand("female") for phrase in subject.phrases):
            nouns = [noun for noun in nouns if noun.group != "dress" or verb.en == "buy"]
        if not nouns:
            return None
        noun = self.pick(nouns)
        if verb.objects in {"bare", "plural"}:
            return self.described(noun, "", is_plural=verb.objects == "plural", clashes=clashes)
        if verb.objects == "the":
            return NounPhrase(noun, "der")
        if verb.objects == "each":
            determiner, is_plural = ("", True) if subject.is_many else ("ein", False)
        elif verb.objects == "one":
            determiner, is_plural = "ein", False
        else:
            determiner, is_plural = self.rng.choices(OBJECT_DETERMINERS, weights=(64, 12, 10, 9, 5))[0]
        return self.described(noun, determiner, is_plural=is_plural, clashes=clashes, always=verb == WEAR)

    def simple_phrase(self, nouns: Sequence[Noun]) -> NounPhrase:
        """A noun with an indefinite article or a numeral."""
        is_plural = self.chance(0.2)
        return NounPhrase(self.pick(self.unused(nouns)), "zwei" if is_plural else "ein", is_plural=is_plural)

    def place_kind(self, verb: Verb, subject: Subject) -> Place | None:
        """Where both the verb and all who do it may be."""
        wanted = set(expand(verb.at))
        for phrase in subject.phrases:
            wanted &= set(PLACES_OF[phrase.noun.group].split())
        places = [place for place in PLACES if wanted & set(place.groups) and place.noun.de not in self.used]
        return self.rng.choice(places) if places else None

    def place(self, kind: Place) -> NounPhrase:
        """The noun phrase of a place."""
        self.used.add(kind.noun.de)
        return (
            self.described(kind.noun, kind.article) if kind.article == "ein" else NounPhrase(kind.noun, "der")
        )

    def described(
        self, noun: Noun, determiner: str, *, is_plural: bool = False, clashes: str = "", always: bool = False
    ) -> NounPhrase:
        """A noun phrase, about half the time with an adjective."""
        adjectives = [word for word in ADJECTIVES.get(noun.group, ()) if word.stem not in clashes.split()]
        has_adjective = bool(adjectives) and (always or self.chance(0.45))
        return NounPhrase(noun, determiner, self.rng.choice(adjectives) if has_adjective else None, is_plural)

    def unused(self, nouns: Sequence[Noun]) -> list[Noun]:
        """Those that the sentence does not have yet."""
        return [noun for noun in nouns if noun.de not in self.used]

    def pick(self, nouns: Sequence[Noun]) -> Noun:
        """Choose a noun, which is then used."""
        noun = self.rng.choices(nouns, weights=[3 if noun.de in COMMON else 1 for noun in nouns])[0]
        self.used.add(noun.de)
        return noun

    def chance(self, probability: float) -> bool:
        """Whether something happens."""
        return self.rng.random() < probability


def is_able(subject: Subject, verb: Verb) -> bool:
    """Whether a subject that is already described may do this too."""
    if verb.is_plural_only and not subject.is_many:
        return False
    groups = expand(verb.by)
    clashes = verb.clashes.split()
    return all(
        (phrase.noun.group in groups or phrase.noun.de in groups)
        and (phrase.adjective is None or phrase.adjective.stem not in clashes)
        for phrase in subject.phrases
    )


def is_done_at(kind: Place | None, verb: Verb) -> bool:
    """Whether a place is one where the verb is done, or outdoors if it is done anywhere."""
    return kind is not None and bool(set(kind.groups) & set(expand(verb.at)))


def make_pair(de: str, en: str, clauses: Sequence[Clause]) -> Pair:
    """Finish both sentences."""
    combinations = frozenset(pair for clause in clauses for pair in clause.combinations())
    return Pair(sentence(de), sentence(en), combinations)
