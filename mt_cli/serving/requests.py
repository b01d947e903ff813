"""Reading requests: size and time limits, JSON or form, validation, API keys."""

import asyncio
import hmac
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError, field_validator
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message, Receive

from mt_cli.data.text_files import read_text, scored_lines
from mt_cli.errors import DataError

BODY_TIMEOUT_S = 20.0
"""How long a request's body may take to arrive."""
BYTES_OF_CHARACTER = 12
"""Maximum bytes of a character in JSON; the limit of a body follows from it."""
MAX_FIELDS = 100
"""Maximum fields of a form."""
MAX_LINES = 2000
"""Maximum lines of a request."""
MAX_ALTERNATIVES = 4
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


class TextRequest(BaseModel):
    """One or several texts, in LibreTranslate's fields; other fields are ignored."""

    q: str | Annotated[list[str], Field(min_length=1, max_length=MAX_LINES)]
    api_key: str = ""

    @field_validator("q", mode="before")
    @classmethod
    def _without_half_characters(cls, q: object) -> object:
        """Replace lone surrogates, which JSON allows but which are not characters."""
        if isinstance(q, list):
            return [cls._without_half_characters(text) for text in q]
        if isinstance(q, str):
            return q.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return q

    @property
    def texts(self) -> list[str]:
        """`q` as a list."""
        return self.q if isinstance(self.q, list) else [self.q]


class TranslationRequest(TextRequest):
    """The fields of POST /translate."""

    source: str
    target: str
    format: Literal["text"] = "text"
    alternatives: int = Field(default=0, ge=0, le=MAX_ALTERNATIVES)
    confidence: bool = False


Model = TypeVar("Model", bound=TextRequest)


class RequestReader:
    """Reads requests, and checks their size and API key."""

    def __init__(self, *, char_limit: int, keys: Sequence[str] = ()) -> None:
        """Without `keys`, no API key is required."""
        self.char_limit = char_limit
        self.keys = keys
        self._max_bytes = BYTES_OF_CHARACTER * char_limit + 1000

    async def read(self, request: Request, model: type[Model]) -> Model:
        """Read the fields of `request` from JSON, from a form, or without a body from its URL.

        Raises:
            HTTPException: the request is too large or invalid, or has no valid key. TimeoutError:
                its body arrives too slowly.
        """
        bounded = Request(request.scope, partial(self._receive, request.receive, [0]))
        async with asyncio.timeout(BODY_TIMEOUT_S):
            fields = await self._fields(bounded)
        if not isinstance(fields, dict):
            raise HTTPException(400, "expected a JSON object")
        # Empty fields count as not given, except for the text.
        given = {
            key: value for key, value in fields.items() if key == "q" or value not in ("", None)
        }
        try:
            fields = model.model_validate(given)
        except ValidationError as error:
            raise HTTPException(400, _refusal(error)) from None
        self._check_key(fields.api_key)
        size = sum(map(len, fields.texts))
        request.state.letters = size
        if sum(text.count("\n") + 1 for text in fields.texts) > MAX_LINES:
            raise HTTPException(400, f"a request may have at most {MAX_LINES:,} lines")
        if size > self.char_limit:
            raise HTTPException(
                400, f"Invalid request: request ({size}) exceeds text limit ({self.char_limit})"
            )
        return fields

    async def _fields(self, request: Request) -> object:
        if request.headers.get("Content-Encoding", "").lower() not in ("", "identity"):
            raise HTTPException(415, "Content-Encoding is not supported; send the body unpacked")
        kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind in FORMS:
            form = await request.form(
                max_files=0, max_fields=MAX_FIELDS, max_part_size=self._max_bytes
            )
            return dict(form)
        if not await request.body():
            return dict(request.query_params)
        if kind != "application/json":
            raise HTTPException(415, "expected application/json or a form")
        try:
            return await request.json()
        except (ValueError, RecursionError):
            raise HTTPException(400, "cannot parse the request body") from None

    async def _receive(self, receive: Receive, size: list[int]) -> Message:
        """The next part of a body; `size` counts its bytes so far."""
        message = await receive()
        size[0] += len(message.get("body", b""))
        if size[0] > self._max_bytes:
            raise HTTPException(413, f"a request may have at most {self._max_bytes:,} bytes")
        return message

    def _check_key(self, given: str) -> None:
        """Refuse a wrong key, in constant time."""
        raw = given.encode(errors="surrogatepass")
        is_equal = [hmac.compare_digest(raw, key.encode()) for key in self.keys]
        if self.keys and not any(is_equal):
            raise HTTPException(403, "Invalid API key" if given else "api_key is required")


def _refusal(error: ValidationError) -> str:
    first = error.errors()[0]
    name = str(first["loc"][0])
    if first["type"] == "missing":
        return f"Invalid request: missing {name} parameter"
    return f"{name}: {first['msg'][:1].lower()}{first['msg'][1:]}"


def read_keys(path: Path) -> list[str]:
    """Read API keys from a file, one per line; empty lines and `#` comments are ignored.

    Raises:
        DataError: the file has no keys.
    """
    lines = [line.strip() for line in scored_lines(read_text(path), path)]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise DataError(f"{path}: no keys found; write one per line")
    return keys
