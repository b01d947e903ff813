"""Documents that are translated as wholes: tables, and translation memories."""

from collections.abc import Callable
from pathlib import Path

from mt_cli.config.schema import Column, DataConfig
from mt_cli.data.files import named_kind
from mt_cli.data.markup import translate_markup
from mt_cli.data.tables import translate_table
from mt_cli.machine.progress import progress_shown
from mt_cli.translation.translator import Translator

TEXTS_TOGETHER = 2048


def is_document(name: str, column: Column | None) -> bool:
    """Whether the file `name` is translated as a whole, and not line by line."""
    return column is not None or named_kind(Path(name)) == "xml"


def translate_document(
    path: Path,
    column: Column | None,
    translator: Translator,
    data: DataConfig,
    *,
    write: Callable[[bytes], None],
) -> None:
    """Write the table or the translation memory `path` with the translations of its texts.

    `column` is a table's, by number or name; `data` names the languages.

    Raises:
        DataError: the file cannot be read, or has no such column or language.
    """
    with progress_shown("translating", unit="texts") as on_progress:

        def translate(texts: list[str]) -> list[str]:
            return translator.translate(texts, on_progress=on_progress)

        if column is None:
            translate_markup(
                path,
                write=write,
                translate=translate,
                languages=(data.src_lang, data.tgt_lang),
                units_together=TEXTS_TOGETHER,
            )
        else:
            translate_table(
                path,
                column,
                write=write,
                translate=translate,
                name=data.tgt_lang,
                rows_together=TEXTS_TOGETHER,
            )
