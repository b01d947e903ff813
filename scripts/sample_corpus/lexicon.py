"""The words of the sample corpus: nouns, adjectives, verbs and places, with what may go with what.

Knows meanings and inflection classes, but no endings and no word order; those are in `grammar`.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal

Gender = Literal["m", "f", "n"]
Case = Literal["nom", "acc", "dat"]
GENDERS: dict[str, Gender] = {"der": "m", "die": "f", "das": "n"}


@dataclass(frozen=True)
class Noun:
    """A German noun and its English word."""

    de: str
    de_plural: str
    gender: Gender
    en: str
    en_plural: str
    group: str
    is_weak: bool = False
    """Takes the plural form in every singular case but the nominative ("ein Junge", "einen Jungen")."""
    takes_en_article: bool = True
    """False where English has no singular count noun ("eine Hose": "pants")."""


@dataclass(frozen=True)
class Adjective:
    """A German stem without its ending, and the English word."""

    stem: str
    en: str


@dataclass(frozen=True)
class Place:
    """Where something happens: a preposition with the dative."""

    prep: str
    article: Literal["ein", "der"]
    noun: Noun
    en_prep: str
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Verb:
    """A verb with its frame. Groups, nouns and places are named in one string, separated by spaces."""

    singular: str
    plural: str
    en: str
    """English base form, with the preposition it takes: "wait for"."""
    by: str
    """Groups of nouns that may be the subject."""
    obj: str = ""
    """Groups (lower case) or nouns that may be the object; empty: no object."""
    case: Case = "acc"
    prep: str = ""
    """German preposition before the object."""
    objects: Literal["any", "each", "one", "the", "bare", "plural"] = "any"
    """each: plural subjects take plural objects; bare: no article; one, the: always "ein", "der"."""
    recipient: str = ""
    """Groups of an indirect object in the dative, before the object."""
    en_to: str = ""
    """English preposition of the recipient, which then follows the object."""
    at: str = ""
    """Groups of places."""
    needs_place: bool = False
    particle: str = ""
    """Separable prefix."""
    is_reflexive: bool = False
    is_plural_only: bool = False
    is_calm: bool = False
    """Can be done while sitting or standing."""
    can_be_tried: bool = False
    clashes: str = ""
    """Stems of adjectives that contradict the verb, on its subject or its object."""


ALIASES = {
    "adult": "man woman",
    "child": "boy girl kid",
    "female": "woman girl",
    "people": "man woman boy girl kid",
    "pet": "dog cat",
    "animal": "dog cat farm bird duck zoo",
    "outside": "meadow park town",
    "clothes": "body head",
}

NOUN_TABLE = """
man: der Mann, Männer = man, men; der Koch, Köche = chef; der Bauer*, Bauern = farmer
man: der Polizist*, Polizisten = policeman, policemen; der Musiker, Musiker = musician
man: der Arbeiter, Arbeiter = worker; der Lehrer, Lehrer = teacher; der Clown, Clowns = clown
man: der Tourist*, Touristen = tourist; der Student*, Studenten = student; der Soldat*, Soldaten = soldier
man: der Gärtner, Gärtner = gardener; der Kellner, Kellner = waiter; der Künstler, Künstler = artist
woman: die Frau, Frauen = woman, women; die Dame, Damen = lady; die Lehrerin, Lehrerinnen = teacher
woman: die Kellnerin, Kellnerinnen = waitress; die Sängerin, Sängerinnen = singer
woman: die Tänzerin, Tänzerinnen = dancer; die Ärztin, Ärztinnen = doctor
woman: die Künstlerin, Künstlerinnen = artist
boy: der Junge*, Jungen = boy; der Schüler, Schüler = pupil
girl: das Mädchen, Mädchen = girl; die Schülerin, Schülerinnen = pupil
kid: das Kind, Kinder = child, children
baby: das Baby, Babys = baby; das Kleinkind, Kleinkinder = toddler
dog: der Hund, Hunde = dog; der Welpe*, Welpen = puppy; der Pudel, Pudel = poodle
cat: die Katze, Katzen = cat; das Kätzchen, Kätzchen = kitten
farm: das Pferd, Pferde = horse; die Kuh, Kühe = cow; das Schaf, Schafe = sheep, sheep
farm: die Ziege, Ziegen = goat; der Esel, Esel = donkey; das Pony, Ponys = pony
bird: der Vogel, Vögel = bird; die Möwe, Möwen = seagull; die Taube, Tauben = pigeon
duck: die Ente, Enten = duck; die Gans, Gänse = goose, geese
zoo: der Affe*, Affen = monkey; der Elefant*, Elefanten = elephant; der Bär*, Bären = bear
mouse: die Maus, Mäuse = mouse, mice
body: die Jacke, Jacken = jacket; der Mantel, Mäntel = coat; das Hemd, Hemden = shirt
body: der Pullover, Pullover = sweater; die Hose, Hosen = ~pants, pants; der Anzug, Anzüge = suit
body: die Weste, Westen = vest; die Uniform, Uniformen = uniform; die Schürze, Schürzen = apron
dress: das Kleid, Kleider = dress; der Rock, Röcke = skirt; die Bluse, Blusen = blouse
head: der Hut, Hüte = hat; die Mütze, Mützen = cap; der Helm, Helme = helmet
head: der Schal, Schals = scarf, scarves
head: die Sonnenbrille, Sonnenbrillen = ~sunglasses, sunglasses; der Rucksack, Rucksäcke = backpack
hair: das Haar, Haare = ~hair, hair
beard: der Bart, Bärte = beard
text: das Buch, Bücher = book; die Zeitung, Zeitungen = newspaper; der Brief, Briefe = letter
text: die Zeitschrift, Zeitschriften = magazine; der Roman, Romane = novel
food: der Apfel, Äpfel = apple; die Banane, Bananen = banana; der Kuchen, Kuchen = cake
food: die Brezel, Brezeln = pretzel; die Pizza, Pizzas = pizza; die Orange, Orangen = orange
food: der Keks, Kekse = cookie; das Brötchen, Brötchen = roll; die Karotte, Karotten = carrot
hot: der Kaffee, - = ~coffee; der Tee, - = ~tea
cold: das Wasser, - = ~water; die Milch, - = ~milk; der Saft, - = ~juice; die Limonade, - = ~lemonade
fodder: das Gras, - = ~grass; das Heu, - = ~hay
meal: die Suppe, - = ~soup; der Reis, - = ~rice
dish: das Brot, - = ~bread; das Gemüse, - = ~vegetables; das Obst, - = ~fruit
music: die Gitarre, - = ~the guitar; die Geige, - = ~the violin; das Saxofon, - = ~the saxophone
music: die Trompete, - = ~the trumpet; die Flöte, - = ~the flute
sport: der Fußball, - = ~football; der Basketball, - = ~basketball; das Tennis, - = ~tennis
sport: das Schach, - = ~chess
toy: der Ball, Bälle = ball; der Ballon, Ballons = balloon; die Puppe, Puppen = doll
piece: der Stock, Stöcke = stick; der Stein, Steine = stone; der Schneeball, Schneebälle = snowball
show: das Schild, Schilder = sign; die Fahne, Fahnen = flag; die Blume, Blumen = flower
show: der Regenschirm, Regenschirme = umbrella
art: das Bild, Bilder = picture; das Plakat, Plakate = poster
load: der Korb, Körbe = basket; der Koffer, Koffer = suitcase; die Kiste, Kisten = box, boxes
load: die Tasche, Taschen = bag; der Eimer, Eimer = bucket; die Leiter, Leitern = ladder
load: der Stuhl, Stühle = chair; der Tisch, Tische = table
cycle: das Fahrrad, Fahrräder = bicycle; das Motorrad, Motorräder = motorcycle; der Roller, Roller = scooter
car: das Auto, Autos = car; der Bus, Busse = bus, buses; der Traktor, Traktoren = tractor
car: der Lastwagen, Lastwagen = truck; das Taxi, Taxis = taxi
cart: der Kinderwagen, Kinderwagen = stroller; der Schlitten, Schlitten = sled; der Karren, Karren = cart
house: das Haus, Häuser = house; die Kirche, Kirchen = church; der Turm, Türme = tower
house: die Brücke, Brücken = bridge; die Statue, Statuen = statue; der Laden, Läden = shop
house: das Restaurant, Restaurants = restaurant; das Zelt, Zelte = tent
built: die Sandburg, Sandburgen = sandcastle; der Schneemann, Schneemänner = snowman, snowmen
thing: der Baum, Bäume = tree; der Zaun, Zäune = fence; die Mauer, Mauern = wall
thing: der Felsen, Felsen = rock; die Bank, Bänke = bench; der Ast, Äste = branch
flat: die Decke, Decken = blanket; das Sofa, Sofas = sofa; die Wiese, Wiesen = meadow
flat: die Pfütze, Pfützen = puddle; der Bach, Bäche = stream; der Teich, Teiche = pond
part: die Tür, Türen = door; das Fenster, Fenster = window; das Dach, Dächer = roof
part: das Geschenk, Geschenke = gift
find: die Muschel, Muscheln = shell; der Pilz, Pilze = mushroom; das Blatt, Blätter = leaf, leaves
spot: der Park, - = park; der Garten, - = garden; der Strand, - = beach; der Wald, - = forest
spot: das Feld, - = field; der Schnee, - = snow; der Sand, - = sand; der Schatten, - = shade
spot: der Fluss, - = river; der See, - = lake; das Meer, - = sea; die Straße, - = street
spot: der Markt, - = market; der Bahnhof, - = train station; der Regen, - = rain; die Sonne, - = sun
spot: die Küche, - = kitchen; das Wohnzimmer, - = living room; die Bibliothek, - = library
spot: das Büro, - = office; der Zug, - = train; das Bett, - = bed; die Treppe, - = stairs
spot: die Bühne, - = stage; der Stall, - = barn; der Zoo, - = zoo; die Werkstatt, - = workshop
spot: der Spielplatz, - = playground; die Bushaltestelle, - = bus stop; die Stadt, - = city
"""

ADJECTIVE_TABLE = """
man woman: alt old, jung young, freundlich friendly, glücklich happy, müd tired, blond blond, elegant elegant
boy girl kid: klein small, fröhlich cheerful, müd tired, blond blond, neugierig curious, mutig brave
baby: klein small, müd tired, hungrig hungry, fröhlich cheerful
dog cat: klein small, schwarz black, weiß white, braun brown, nass wet, hungrig hungry, neugierig curious
farm: groß big, klein small, weiß white, braun brown, jung young, hungrig hungry, alt old
bird duck: groß big, klein small, weiß white, grau gray, hungrig hungry
zoo: groß big, jung young, müd tired, hungrig hungry, alt old
mouse: klein small, grau gray, weiß white
body: rot red, blau blue, grün green, schwarz black, weiß white, grau gray, gestreift striped, neu new
dress: rot red, blau blue, gelb yellow, weiß white, lang long, kurz short, schön beautiful
head: rot red, blau blue, grün green, gelb yellow, schwarz black, neu new, groß big
hair: lang long, kurz short, lockig curly
beard: lang long, kurz short, dicht thick
text: alt old, neu new, lang long, interessant interesting
food: groß big, klein small, frisch fresh, lecker delicious
hot: heiß hot, stark strong
cold: kalt cold, frisch fresh
fodder: frisch fresh, trocken dry
meal: heiß hot, lecker delicious
dish: frisch fresh, lecker delicious
toy: rot red, blau blue, gelb yellow, klein small, groß big, bunt colorful
piece: groß big, klein small, nass wet
show: bunt colorful, groß big, klein small, gelb yellow, weiß white
art: schön beautiful, groß big, klein small, bunt colorful, alt old
load: schwer heavy, groß big, klein small, alt old, braun brown
cycle: rot red, schwarz black, blau blue, neu new, alt old
car: rot red, gelb yellow, weiß white, grün green, neu new, alt old
cart: alt old, neu new, schwer heavy, klein small
house: alt old, klein small, groß big, schön beautiful, weiß white
built: groß big, klein small, schön beautiful
thing: groß big, alt old, klein small
flat: groß big, klein small
part: groß big, klein small, alt old
find: groß big, klein small, schön beautiful
"""

PLACE_TABLE = """
auf ein Bank = on: seat; auf der Treppe = on: seat; auf ein Mauer = on: seat perch
auf ein Felsen = on: seat perch; auf der Sofa = on: soft; auf ein Decke = on: soft; in der Bett = in: soft
in ein Kinderwagen = in: cot; auf ein Wiese = in: meadow run; auf der Feld = in: meadow run
unter ein Baum = under: meadow; hinter ein Zaun = behind: meadow; an der Fluss = by: meadow shore
an der See = by: meadow shore; in der Gras = in: meadow; in der Schatten = in: meadow
in der Schnee = in: snow run weather; in der Park = in: park run; in der Garten = in: park run
an der Strand = on: park run; in der Wald = in: park run; vor ein Haus = in front of: park town
in der Sand = in: park run; auf der Spielplatz = on: park; auf der Straße = on: town
auf der Markt = at: town; an der Bahnhof = at: town; vor ein Laden = in front of: town
an ein Bushaltestelle = at: town; vor ein Kirche = in front of: town; auf ein Brücke = on: town
neben ein Auto = next to: town; in der Regen = in: town weather; in der Sonne = in: park weather
in der Küche = in: room work kitchen; in der Wohnzimmer = in: room; in ein Restaurant = in: room
in der Bibliothek = in: room; in der Zug = on: room; an ein Tisch = at: room desk; an der Fenster = by: room
in der Büro = in: room work; in der Werkstatt = in: work; in der Garten = in: work; auf der Feld = in: work
in der Wasser = in: water; in der See = in: water; in der Meer = in: water; in ein Teich = in: water
auf der Bühne = on: stage; in der Stall = in: barn; in der Zoo = in: park zoo
hinter ein Baum = behind: hide; hinter ein Mauer = behind: hide; unter ein Tisch = under: hide
hinter ein Auto = behind: hide; auf ein Dach = on: perch; auf ein Zaun = on: perch; auf ein Ast = on: perch
unter ein Decke = under: hide
"""

PLACES_OF = {
    "man": "seat soft meadow park run snow town room work kitchen water stage barn shore hide desk",
    "woman": "seat soft meadow park run snow town room work kitchen water stage barn shore hide desk",
    "boy": "seat soft meadow park run snow town room kitchen water stage shore hide desk",
    "girl": "seat soft meadow park run snow town room kitchen water stage shore hide desk",
    "kid": "seat soft meadow park run snow town room kitchen water stage shore hide desk",
    "baby": "soft cot",
    "dog": "soft meadow park run snow town water hide",
    "cat": "soft seat meadow park run hide",
    "farm": "meadow run snow barn",
    "bird": "perch",
    "duck": "water meadow",
    "zoo": "meadow zoo",
}
"""Groups of places where each group of living nouns is found."""

TIMES = {
    "am Morgen": "in the morning",
    "am Abend": "in the evening",
    "am Nachmittag": "in the afternoon",
    "am Mittag": "at noon",
    "heute": "today",
    "an einem sonnigen Tag": "on a sunny day",
    "an einem kalten Tag": "on a cold day",
}

NUMERALS = {"zwei": "two", "drei": "three", "vier": "four", "fünf": "five"}
QUANTIFIERS = {"mehrere": "several", "viele": "many", "einige": "some"}


def parse_nouns(table: str) -> dict[str, Noun]:
    """Nouns by their German singular, from lines `group: der Singular, Plural = english, plural; …`."""
    nouns = {}
    for line in table.strip().splitlines():
        group, entries = line.split(": ", 1)
        for entry in entries.split("; "):
            noun = _parse_noun(entry, group)
            if noun.de in nouns:
                raise ValueError(f"noun {noun.de!r} is in the table twice")
            nouns[noun.de] = noun
    return nouns


def _parse_noun(entry: str, group: str) -> Noun:
    de, en = entry.split(" = ")
    head, de_plural = de.split(", ")
    article, singular = head.split(" ")
    en_singular, _, en_plural = en.lstrip("~").partition(", ")
    return Noun(
        de=singular.rstrip("*"),
        de_plural=de_plural,
        gender=GENDERS[article],
        en=en_singular,
        en_plural=en_plural or regular_plural(en_singular),
        group=group,
        is_weak=singular.endswith("*"),
        takes_en_article=not en.startswith("~"),
    )


def regular_plural(word: str) -> str:
    """English plural by rule: -s, -es after a hiss, -ies for a consonant and y."""
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def parse_adjectives(table: str) -> dict[str, tuple[Adjective, ...]]:
    """Adjectives by group of nouns, from lines `groups: stem english, …`."""
    adjectives = {}
    for line in table.strip().splitlines():
        groups, entries = line.split(": ")
        words = tuple(Adjective(*entry.split(" ")) for entry in entries.split(", "))
        adjectives.update(dict.fromkeys(groups.split(), words))
    return adjectives


def parse_places(table: str) -> tuple[Place, ...]:
    """Places from entries `preposition ein|der Noun = english preposition: groups`."""
    places = []
    for entry in table.strip().replace("\n", "; ").split("; "):
        de, en = entry.split(" = ")
        prep, article, noun = de.split(" ")
        en_prep, groups = en.split(": ")
        kind: Literal["ein", "der"] = "ein" if article == "ein" else "der"
        places.append(Place(prep, kind, NOUNS[noun], en_prep, tuple(groups.split())))
    return tuple(places)


@cache
def expand(names: str) -> tuple[str, ...]:
    """Replace aliases of groups by the groups they stand for."""
    return tuple(part for name in names.split() for part in ALIASES.get(name, name).split())


@cache
def nouns_named(names: str) -> tuple[Noun, ...]:
    """Nouns that are named themselves or by a group, each once, in the order of the table."""
    wanted = expand(names)
    return tuple(noun for noun in NOUNS.values() if noun.de in wanted or noun.group in wanted)


NOUNS = parse_nouns(NOUN_TABLE)
ADJECTIVES = parse_adjectives(ADJECTIVE_TABLE)
PLACES = parse_places(PLACE_TABLE)
