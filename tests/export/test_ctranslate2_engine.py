"""`ExportedSearcher`: what CTranslate2 finds is what the run's own search finds, or says."""

from pathlib import Path
from typing import Any

import pytest
from workspace import Workspace

from mt_cli.decoding import Sampling
from mt_cli.errors import UsageError
from mt_cli.runs.run import open_run
from mt_cli.text import BOS_ID, PAD_ID, UNK_ID
from mt_cli.translation.scorer import PairScorer
from mt_cli.translation.translator import DecodingOptions, Translator

FORBIDDEN = (PAD_ID, BOS_ID, UNK_ID)
ODD_LINES = ["", "Ein Mann schläft. " * 20, "<s> 犬 $1 & <b>"]


@pytest.fixture(scope="module")
def lines(workspace: Workspace) -> list[str]:
    """Those that the model knows by heart, new ones, and odd ones."""
    return [*workspace.corpus("test.de").read_text(encoding="utf-8").splitlines(), *ODD_LINES]


@pytest.fixture(scope="module")
def known(workspace: Workspace) -> list[str]:
    """Lines that the model knows by heart, of which no search can doubt."""
    return workspace.corpus("train.de").read_text(encoding="utf-8").splitlines()[1:]


def load(folder: Path, **options: Any) -> Translator:  # noqa: ANN401
    return Translator.load(folder, device="cpu", threads=1, **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 1},
        {"batch_size": 3},
        {"no_repeat_ngram": 1},
        {"no_repeat_ngram": 2},
        {"min_len": 12},
        {"min_len": 500},
    ],
    ids=str,
)
def test_greedy_search_finds_what_the_run_finds(
    workspace: Workspace, exported: Path, lines: list[str], options: dict[str, Any]
) -> None:
    assert load(exported, **options).translate(lines) == load(workspace.run, **options).translate(
        lines
    )


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_beams_find_what_the_model_knows_by_heart(
    workspace: Workspace, exported: Path, known: list[str], length_penalty: float
) -> None:
    ours, theirs = (
        load(folder, beam_size=4, length_penalty=length_penalty)
        for folder in (workspace.run, exported)
    )
    assert theirs.translate(known) == ours.translate(known)


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("length_penalty", [0.0, 1.5])
def test_score_is_the_log_probability_over_our_length_penalty(
    workspace: Workspace, exported: Path, known: list[str], beam_size: int, length_penalty: float
) -> None:
    translator = load(exported, beam_size=beam_size, length_penalty=length_penalty)
    best = [each[0] for each in translator.translate_n_best(known)]
    scorer = PairScorer.of_runs([open_run(workspace.run)], DecodingOptions(device="cpu", threads=1))
    expected = [
        pair.log_prob / ((5 + pair.num_tokens) / 6) ** length_penalty
        for pair in scorer.score(known, [each.text for each in best])
    ]
    assert [each.score for each in best] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("length_penalty", [0.0, 2.0])
def test_n_best_are_so_many_and_ranked(
    exported: Path, lines: list[str], length_penalty: float
) -> None:
    translator = load(exported, beam_size=5, length_penalty=length_penalty)
    found = translator.translate_n_best(lines, n_best=4)
    assert {len(each) for each in found} == {4}
    scores = [[one.score for one in each] for each in found]
    assert scores == [sorted(each, reverse=True) for each in scores]
    assert [each[0].text for each in found] == translator.translate(lines)


def test_alignment_is_that_of_the_run(
    workspace: Workspace, exported: Path, lines: list[str]
) -> None:
    ours, theirs = (
        [each.alignment for (each,) in load(folder).translate_n_best(lines, with_alignment=True)]
        for folder in (workspace.run, exported)
    )
    assert theirs == ours
    assert len(set(ours)) > 5


def test_samples_depend_on_their_seed(exported: Path, lines: list[str]) -> None:
    hot = Sampling(temperature=3.0)
    first, again, other = (
        load(exported, sampling=hot, seed=seed).translate(lines) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_nobody_can_look_into_it(exported: Path) -> None:
    translator = load(exported)
    assert repr(translator) == f"<Translator of {exported}: greedy on cpu>"
    with pytest.raises(UsageError, match="an exported model only translates; name the run"):
        translator.attention("Ein Hund.")
    with pytest.raises(UsageError, match="an exported model only translates; name the run"):
        translator.teacher_force("Ein Hund.")
