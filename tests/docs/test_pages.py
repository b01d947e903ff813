"""What README.md and docs/ name is there: pages, commands with their options, configs."""

import doctest
import json
import re
import shlex
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main
from pages import FENCE, ROOT, blocks_in, read
from workspace import Workspace

from mt_cli.cli.app import app
from mt_cli.config.load import parse_config
from mt_cli.data.prepared import open_prepared

README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [README, *DOCS, ROOT / "CHANGELOG.md"]
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)[^)]*\)")
HEADING = re.compile(r"^#{1,6} +(?P<title>.+?) *$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def links_in(text: str) -> list[str]:
    """Targets of the links and pictures that point into the repository."""
    prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))
    targets = [match["target"] for match in LINK.finditer(prose)]
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors_in(text: str) -> list[str]:
    """What may follow the `#` of a link to this page: its headings, as Git hosts spell them."""
    titles = [match["title"] for match in HEADING.finditer(FENCE.sub("", text))]
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]


def commands_in(text: str) -> list[list[str]]:
    """The words of each simple command after a prompt in the fenced blocks of `text`."""
    blocks = [match["body"].replace("\\\n", " ") for match in FENCE.finditer(text)]
    found: list[list[str]] = []
    for line in re.findall(r"^\$ (.*)$", "".join(blocks), re.MULTILINE):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        found.append([])
        for word in lexer:
            if set(word) <= set("|&;()<>"):
                found.append([])
            else:
                found[-1].append(word)
    return [words for words in found if words]


each_page = pytest.mark.parametrize("page", PAGES, ids=name_of)
SHOWN = [words for page in PAGES for words in commands_in(read(page))]
COMMANDS = [words for words in SHOWN if words[:2] != ["docker", "build"]]
OURS = [words[words.index("mt-cli") + 1 :] for words in COMMANDS if "mt-cli" in words[:-1]]
OURS += [words[words.index("mt_cli") + 1 :] for words in COMMANDS if words[0] == "torchrun"]


@each_page
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in links_in(read(page)):
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        assert path.exists(), target
        assert not anchor or anchor in anchors_in(read(path)), target


def test_readme_leads_to_every_page() -> None:
    """The pages of the lab book are reached by way of its summary."""
    summary = ROOT / "docs" / "experiments.md"
    lab = {f"docs/{link.partition('#')[0]}" for link in links_in(read(summary))}
    assert sorted({name_of(page) for page in DOCS} - set(links_in(read(README))) - lab) == []


@pytest.mark.parametrize("args", OURS, ids=" ".join)
def test_shown_command_is_one_that_mt_cli_takes(args: list[str]) -> None:
    command = typer.main.get_command(app)
    while isinstance(command, typer.core.TyperGroup):
        name, *args = args
        if name.startswith("-"):  # parsing such a flag runs it: --install-completion installs
            assert name in {option for param in command.params for option in param.opts}
            return
        command = command.commands[name]
    command.make_context(command.name, args)


@each_page
def test_shown_configs_can_be_used_and_named_files_are_there(page: Path) -> None:
    for block in blocks_in(read(page), "toml"):
        parse_config(tomllib.loads(block))
    for block in blocks_in(read(page), "json"):
        json.loads(block)
    named = re.findall(r"\b(?:configs/[\w./-]+\.toml|scripts/\w+(?:\.\w+)?)", read(page))
    assert sorted(name for name in named if not (ROOT / name).is_file()) == []


NUMBER = re.compile(r"-?\d+(\.\d+)?")


class AnyNumber(doctest.OutputChecker):
    """Takes output with other numbers, as another training prints them."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(NUMBER.sub("#", want), NUMBER.sub("#", got), optionflags)


@pytest.fixture
def sample_run(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny run under the name that the pages use, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    return workspace.copy_run(tmp_path / "runs" / "sample")


@pytest.mark.usefixtures("sample_run")
def test_examples_in_python_print_what_the_page_shows(workspace: Workspace) -> None:
    shutil.copy(workspace.corpus("val.de"), "german.txt")
    shutil.copy(workspace.corpus("val.en"), "english.txt")
    blocks = blocks_in(read(ROOT / "docs" / "python.md"), "python")
    assert [block for block in blocks if ">>> " not in block] == []
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "python.md", None, 0)
    reports: list[str] = []
    doctest.DocTestRunner(checker=AnyNumber(), verbose=False).run(examples, out=reports.append)
    assert "\n".join(reports) == ""
    assert len(examples.examples) > 8


@pytest.mark.usefixtures("sample_run")
def test_the_reader_of_prepared_data_reads_what_training_does(workspace: Workspace) -> None:
    (block,) = blocks_in(read(ROOT / "docs" / "large-corpora.md"), "python")
    assert block.count("\n") <= 15
    names: dict[str, Any] = {}
    exec(block, names)
    split = open_prepared(workspace.prepared).split("train")
    shutil.copytree(workspace.folder / "corpus", "corpus")
    for flags in (["--shard", "1/2"], ["--shard", "2/2"], ["--join"]):
        path = workspace.folder / "tiny.toml"
        assert workspace.call("prepare", path, *flags, cwd=Path.cwd()).code == 0
    for folder in (workspace.prepared, "data/prepared/tiny"):
        pairs = list(names["read_pairs"](folder))
        assert [src.tolist() for src, _ in pairs] == [
            split.src[i].tolist() for i in range(len(split))
        ]
        assert [tgt.tolist() for _, tgt in pairs] == [
            split.tgt[i].tolist() for i in range(len(split))
        ]
