"""How far log-probabilities say what translations are worth, as a table and a picture.

python scripts/confidence.py MODEL FOLDER PICTURE, where FOLDER has Multi30k's own files.
"""

import gzip
import math
import re
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sacrebleu.metrics.chrf import CHRF

from mt_cli import Translator

SPLITS = ("val", "test_2016_flickr")
THRESHOLDS = (-math.inf, -0.4, -0.3, -0.25, -0.2, -0.15, -0.1)
BINS = np.linspace(0, 1, 11)


def lines_of(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def words_in(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def main() -> None:
    model, folder, picture = map(Path, sys.argv[1:])
    translator = Translator.load(model, device="cpu")
    figure = Figure(figsize=(4.2, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="gray", linewidth=1)
    print("| at least | " + " | ".join(f"{split}: lines | chrF" for split in SPLITS) + " |")
    columns = []
    for split in SPLITS:
        refs = lines_of(folder / f"{split}.en.gz")
        sources = lines_of(folder / f"{split}.de.gz")
        found = [best for best, *_ in translator.translate_n_best(sources, with_words=True)]
        column = []
        for threshold in THRESHOLDS:
            kept = [i for i, each in enumerate(found) if each.mean_log_prob >= threshold]
            texts = [found[i].text for i in kept]
            score = CHRF().corpus_score(texts, [[refs[i] for i in kept]]).score
            column.append(f"{len(kept) / len(found):.0%} | {score:.1f}")
        columns.append(column)
        probabilities = []
        are_in_ref = []
        for each, ref in zip(found, refs, strict=True):
            for word, log_prob in each.words:
                if parts := words_in(word):
                    probabilities.append(math.exp(log_prob))
                    are_in_ref.append(set(parts) <= set(words_in(ref)))
        places = np.digitize(probabilities, BINS[1:-1])
        x = [np.mean(np.array(probabilities)[places == i]) for i in range(len(BINS) - 1)]
        y = [np.mean(np.array(are_in_ref)[places == i]) for i in range(len(BINS) - 1)]
        axes.plot(x, y, marker="o", label=split)
    for threshold, *cells in zip(THRESHOLDS, *columns, strict=True):
        print(f"| {threshold} | " + " | ".join(cells) + " |")
    axes.set(xlabel="probability of a word", ylabel="share of words that the reference has")
    axes.legend()
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main()
