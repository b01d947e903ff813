"""Requests: read within bounds as JSON or as a form, and checked by their models."""

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
"""How long a request may take to arrive."""
BYTES_OF_CHARACTER = 12
"""At most, as JSON may write it; a body may have so many for each character of the limit."""
MAX_FIELDS = 100
"""Of a form."""
MAX_LINES = 2000
"""Of a request."""
MAX_ALTERNATIVES = 4
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


class TextRequest(BaseModel):
    """A text, or several. Fields are those of LibreTranslate; others are ignored."""

    q: str | Annotated[list[str], Field(min_length=1, max_length=MAX_LINES)]
    api_key: str = ""

    @field_validator("q", mode="before")
    @classmethod
    def _without_half_characters(cls, q: object) -> object:
        """JSON can spell half of a pair of surrogates, which is no character."""
        if isinstance(q, list):
            return [cls._without_half_characters(text) for text in q]
        if isinstance(q, str):
            return q.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return q

    @property
    def texts(self) -> list[str]:
        """All of `q`."""
        return self.q if isinstance(self.q, list) else [self.q]


class TranslationRequest(TextRequest):
    """What POST /translate takes."""

    source: str
    target: str
    format: Literal["text"] = "text"
    alternatives: int = Field(default=0, ge=0, le=MAX_ALTERNATIVES)
    confidence: bool = False


Model = TypeVar("Model", bound=TextRequest)


class RequestReader:
    """Reads requests of at most so many characters, from who has one of the keys."""

    def __init__(self, *, char_limit: int, keys: Sequence[str] = ()) -> None:
        """Without `keys`, everybody may ask."""
        self.char_limit = char_limit
        self.keys = keys
        self._max_bytes = BYTES_OF_CHARACTER * char_limit + 1000

    async def read(self, request: Request, model: type[Model]) -> Model:
        """The fields of `request`: of JSON, of a form, or where it has no body, of its address.

        Raises:
            HTTPException: it is too large, no such request, or without a key. TimeoutError: it
                takes too long.
        """
        bounded = Request(request.scope, partial(self._receive, request.receive, [0]))
        async with asyncio.timeout(BODY_TIMEOUT_S):
            fields = await self._fields(bounded)
        if not isinstance(fields, dict):
            raise HTTPException(400, "expected a JSON object")
        # What is empty counts as not given, but a text may be empty.
        given = {
            key: value for key, value in fields.items() if key == "q" or value not in ("", None)
        }
        try:
            found = model.model_validate(given)
        except ValidationError as error:
            raise HTTPException(400, _refusal(error)) from None
        self._check_key(found.api_key)
        size = sum(map(len, found.texts))
        request.state.letters = size
        if sum(text.count("\n") + 1 for text in found.texts) > MAX_LINES:
            raise HTTPException(400, f"a request may have at most {MAX_LINES:,} lines")
        if size > self.char_limit:
            raise HTTPException(
                400, f"Invalid request: request ({size}) exceeds text limit ({self.char_limit})"
            )
        return found

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
        """The next part of a body, whose `size` until now is counted."""
        message = await receive()
        size[0] += len(message.get("body", b""))
        if size[0] > self._max_bytes:
            raise HTTPException(413, f"a request may have at most {self._max_bytes:,} bytes")
        return message

    def _check_key(self, given: str) -> None:
        """Refuse a key that is none of the keys; the time that this takes does not tell how."""
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
    """The API keys in the file `path`, one a line; empty lines and `#` comments do not count.

    Raises:
        DataError: there is none.
    """
    lines = [line.strip() for line in scored_lines(read_text(path), path)]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise DataError(f"{path}: no keys found; write one per line")
    return keys
