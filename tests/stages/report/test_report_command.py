"""The `report` command: what its page and its JSON say, against the run's files and the other commands."""

import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from workspace import Outcome, Workspace

from mt_cli.artefacts.json_files import sealed
from mt_cli.stages.report.examples import rank, spread
from mt_cli.stages.report.gather import gather_findings
from mt_cli.stages.report.page import render_page

LARGEST_PAGE = 3_000_000


@pytest.fixture(scope="module")
def pair(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The run as it is, and another of the same data whose best checkpoint is its first."""
    folder = tmp_path_factory.mktemp("pair")
    one, other = workspace.copy_run(folder / "one"), workspace.copy_run(folder / "other")
    earliest = sorted(path.name for path in other.glob("checkpoints/step-*"))[0]
    other.joinpath("best.txt").write_text(f"{earliest}\n")
    for run, threads in ((one, 1), (other, 99)):
        environment = json.loads(run.joinpath("env.json").read_bytes())
        run.joinpath("env.json").write_text(json.dumps(sealed({**environment, "threads": threads})))
    return one, other


@pytest.fixture(scope="module")
def made(workspace: Workspace, pair: tuple[Path, Path]) -> tuple[dict[str, Any], str]:
    """What `report --json` prints of one run, and the page."""
    page = pair[0].parent / "one.html"
    outcome = report(workspace, pair[0], "--json", output=page)
    return json.loads(outcome.out), page.read_text(encoding="utf-8")


def report(workspace: Workspace, *args: object, output: Path) -> Outcome:
    outcome = workspace.call("report", *args, "-o", output)
    assert outcome.code == 0, outcome.err
    return outcome


class Text(HTMLParser):
    """The text of a page that people see."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self.feed(page.partition("<body>")[2])

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)

    def __str__(self) -> str:
        return " ".join(" ".join(self.pieces).split())


def test_path_is_printed_and_the_page_is_there(workspace: Workspace, tmp_path: Path) -> None:
    page = tmp_path / "new" / "page.html"
    outcome = report(workspace, workspace.copy_run(tmp_path / "run"), "--examples", 0, output=page)
    assert outcome.lines == [str(page)]
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_scores_are_those_of_evaluate(
    workspace: Workspace, pair: tuple[Path, Path], made: tuple[dict[str, Any], str]
) -> None:
    evaluated = json.loads(workspace.call("evaluate", pair[0], "--json").out)["splits"]["test"]
    (scores,) = made[0]["test_sets"]["test"]["scores"]
    assert {key: scores[key] for key in ("bleu", "chrf", "ter")} == {
        key: evaluated[key] for key in ("bleu", "chrf", "ter")
    }
    text = str(Text(made[1]))
    for metric in (scores["bleu"], scores["chrf"], scores["ter"]):
        assert f"{metric['score']:.2f} ± {metric['confidence_var']:.2f}" in text
        assert metric["confidence_signature"] in text


def test_kept_translations_are_not_made_again(workspace: Workspace, pair: tuple[Path, Path]) -> None:
    outcome = report(workspace, pair[0], "--examples", 0, output=pair[0].parent / "again.html")
    assert "as kept in" in outcome.err
    assert "translates" not in outcome.err


def test_examples_go_from_the_worst_to_the_best(made: tuple[dict[str, Any], str]) -> None:
    examples = made[0]["test_sets"]["test"]["examples"]
    chrf = [each["translations"][0]["chrf"] for each in examples]
    assert len(examples) == 20  # all there are
    assert chrf == sorted(made[0]["test_sets"]["test"]["sentence_chrf"][0])
    assert [each["rank"] for each in examples] == list(range(1, 21))


def test_example_is_the_line_that_it_names(workspace: Workspace, made: tuple[dict[str, Any], str]) -> None:
    sources = workspace.corpus("test.de").read_text(encoding="utf-8").splitlines()
    refs = workspace.corpus("test.en").read_text(encoding="utf-8").splitlines()
    for each in made[0]["test_sets"]["test"]["examples"]:
        assert (each["source"], each["reference"]) == (sources[each["line"] - 1], refs[each["line"] - 1])


def test_attention_map_is_that_of_inspect(
    workspace: Workspace, pair: tuple[Path, Path], made: tuple[dict[str, Any], str], tmp_path: Path
) -> None:
    example = made[0]["test_sets"]["test"]["examples"][-1]
    file = tmp_path / "map.json"
    outcome = workspace.call("inspect", pair[0], "--text", example["source"], "--attention", file)
    assert outcome.code == 0, outcome.err
    (drawn,) = json.loads(file.read_bytes())["maps"]
    ours = example["translations"][0]["attention"]
    assert (ours["rows"], ours["columns"]) == (drawn["rows"], drawn["columns"])
    assert [weight for row in ours["weights"] for weight in row] == pytest.approx(
        [weight for row in drawn["weights"] for weight in row], abs=2e-3
    )


