"""The `sacrebleu` command, which everybody has, as the judge of our scores."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def command_scores(folder: Path, hyps: Sequence[str], refs: Sequence[str], *flags: str) -> dict[str, str]:
    """Score by metric, to ten digits, as the `sacrebleu` command prints it."""
    for name, lines in (("hyp", hyps), ("ref", refs)):
        folder.joinpath(name).write_bytes("".join(f"{line}\n" for line in lines).encode())
    args = ["ref", "-i", "hyp", "-m", "bleu", "chrf", "-w", "10", *flags]
    done = subprocess.run(
        [sys.executable, "-m", "sacrebleu", *args], cwd=folder, capture_output=True, timeout=300, check=True
    )
    return {each["name"]: f"{each['score']:.10f}" for each in json.loads(done.stdout)}
