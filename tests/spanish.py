"""A small Spanish-English corpus from a grammar of 100 lemmas; articles and adjectives agree."""

from pathlib import Path
from random import Random

NUM_PAIRS = 775
"""As many as the corpus that this tool once failed on without a warning."""

# Spanish and English, singular; -o is masculine, -a feminine.
PEOPLE = """
niño boy, niña girl, maestro teacher, cocinera cook, médico doctor, vecina neighbour, abuelo
grandfather, abuela grandmother, hermano brother, hermana sister, amigo friend, reina queen,
soldado soldier, pintora painter, marinero sailor, bailarina dancer, camarero waiter, enfermera
nurse, músico musician, prima cousin
"""
ANIMALS = """
gato cat, perro dog, vaca cow, caballo horse, oveja sheep, pato duck, gallina hen, lobo wolf, rana
frog, mono monkey, tortuga turtle, burro donkey
"""
THINGS = """
libro book, mesa table, silla chair, cuchillo knife, camisa shirt, sombrero hat, manzana apple,
queso cheese, carta letter, cuadro picture, guitarra guitar, barco boat, corona crown, vaso glass,
taza cup, zapato shoe, lámpara lamp, bolsa bag, anillo ring, pelota ball, regalo present, moneda
coin, espejo mirror, falda skirt
"""
PLACES = """
parque park, cocina kitchen, calle street, jardín garden, playa beach, escuela school, museo
museum, tienda shop, bosque forest, plaza square, río river, iglesia church, mercado market,
granja farm
"""
ADJECTIVES = """
rojo red, negro black, blanco white, viejo old, nuevo new, pequeño small, alto tall, bonito
pretty, caro expensive, barato cheap, limpio clean, sucio dirty, roto broken, amarillo yellow,
raro strange, tranquilo calm
"""
VERBS = """
ve sees, compra buys, vende sells, busca looks for, lleva carries, mira watches, pinta paints,
lava washes, pierde loses, encuentra finds, toca touches, quiere wants, necesita needs, tira
throws, guarda keeps, esconde hides
"""
TIMES = "hoy today, ayer yesterday, mañana tomorrow, siempre always, ahora now, nunca never"


def pairs(num_pairs: int = NUM_PAIRS, *, seed: int = 1) -> list[tuple[str, str]]:
    """Different sentences with their translations."""
    rng = Random(seed)
    found: dict[str, str] = {}
    while len(found) < num_pairs:
        spanish, english = _sentence(rng)
        found[spanish] = english
    return list(found.items())


def write(folder: Path, num_pairs: int = NUM_PAIRS) -> tuple[Path, Path]:
    """The corpus as two files that align by line."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "corpus.es", folder / "corpus.en"
    for path, side in zip(paths, zip(*pairs(num_pairs), strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    return paths


def _sentence(rng: Random) -> tuple[str, str]:
    subject, subject_en = _noun_phrase(rng, PEOPLE if rng.random() < 0.7 else ANIMALS)
    verb, verb_en = _draw(rng, VERBS)
    thing, thing_en = _noun_phrase(rng, THINGS)
    spanish, english = [subject, verb, thing], [subject_en, verb_en, thing_en]
    if rng.random() < 0.5:
        place, place_en = _draw(rng, PLACES)
        is_feminine = place.endswith("a") or place == "calle"
        spanish.append(f"en {'la' if is_feminine else 'el'} {place}")
        english.append(f"in the {place_en}")
    if rng.random() < 0.3:
        time, time_en = _draw(rng, TIMES)
        spanish.append(time)
        english.append(time_en)
    return _written(spanish), _written(english)


def _noun_phrase(rng: Random, nouns: str) -> tuple[str, str]:
    noun, noun_en = _draw(rng, nouns)
    is_feminine = noun.endswith("a")
    is_definite = rng.random() < 0.5
    article = {(True, True): "la", (True, False): "el", (False, True): "una", (False, False): "un"}[
        is_definite, is_feminine
    ]
    if rng.random() < 0.4:
        adjective, adjective_en = _draw(rng, ADJECTIVES)
        adjective = f"{adjective[:-1]}a" if is_feminine else adjective
        noun, noun_en = f"{noun} {adjective}", f"{adjective_en} {noun_en}"
    article_en = "the" if is_definite else "an" if noun_en[0] in "aeiou" else "a"
    return f"{article} {noun}", f"{article_en} {noun_en}"


def _draw(rng: Random, words: str) -> tuple[str, str]:
    spanish, english = rng.choice(words.split(",")).split(maxsplit=1)
    return spanish, english.strip()


def _written(parts: list[str]) -> str:
    text = " ".join(parts)
    return f"{text[0].upper()}{text[1:]}."
