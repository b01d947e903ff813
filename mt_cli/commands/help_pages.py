"""The ends of the help pages: examples, what a verb prints, its exit codes, and where to read on.

Knows words alone; `program` puts them on the page.
"""

from collections.abc import Mapping
from dataclasses import dataclass

EXIT_CODES = {
    0: "done",
    1: "a bug",
    2: "wrong use or config",
    3: "bad data or a damaged file",
    4: "training diverged",
    5: "lack of memory, disk, network or device",
    6: "a check failed",
    129: "the terminal closed (SIGHUP); training is saved",
    130: "Ctrl-C",
    141: "the reader closed the pipe",
    143: "SIGTERM",
}
"""What each exit code means, for every verb."""


@dataclass(frozen=True)
class HelpPage:
    """What stands below the options of a help page."""

    examples: tuple[str, ...]
    """Commands without `mt-cli`, each on a line."""
    prints: str
    """What comes to stdout; lines of at most 76 letters."""
    exit_codes: tuple[int, ...]
    """Beside 0, 1, 2, 130, 141 and 143, which every verb has."""
    docs: str
    """The page and heading of the documentation that says more."""

    def __str__(self) -> str:
        codes = sorted({0, 1, 2, 130, 141, 143, *self.exit_codes})
        return "\n".join(
            [
                "Examples:",
                *(f"  mt-cli {example}" for example in self.examples),
                "",
                "Prints:",
                *(f"  {line}" for line in self.prints.split("\n")),
                "",
                "Exit codes:",
                *(f"  {code:>3}  {EXIT_CODES[code]}" for code in codes),
                "",
                "Docs:",
                f"  {self.docs}",
            ]
        )


PAGES: Mapping[str, HelpPage] = {
    "": HelpPage(
        (
            "prepare configs/sample.toml",
            "train configs/sample.toml",
            "evaluate runs/sample",
            "translate runs/sample --text 'Ein Hund bellt.'",
        ),
        "The result on stdout, everything else on stderr; mt-cli COMMAND --help\nsays more.",
        (3, 4, 5, 6),
        "README.md",
    ),
    "prepare": HelpPage(
        ("prepare configs/sample.toml", "prepare configs/multi30k-tiny.toml --from downloads"),
        "The prepared folder's path; with --json, the report on the corpus too.",
        (3, 5),
        "docs/commands.md#prepare",
    ),
    "train": HelpPage(
        (
            "train configs/sample.toml",
            "train configs/sample.toml --run runs/big --set model.d_model=512",
            "train configs/sample.toml --resume --time-limit 10m",
        ),
        "The run folder's path; with --json, how training ended too.",
        (3, 4, 5, 129),
        "docs/commands.md#train",
    ),
    "evaluate": HelpPage(
        ("evaluate runs/sample", "evaluate runs/sample --src german.txt --ref english.txt --beam-size 5"),
        "A line for each split and metric: the score and sacreBLEU's signature.",
        (3, 5),
        "docs/commands.md#evaluate",
    ),
    "translate": HelpPage(
        (
            "translate runs/sample --text 'Ein Hund bellt.'",
            "translate runs/sample -i german.txt -o english.txt",
            "translate runs/sample < german.txt --n-best 3 --beam-size 5",
        ),
        "One line for each line, in order (N of them with --n-best N).\n"
        "Without -i and --text, lines are read from stdin; Ctrl-D ends them.",
        (3, 5),
        "docs/commands.md#translate",
    ),
    "plot": HelpPage(
        ("plot runs/sample -o curves.png", "plot runs/one runs/two -o curves.svg"),
        "The picture's path; with --json, the curves too.",
        (3, 5),
        "docs/commands.md#plot",
    ),
    "compare": HelpPage(
        (
            "compare runs/one runs/two --split test",
            "compare old.en new.en --ref english.txt --src german.txt",
        ),
        "A verdict, the p-values of each metric, wins and losses, and the sentences\nthat changed most.",
        (3, 5),
        "docs/commands.md#compare",
    ),
    "report": HelpPage(
        ("report runs/sample -o report.html", "report runs/one runs/two -o report.html --examples 60"),
        "The page's path; with --json, all that the page shows too.",
        (3, 5),
        "docs/commands.md#report",
    ),
    "score": HelpPage(
        ("score runs/sample --src german.txt --tgt english.txt --normalise",),
        "One log-probability (natural logarithm) for each pair, in order.",
        (3, 5),
        "docs/commands.md#score",
    ),
    "config": HelpPage(
        (
            "config new --train corpus.es corpus.en -o mine.toml",
            "config show sample --set model.d_model=64",
            "config check mine.toml",
            "config diff sample mine.toml",
        ),
        "Depends on the command; see mt-cli config COMMAND --help.",
        (3, 5),
        "docs/commands.md#config",
    ),
    "config new": HelpPage(
        (
            "config new --train corpus.es corpus.en -o mine.toml",
            "config new --train a.de a.en --val b.de b.en -o mine.toml",
        ),
        "The new file's path, or without -o the config itself.",
        (3, 5),
        "docs/own-corpus.md",
    ),
    "config show": HelpPage(
        ("config show sample", "config show runs/sample --set decoding.beam_size=5"),
        "The whole config as TOML, defaults too.",
        (5,),
        "docs/config.md",
    ),
    "config check": HelpPage(
        ("config check mine.toml", "config check configs/*.toml"),
        "For each config: what is wrong, what will probably not work, or good.",
        (5,),
        "docs/own-corpus.md#check-it-before-you-train",
    ),
    "config diff": HelpPage(
        ("config diff multi30k multi30k-tiny",),
        "A line for each key that differs; nothing if none does.",
        (5,),
        "docs/commands.md#config",
    ),
    "inspect": HelpPage(
        (
            "inspect runs/sample",
            "inspect runs/sample --shapes --level layer",
            "inspect runs/sample --attention maps.png --head all",
        ),
        "What is in the run; with --shapes the tensors' shapes, with --attention -\nthe map.",
        (3, 5),
        "docs/commands.md#inspect",
    ),
    "doctor": HelpPage(
        ("doctor runs/sample", "doctor runs/sample --slow"),
        "A line for each check: pass or FAIL, the difference seen and that allowed.",
        (3, 5, 6),
        "docs/commands.md#doctor",
    ),
    "export": HelpPage(
        ("export runs/sample exported --to ctranslate2 --quantization int8",),
        "The new folder, then the scores, speeds and identical lines of both.",
        (3, 5, 6),
        "docs/commands.md#export",
    ),
}
"""By verb, such as `config new`; the program's own page has no name."""
