"""A user's script as a strict type checker sees it; `mypy` checks it, and nobody runs it."""

from typing import assert_type

from mt_cli import Attention, MtCliError, Translation, Translator, UsageError, compare, evaluate


def use() -> None:
    translator = Translator.load("runs/sample", beam_size=4)
    texts = assert_type(translator.translate(["Ein Hund."]), list[str])
    assert_type(translator.translate_n_best(texts, n_best=2)[0][0], Translation)
    scores = evaluate("runs/sample", splits="test")["test"].scores
    assert_type(scores.metrics["bleu"].score, float)
    for contrast in compare("a", "b", ref="c")["files"].systems:
        print(contrast.outcome, contrast.tests[0].randomization_p)
    Translator.load("runs/sample", temperature=0.5)
    try:
        Attention.of(translator, "Ein Hund.").write("a.png", "cross", layer=1, head="all")
    except (MtCliError, UsageError) as error:
        print(error)
    translator.translate(3)  # type: ignore[arg-type]  # strict mypy also refuses an unused one
