"""Reranking: the choice among candidates, against every candidate scored by `mt-cli score`."""

import json
import math
from pathlib import Path

import pytest
from workspace import Workspace

from mt_cli.translation.lines import Translation
from mt_cli.translation.options import Reranking
from mt_cli.translation.scorer import PairScore, reranking_score
from mt_cli.translation.translator import Translator

BEAM = 4
ALPHA = 0.6
SEARCH = ("--beam-size", BEAM, "--length-penalty", ALPHA)


@pytest.fixture(scope="module")
def reverse(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from English to German, which is trained for a moment."""
    folder = tmp_path_factory.mktemp("reverse")
    text = (workspace.folder / "tiny.toml").read_text(encoding="utf-8")
    text = text.replace(".de", ".?").replace(".en", ".de").replace(".?", ".en")
    text = text.replace("[data]\n", '[data]\nsrc_lang = "en"\ntgt_lang = "de"\n')
    (folder / "reverse.toml").write_text(text, encoding="utf-8")
    (folder / "corpus").symlink_to(workspace.folder / "corpus")
    for command in (["prepare"], ["train", "--max-steps", 40]):
        outcome = workspace.call(command[0], "reverse.toml", *command[1:], "--quiet", cwd=folder)
        assert outcome.code == 0, outcome.err
    return folder / "runs" / "reverse"


def best_by_brute_force(
    workspace: Workspace, reverse: Path, folder: Path, *, weights: tuple[float, float]
) -> list[str]:
    """Of each line's n-best list, the candidate with the best sum of both directions."""
    sources = workspace.corpus("test.de").read_text(encoding="utf-8").splitlines()
    translator = Translator.load(workspace.run, beam_size=BEAM, length_penalty=ALPHA)
    n_best = translator.translate_n_best(sources, n_best=BEAM)
    src, tgt = folder / "src", folder / "tgt"
    src.write_text("".join(f"{line}\n" * BEAM for line in sources), encoding="utf-8")
    tgt.write_text("".join(f"{one.text}\n" for each in n_best for one in each), encoding="utf-8")
    scored = workspace.call("score", reverse, "--src", tgt, "--tgt", src, "--json").lines
    backward = iter([json.loads(line)["log_prob"] for line in scored])
    best = []
    for candidates in n_best:
        totals = []
        for candidate in candidates:
            other, length = next(backward), len(candidate.tokens) + 1
            total = -math.inf  # impossible
            if other is not None:
                total = candidate.log_prob + weights[0] * other + weights[1] * length
            totals.append(total)
        best.append(candidates[totals.index(max(totals))].text)
    return best


@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.3, 2.5)])
def test_choice_is_that_of_brute_force(
    workspace: Workspace, reverse: Path, tmp_path: Path, weights: tuple[float, float]
) -> None:
    flags = ("--rerank-with", reverse, "--rerank-weights", ",".join(map(str, weights)))
    outcome = workspace.call("translate", "runs/tiny", "-i", "corpus/test.de", *SEARCH, *flags)
    assert outcome.code == 0, outcome.err
    assert outcome.lines == best_by_brute_force(workspace, reverse, tmp_path, weights=weights)


def test_one_line_for_each_line_whatever_it_holds(workspace: Workspace, reverse: Path) -> None:
    lines = ["Ein Hund.", "", "Ein Mann. " * 40, " \t", "Ein Hund."]
    stdin = "\n".join(lines).encode()
    command = ("translate", "runs/tiny", *SEARCH)
    outcome = workspace.call(*command, "--rerank-with", reverse, stdin=stdin)
    assert outcome.code == 0, outcome.err
    first, nothing, long, blank, last = outcome.lines
    assert first == last
    assert (nothing, blank) == ("", "")
    # A line in parts cannot be scored as a pair: the search's own choice stays, with one warning.
    plain = workspace.call(*command, stdin=stdin)
    assert long == plain.lines[2]
    assert outcome.err.count("warning") == plain.err.count("warning")


def test_evaluation_is_kept_apart_from_the_models_own(
    workspace: Workspace, reverse: Path, tmp_path: Path
) -> None:
    run = workspace.copy_run(tmp_path / "tiny")
    flags = ("--rerank-with", reverse, "--rerank-weights", "0.3,2.5")
    outcome = workspace.call("evaluate", run, *SEARCH, *flags, "--json")
    assert outcome.code == 0, outcome.err
    (folder,) = (run / "eval").glob("[!.]*")
    assert folder.name.startswith("test-beam4-")
    record = json.loads((folder / "scores.json").read_bytes())
    assert record["reranked_by"]["run"] == "reverse"
    assert record["reranked_by"]["weights"] == {"reverse": 0.3, "length": 2.5}
    assert "with" not in record
    translated = workspace.call("translate", run, "-i", "corpus/test.de", *SEARCH, *flags)
    assert (folder / "hyp.txt").read_text(encoding="utf-8") == translated.text
    assert "reranked" not in (run / "README.md").read_text(encoding="utf-8")


def test_score_weighs_both_directions_and_the_length() -> None:
    candidate = Translation("A dog.", -1.0, ("A", "dog", "."), log_prob=-3.0)
    half = Reranking(Path(), reverse=0.5, length=0.25)
    nothing = Reranking(Path(), reverse=0.0, length=0.0)
    assert reranking_score(candidate, PairScore(-5.0, 7), half) == -3.0 - 2.5 + 1.0
    assert reranking_score(candidate, PairScore(-math.inf, 1), nothing) == -math.inf
