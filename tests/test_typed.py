"""What a type checker sees of the package from outside."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes
SCRIPT = """\
from mt_cli import Attention, MtCliError, Translation, Translator, UsageError, compare, evaluate

translator = Translator.load("runs/sample", beam_size=4)
texts: list[str] = translator.translate(["Ein Hund."])
best: Translation = translator.translate_n_best(texts, n_best=2)[0][0]
scores = evaluate("runs/sample", splits="test")["test"].scores
print(scores.metrics["bleu"].score + best.score)
for contrast in compare("a", "b", ref="c")["files"].systems:
    print(contrast.outcome, contrast.tests[0].randomization_p)
Translator.load("runs/sample", temperature=0.5)
try:
    Attention.of(translator, "Ein Hund.").write("a.png", "cross", layer=1, head="all")
except (MtCliError, UsageError) as error:
    print(error)
reveal_type(texts)
translator.translate(3)
"""


def test_a_users_script_is_checked_with_our_types(tmp_path: Path) -> None:
    tmp_path.joinpath("use.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "mypy", "--strict", "use.py"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    *_, revealed, wrong, total = found.stdout.splitlines()
    assert '"list[str]"' in revealed
    assert wrong.startswith("use.py:16: error: Argument 1")
    assert total.startswith("Found 1 error in 1 file")