def test_every_kind_of_sentence_is_counted_once(made: tuple[dict[str, Any], str]) -> None:
    found = made[0]["test_sets"]["test"]
    for kinds in (found["by_length"], found["by_unseen_words"]):
        assert sum(each["n"] for each in kinds) == 20


def test_settings_are_those_that_the_config_changes(made: tuple[dict[str, Any], str]) -> None:
    settings = made[0]["runs"][0]["settings"]
    assert (settings["model.d_model"], settings["runtime.seed"]) == (64, 4)  # workspace.CONFIG
    assert "model.norm" not in settings  # at its default
    assert "norm = &quot;pre&quot;" in made[1]  # in the whole config


def test_page_says_versions_and_hashes(pair: tuple[Path, Path], made: tuple[dict[str, Any], str]) -> None:
    manifest = json.loads(pair[0].joinpath("manifest.json").read_bytes())
    environment = json.loads(pair[0].joinpath("env.json").read_bytes())
    text = str(Text(made[1]))
    digests = [*manifest["sha256"].values(), manifest["prepared"]["sha256"]]
    assert [digest for digest in digests if digest not in text] == []
    assert f"torch {environment['torch']}" in text


def test_the_same_findings_make_the_same_page(workspace: Workspace, pair: tuple[Path, Path]) -> None:
    findings = gather_findings(
        [pair[0]], num_examples=3, data_dir=workspace.prepared, device="cpu", threads=1
    )
    assert render_page(findings) == render_page(findings)


# Two runs


@pytest.fixture(scope="module")
def both(workspace: Workspace, pair: tuple[Path, Path]) -> tuple[dict[str, Any], str]:
    page = pair[0].parent / "both.html"
    outcome = report(workspace, *pair, "--json", "--examples", 6, output=page)
    return json.loads(outcome.out), page.read_text(encoding="utf-8")


def test_verdict_is_that_of_compare(
    workspace: Workspace, pair: tuple[Path, Path], both: tuple[dict[str, Any], str]
) -> None:
    compared = json.loads(workspace.call("compare", *pair, "--json").out)["splits"]["test"]["systems"][0]
    (ours,) = both[0]["test_sets"]["test"]["comparison"]["systems"]
    assert ours["tests"] == compared["tests"]
    assert ours["outcome"] == compared["outcome"]
    assert ours["verdict"] in str(Text(both[1]))


def test_two_runs_are_ranked_by_what_the_second_gains(both: tuple[dict[str, Any], str]) -> None:
    first, second = both[0]["test_sets"]["test"]["sentence_chrf"]
    gains = sorted(b - a for a, b in zip(first, second, strict=True))
    examples = both[0]["test_sets"]["test"]["examples"]
    found = [each["translations"][1]["chrf"] - each["translations"][0]["chrf"] for each in examples]
    assert found == pytest.approx([*gains[:2], gains[9], gains[10], *gains[-2:]])


def test_only_values_that_differ_are_marked(both: tuple[dict[str, Any], str]) -> None:
    assert re.findall("<mark>(.*?)</mark>", both[1]) == ["1", "99"]  # `pair`


# What may go wrong


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["runs/tiny", "-o", "page.pdf"],
            "page.pdf: a report is a page; name a file that ends in .html or .htm",
        ),
        (["runs/tiny", "runs/tiny", "-o", "p.html"], "runs/tiny: named twice; name two runs, or one"),
        (["runs/tiny"] * 3 + ["-o", "p.html"], "a report shows one run, or two side by side; found 3"),
        (
            ["runs/tiny", "-o", "p.html", "--split", "dev"],
            "unknown split 'dev'; the run has train, val, test",
        ),
    ],
    ids=["ending", "twice", "three", "split"],
)
def test_wrong_use_is_explained_and_exits_2(workspace: Workspace, args: list[str], message: str) -> None:
    outcome = workspace.call("report", *args)
    assert (outcome.code, outcome.out) == (2, b"")
    assert outcome.err.startswith(f"error: {message}")


def test_folder_in_the_place_of_the_page_is_refused_at_once(workspace: Workspace, tmp_path: Path) -> None:
    tmp_path.joinpath("page.html").mkdir()
    outcome = workspace.call("report", workspace.run, "-o", tmp_path / "page.html")
    assert (outcome.code, outcome.out) == (2, b"")
    assert "is a folder; name a file in it" in outcome.err


