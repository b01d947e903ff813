"""Records: reading the values of a key from JSON and Parquet files."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from mt_cli.config.load import flat_items
from mt_cli.data.text_files import MAX_LINE, kind_of, open_text, read_text, text_lines
from mt_cli.errors import DataError
from mt_cli.machine.files import damage_named
from mt_cli.machine.process import import_extra

READ_BYTES = 1 << 20
"""Bytes to read at a time from a Parquet file."""
ROWS_TOGETHER = 4096


def record_texts(path: Path, key: str) -> Iterator[bytes]:
    """The text under `key` of each record; empty for an empty record.

    Raises:
        DataError: the file cannot be read, or does not have the key.
        ResourceError: a required package is not installed.
    """
    values = _parquet_values if kind_of(path) == "parquet" else _json_values
    for text in values(path, key):
        yield " ".join(text.split("\n")).encode(errors="surrogatepass")


def _json_values(path: Path, key: str) -> Iterator[str]:
    for place, record in _json_records(path):
        if record is None:
            yield ""
            continue
        try:
            found = _value(record, key)
        except (LookupError, TypeError):
            keys = dict(flat_items(record)) if isinstance(record, dict) else ["no object"]
            raise _no_key(f"{path}: {place}", key, keys) from None
        if not isinstance(found, str | None):
            raise DataError(f"{path}: {place}: the value of {key!r} is not text")
        yield found or ""


def _value(record: object, key: str) -> object:
    """The value under `key`, or under the nested keys that its dots separate."""
    if isinstance(record, dict) and key in record:
        return record[key]
    found = record
    for part in key.split("."):
        found = found[part]  # type: ignore[index]
    return found


def _json_records(path: Path) -> Iterator[tuple[str, object]]:
    """The records of a file (one object per line, or an array), each with its place."""
    with open_text(path) as content:
        is_array = content.read(MAX_LINE).lstrip().startswith(b"[")
    if is_array:
        for number, record in enumerate(_json_of(read_text(path), str(path)), 1):
            yield f"record {number}", record
        return
    for number, line in enumerate(text_lines(path), 1):
        place = f"line {number}"
        yield place, _json_of(line, f"{path}: {place}") if line.strip() else None


def _json_of(text: bytes, where: str) -> list[object]:
    with damage_named(where, "JSON", ValueError, RecursionError):
        return json.loads(text)


def _parquet_values(path: Path, key: str) -> Iterator[str]:
    """The texts of a column."""
    pyarrow = import_extra("pyarrow", extra="parquet", needed_by=str(path))
    parquet = import_extra("pyarrow.parquet", extra="parquet", needed_by=str(path))
    with path.open("rb") as content, damage_named(path, "Parquet", pyarrow.ArrowException, OSError):
        # Read in small pieces instead of a whole column chunk at once.
        file = parquet.ParquetFile(content, buffer_size=READ_BYTES, pre_buffer=False)
        keys = [file.schema.column(i).path for i in range(len(file.schema))]
        if key not in keys:
            raise _no_key(str(path), key, keys)
        for rows in file.iter_batches(ROWS_TOGETHER, columns=[key]):
            column = rows.column(0)
            while pyarrow.types.is_struct(column.type):
                column = column.flatten()[0]  # null if the whole record is null
            for value in column.to_pylist():
                if not isinstance(value, str | None):
                    raise DataError(f"{path}: the value of {key!r} is not text")
                yield value or ""


def _no_key(where: str, key: str, keys: Iterable[str]) -> DataError:
    return DataError(
        f"{where}: no key {key!r}, only {', '.join(keys):.80}; choose two of them with --columns"
    )
