"""`ExportedSearcher`: what CTranslate2 finds is what the run's own search finds, or says."""

from pathlib import Path
from typing import Unpack

import pytest
from workspace import Workspace

from mt_cli.artefacts.exported_run import open_exported_run
from mt_cli.config import DecodingConfig
from mt_cli.decoding.sampling import Sampling
from mt_cli.errors import ResourceError, UsageError
from mt_cli.text.symbols import BOS_ID, PAD_ID, UNK_ID
from mt_cli.translation.exported_searcher import BATCHES_AHEAD, ExportedSearcher
from mt_cli.translation.options import SearchOptions
from mt_cli.translation.pair_scorer import PairScorer
from mt_cli.translation.translator import Translator

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


def load(
    folder: Path, *, sampling: Sampling | None = None, seed: int = 1, **options: Unpack[SearchOptions]
) -> Translator:
    return Translator.load(folder, sampling=sampling, seed=seed, device="cpu", threads=1, **options)


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
    workspace: Workspace, exported: Path, lines: list[str], options: SearchOptions
) -> None:
    assert load(exported, **options).translate(lines) == load(workspace.run, **options).translate(lines)


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_beams_find_what_the_model_knows_by_heart(
    workspace: Workspace, exported: Path, known: list[str], length_penalty: float
) -> None:
    options = SearchOptions(beam_size=4, length_penalty=length_penalty)
    assert load(exported, **options).translate(known) == load(workspace.run, **options).translate(known)


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("length_penalty", [0.0, 1.5])
def test_score_is_the_log_probability_over_our_length_penalty(
    workspace: Workspace, exported: Path, known: list[str], beam_size: int, length_penalty: float
) -> None:
    translator = load(exported, beam_size=beam_size, length_penalty=length_penalty)
    best = [each[0] for each in translator.translate_n_best(known)]
    scorer = PairScorer.load([workspace.run], device="cpu", threads=1)
    expected = [
        pair.log_prob / ((5 + pair.num_tokens) / 6) ** length_penalty
        for pair in scorer.score(known, [each.text for each in best])
    ]
    assert [each.score for each in best] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("length_penalty", [0.0, 2.0])
def test_n_best_are_so_many_and_ranked(exported: Path, lines: list[str], length_penalty: float) -> None:
    translator = load(exported, beam_size=5, length_penalty=length_penalty)
    found = translator.translate_n_best(lines, n_best=4)
    assert {len(each) for each in found} == {4}
    scores = [[one.score for one in each] for each in found]
    assert scores == [sorted(each, reverse=True) for each in scores]
    assert [each[0].text for each in found] == translator.translate(lines)


def test_beams_may_be_more_than_the_vocabulary_has_entries(exported: Path) -> None:
    more = open_exported_run(exported).tokenizers.tgt.vocab_size + 1
    translator = load(exported, beam_size=more)
    assert len(translator.translate_n_best(["Ein Hund."], n_best=more)[0]) == more


def test_alignment_is_that_of_the_run(workspace: Workspace, exported: Path, lines: list[str]) -> None:
    ours, theirs = (
        [each.alignment for (each,) in load(folder).translate_n_best(lines, with_alignment=True)]
        for folder in (workspace.run, exported)
    )
    assert theirs == ours
    assert len(set(ours)) > 5


def test_samples_depend_on_their_seed(exported: Path, lines: list[str]) -> None:
    hot = Sampling(temperature=3.0)
    first, again, other = (load(exported, sampling=hot, seed=seed).translate(lines) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize("sampling", [Sampling(top_k=1), Sampling(top_p=0.0)], ids=str)
def test_likeliest_token_alone_is_greedy_search(exported: Path, known: list[str], sampling: Sampling) -> None:
    assert load(exported, sampling=sampling).translate(known) == load(exported).translate(known)


def test_samples_of_a_line_differ_and_come_ranked(exported: Path) -> None:
    (found,) = load(exported, sampling=Sampling(temperature=3.0)).translate_n_best(["Ein Hund."], n_best=6)
    scores = [each.score for each in found]
    assert scores == sorted(scores, reverse=True)
    assert len({each.text for each in found}) > 1


@pytest.mark.parametrize("sampling", [None, Sampling()], ids=["searched", "drawn"])
def test_every_line_is_reported_once(exported: Path, lines: list[str], sampling: Sampling | None) -> None:
    done: list[int] = []
    many = lines * BATCHES_AHEAD
    translator = load(exported, batch_size=2, sampling=sampling)
    translator.translate_n_best(many, on_progress=done.append)
    assert sum(done) == len(many)
    assert len(done) > BATCHES_AHEAD


def test_threads_share_the_batches_and_change_nothing(exported: Path, lines: list[str]) -> None:
    several = Translator.load(exported, device="cpu", threads=3, batch_size=2)
    assert several.translate(lines) == load(exported, batch_size=2).translate(lines)


def test_nobody_can_look_into_it(exported: Path) -> None:
    translator = load(exported)
    assert repr(translator) == f"<Translator of {exported} (best): greedy on cpu>"
    with pytest.raises(UsageError, match="nobody can look into an exported model; name the run"):
        translator.attention("Ein Hund.")
    with pytest.raises(UsageError, match="nobody can look into an exported model; name the run"):
        translator.teacher_force("Ein Hund.")


class Failing:
    """Stands for CTranslate2 where it lacks something."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def translate_batch(self, *args: object, **named: object) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "device", "message"),
    [
        (MemoryError(), "cpu", "out of memory; lower batch_size (now 64)"),
        (RuntimeError("CUDA failed with error out of memory"), "cuda", "out of GPU memory; lower batch_size"),
        (
            RuntimeError("libcublas is not found"),
            "cuda",
            "on the GPU: libcublas is not found; use device='cpu'",
        ),
    ],
    ids=["memory", "GPU memory", "library"],
)
def test_what_the_machine_lacks_is_said(
    exported: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, device: str, message: str
) -> None:
    searcher = ExportedSearcher(
        open_exported_run(exported), DecodingConfig(), forbidden_ids=FORBIDDEN, device="cpu", threads=1
    )
    monkeypatch.setattr(searcher, "_engine", Failing(error))
    monkeypatch.setattr(searcher, "device", device)
    with pytest.raises(ResourceError) as caught:
        searcher.best([[5, 6]])
    assert message in str(caught.value)


def test_a_library_that_the_gpu_lacks_is_no_damage_to_the_folder(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks_a_library(*_: object, **__: object) -> None:
        raise RuntimeError("Library libcublas.so.12 is not found or cannot be loaded")

    monkeypatch.setattr("ctranslate2.get_cuda_device_count", lambda: 1)
    monkeypatch.setattr("ctranslate2.Translator", lacks_a_library)
    run = open_exported_run(exported)
    with pytest.raises(ResourceError, match=r"on the GPU: Library libcublas\.so\.12 is not found"):
        ExportedSearcher(run, DecodingConfig(), forbidden_ids=FORBIDDEN, device="cuda", threads=1)