def test_what_is_not_there_is_said(workspace: Workspace, tmp_path: Path) -> None:
    run = workspace.copy_run(tmp_path / "run")
    assert workspace.call("evaluate", run).code == 0
    for name in ("metrics.jsonl", "env.json", "status.json"):
        run.joinpath(name).unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    page = tmp_path / "page.html"
    outcome = workspace.call("report", run, "-o", page, "--examples", 0, cwd=elsewhere)
    assert outcome.code == 0, outcome.err
    text = str(Text(page.read_text(encoding="utf-8")))
    assert "no curves: " in text
    assert "there is no env.json" in text
    assert "the prepared data are not here" in text


HOSTILE = (
    '</dd><script>document.title="broken"</script><img src=http://example.invalid/x> \u202eevil\u2066 \x07'
)


def test_hostile_text_stays_text(workspace: Workspace, tmp_path: Path) -> None:
    run = workspace.copy_run(tmp_path / "<b>run")
    assert workspace.call("evaluate", run).code == 0
    environment = json.loads(run.joinpath("env.json").read_bytes())
    run.joinpath("env.json").write_text(json.dumps(sealed({**environment, "gpu": HOSTILE})))
    page = tmp_path / "page.html"
    report(workspace, run, "--examples", 1, output=page)
    content = page.read_text(encoding="utf-8")
    assert content.count("<script") == 1
    assert "<img" not in content
    assert "<b>run" not in content
    assert "\u202e" not in content
    assert "[U+202E]evil[U+2066] [U+0007]" in str(Text(content))


def test_line_that_the_model_takes_in_parts_has_no_map(workspace: Workspace, tmp_path: Path) -> None:
    run = workspace.copy_run(tmp_path / "run")
    findings = gather_findings(
        [run], splits=["val"], num_examples=30, device="cpu", threads=1, data_dir=workspace.prepared
    )
    renderings = [each.renderings[0] for group in findings.test_sets[0].groups for each in group.examples]
    assert [bool(each.no_attention) for each in renderings].count(True) == 1  # `workspace` has one such line


def test_page_of_many_long_sentences_can_still_be_sent(workspace: Workspace, pair: tuple[Path, Path]) -> None:
    findings = gather_findings(
        [pair[0]], num_examples=3, data_dir=workspace.prepared, device="cpu", threads=1
    )
    (test_set,) = findings.test_sets
    example = test_set.groups[0].examples[0]
    (rendering,) = example.renderings
    assert rendering.attention is not None
    tokens = tuple(f"token{i}" for i in range(120))
    weights = tuple(tuple(1 / 120 for _ in tokens) for _ in tokens)
    wide = replace(
        rendering, attention=replace(rendering.attention, rows=tokens, columns=tokens, weights=weights)
    )
    group = replace(test_set.groups[0], examples=(replace(example, renderings=(wide,)),) * 100)
    page = render_page(replace(findings, test_sets=(replace(test_set, groups=(group,)),)))
    assert len(page.encode()) < LARGEST_PAGE
    assert page.count("the page would become too large") > 0
    assert page.count('<details class="map"') > 3


@pytest.mark.parametrize(
    ("n", "wanted", "ranks"),
    [
        (10, 0, []),
        (10, 1, [0]),
        (10, 2, [0, 9]),
        (10, 3, [0, 4, 9]),
        (9, 6, [0, 1, 3, 4, 7, 8]),
        (4, 30, [0, 1, 2, 3]),
        (0, 5, []),
    ],
)
def test_examples_are_from_both_ends_and_the_middle(n: int, wanted: int, ranks: list[int]) -> None:
    assert [place for part in spread(n, wanted) for place in part] == ranks


def test_equals_keep_their_order() -> None:
    assert rank([2.0, 1.0, 2.0, 1.0]) == [1, 3, 0, 2]


def test_policy_permits_the_page_its_own_script_alone(made: tuple[dict[str, Any], str]) -> None:
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', made[1])
    assert policy.startswith("default-src &#x27;none&#x27;; ")
    assert "unsafe" not in policy
    assert " style=" not in made[1]
    assert not re.search(r"\son\w+=", made[1].partition("<body>")[2].partition("<script>")[0])


def test_read_only_run_is_reported_too(workspace: Workspace, tmp_path: Path) -> None:
    run = workspace.copy_run(tmp_path / "run")
    shutil.rmtree(run / "eval", ignore_errors=True)
    run.joinpath("eval").write_text("in the way")
    outcome = report(workspace, run, "--examples", 0, output=tmp_path / "page.html")
    assert "only printed, not kept" in outcome.err
