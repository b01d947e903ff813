"""The Python API gives what the commands print."""

import json

import pytest
from workspace import Workspace

from mt_cli import Translator
from mt_cli.decoding import Sampling

RUN = "runs/tiny"


@pytest.fixture(scope="module")
def lines(workspace: Workspace) -> list[str]:
    """Those of the test set, and lines that are empty, too long and odd."""
    odd = ["", "Ein Mann schläft. " * 20, "<s> 犬 $1 & <b>"]
    return [*workspace.corpus("test.de").read_text(encoding="utf-8").splitlines(), *odd]


def printed(workspace: Workspace, lines: list[str], *flags: object) -> list[dict[str, object]]:
    """What `translate --json` prints for each of `lines`."""
    stdin = "".join(f"{line}\n" for line in lines).encode()
    outcome = workspace.call(
        "translate",
        RUN,
        "--json",
        "--quiet",
        "--device",
        "cpu",
        "--threads",
        1,
        *flags,
        stdin=stdin,
    )
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.lines]


def test_scores_tokens_and_alignment_are_those_of_the_command(
    workspace: Workspace, lines: list[str]
) -> None:
    translator = Translator.load(
        workspace.run, beam_size=3, length_penalty=0.6, device="cpu", threads=1
    )
    found = translator.translate_n_best(lines, n_best=2, with_alignment=True)
    flags = ("--beam-size", 3, "--length-penalty", 0.6, "--n-best", 2)
    for ours, theirs in zip(found, printed(workspace, lines, *flags), strict=True):
        ranked = [{"translation": each.text, "score": each.score} for each in ours]
        assert ranked == theirs["n_best"]
        tokens = {"source": list(ours[0].src_tokens), "translation": list(ours[0].tokens)}
        assert tokens == theirs["tokens"]
        assert [list(pair) for pair in ours[0].alignment] == theirs["alignment"]


def test_samples_are_those_of_the_command(workspace: Workspace, lines: list[str]) -> None:
    sampling = Sampling(temperature=2.0, top_k=9)
    translator = Translator.load(workspace.run, sampling=sampling, seed=5, device="cpu", threads=1)
    flags = ("--sample", "--temperature", 2, "--top-k", 9, "--seed", 5, "--n-best", 3)
    samples = [each["n_best"] for each in printed(workspace, lines, *flags)]
    found = translator.translate_n_best(lines, n_best=3)
    assert [
        [{"translation": one.text, "score": one.score} for one in each] for each in found
    ] == samples
