"""The `sacrebleu` command, which everybody has, as the judge of our scores."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def command_scores(
    folder: Path, hyps: Sequence[str], refs: Sequence[str], *flags: str
) -> dict[str, str]:
    """Score by metric, to ten digits, as the `sacrebleu` command prints it."""
    printed = _run(folder, {"hyp": hyps, "ref": refs}, "ref", "-i", "hyp", "-w", "10", *flags)
    return {each["name"]: f"{each['score']:.10f}" for each in json.loads(printed)}


def command_intervals(folder: Path, hyps: Sequence[str], refs: Sequence[str]) -> dict[str, str]:
    """The 95 % interval by metric, as `sacrebleu --confidence` prints it, and the signature."""
    flags = ("ref", "-i", "hyp", "-w", "2", "--confidence", "-f", "text")
    printed = _run(folder, {"hyp": hyps, "ref": refs}, *flags)
    pattern = r"^ *(\w+)\|(\S+) *= \S+ \(μ = (\S+ ± [\d.]+)\)"
    return {
        name: f"{interval}  {signature}"
        for name, signature, interval in re.findall(pattern, printed, re.MULTILINE)
    }


def command_p_values(
    folder: Path, baseline: Sequence[str], hyps: Sequence[str], refs: Sequence[str], test: str
) -> dict[str, str]:
    """The p-value by metric, as the paired test `--paired-bs` or `--paired-ar` prints it."""
    texts = {"ref": refs, "a": baseline, "b": hyps}
    printed = _run(folder, texts, "ref", "-i", "a", "b", test, "-f", "text", "--no-color")
    heading = re.search(r"System.*", printed)
    assert heading is not None
    names = re.findall(r"BLEU|chrF2|TER", heading.group())
    return dict(zip(names, re.findall(r"\(p = ([\d.]+)\)", printed), strict=True))


def _run(folder: Path, texts: Mapping[str, Sequence[str]], *args: str) -> str:
    """What the command prints of `texts`, which it finds as files."""
    for name, lines in texts.items():
        folder.joinpath(name).write_bytes("".join(f"{line}\n" for line in lines).encode())
    command = [sys.executable, "-m", "sacrebleu", *args, "-m", "bleu", "chrf", "ter"]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=300, check=True)
    return done.stdout.decode()
