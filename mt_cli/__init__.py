"""German→English translation from nothing to a scored model: prepare, train, evaluate, translate."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mt_cli.translation.translator import Translator

__all__ = ["Translator", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import `Translator`, and with it torch, only when somebody asks for it."""
    if name == "Translator":
        from mt_cli.translation.translator import Translator

        return Translator
    raise AttributeError(f"module 'mt_cli' has no attribute '{name}'")
