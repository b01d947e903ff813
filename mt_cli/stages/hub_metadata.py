"""The front matter of a model card: what the Hugging Face Hub reads of a model before it shows the card.

Knows the Hub's keys and how YAML is written; the text below is `model_card`'s.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby

from mt_cli.artefacts.run import Run
from mt_cli.stages.kept_scores import KeptScore

MARK = "mt-cli writes this when the run is trained or evaluated; without this line it stays."
SAMPLE_LICENSE = "mit"
"""Of the bundled sentences, which come under the program's own licence."""


def front_matter(name: str, run: Run, scores: Sequence[KeptScore]) -> str:
    """The YAML block that opens the card of the model `name`, from `---` to `---`."""
    return "\n".join(["---", f"# {MARK}", *_lines(name, run, scores), "---"])


def _lines(name: str, run: Run, scores: Sequence[KeptScore]) -> Iterator[str]:
    data = run.config.data
    yield "language:"
    yield from (f"- {_quoted(lang)}" for lang in dict.fromkeys((data.src_lang, data.tgt_lang)))
    # Of other corpora, nobody but their owners can say; and so of other weights that this run started with.
    if data.corpus == "sample" and not data.more and run.init_from is None:
        yield f"license: {SAMPLE_LICENSE}"
    yield "library_name: mt-cli"
    yield "pipeline_tag: translation"
    yield "tags:"
    yield "- translation"
    yield "- transformer"
    if scores:
        yield "metrics:"
        yield from (f"- {metric}" for metric in dict.fromkeys(each.metric for each in scores))
        yield "model-index:"
        yield f"- name: {_quoted(name)}"
        yield "  results:"
        in_order = sorted(scores, key=lambda each: each.test_set)  # stable: by metric as they came
        for test_set, of_test_set in groupby(in_order, key=lambda each: each.test_set):
            yield from _result(data.corpus, test_set, list(of_test_set))


def _result(corpus: str, test_set: str, scores: Sequence[KeptScore]) -> Iterator[str]:
    """All scores of one test set."""
    is_split = bool(scores[0].decoding)
    yield "  - task:"
    yield "      type: translation"
    yield "      name: Translation"
    yield "    dataset:"
    yield f"      type: {_quoted(corpus if is_split else 'files')}"
    yield f"      name: {_quoted(f'{corpus}, {test_set}' if is_split else test_set)}"
    yield f"      split: {_quoted(test_set)}"
    yield "    metrics:"
    for each in scores:
        yield f"    - type: {each.metric}"
        yield f"      value: {each.score!r}"
        yield f"      name: {_quoted(f'{each.name}, {each.decoding}' if is_split else each.name)}"
        yield "      args:"
        yield f"        signature: {_quoted(each.signature)}"
        yield f"        sentences: {each.n}"


def _quoted(text: str) -> str:
    """`text` as YAML reads it back: always in quotes, since `no` alone would be false, and not Norwegian."""
    plain = text.encode(errors="backslashreplace").decode()  # a path may hold what is no UTF-8
    return "".join(
        letter if letter.isprintable() else f"\\U{ord(letter):08x}"
        for letter in json.dumps(plain, ensure_ascii=False)
    )
