"""From nothing to a scored translation model: prepare, train, evaluate, translate."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mt_cli.errors import MtCliError, UsageError
    from mt_cli.evaluation.compare import compare
    from mt_cli.evaluation.evaluate import evaluate
    from mt_cli.look.attention import Attention
    from mt_cli.translation.result import Translation
    from mt_cli.translation.translator import Translator

__all__ = [
    "Attention", "MtCliError", "Translation", "Translator", "UsageError", "__version__",
    "compare", "evaluate",
]  # fmt: skip
__version__ = "0.1.0"

HOMES = {
    "Attention": "mt_cli.look.attention",
    "MtCliError": "mt_cli.errors",
    "Translation": "mt_cli.translation.result",
    "Translator": "mt_cli.translation.translator",
    "UsageError": "mt_cli.errors",
    "compare": "mt_cli.evaluation.compare",
    "evaluate": "mt_cli.evaluation.evaluate",
}
"""The module of each name that the package hands out."""


def __getattr__(name: str) -> object:
    """Import what somebody asks for, and with it torch, only then."""
    if name in HOMES:
        return getattr(import_module(HOMES[name]), name)
    raise AttributeError(f"module 'mt_cli' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
