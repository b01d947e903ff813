"""The server: its pages, the API of LibreTranslate, what it refuses, and how it begins and ends."""

import asyncio
import ipaddress
import json
import logging
import signal
import socket
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from itertools import chain, islice
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mt_cli import __version__
from mt_cli.errors import ResourceError
from mt_cli.machine.process import HANGUP, TERMINATING, reason_of
from mt_cli.machine.terminal import visible
from mt_cli.runs.run import Run, models_named, open_models
from mt_cli.serving.batcher import Batcher, Wanted
from mt_cli.text.language import base_language, detected_language, language_name
from mt_cli.translation.options import DecodingOptions
from mt_cli.translation.result import Translation
from mt_cli.translation.translator import Translator

log = logging.getLogger(__name__)

BODY_TIMEOUT_S = 20.0
"""How long a request may take to arrive."""
BYTES_OF_CHARACTER = 12
"""At most, as JSON may write it; a body may have so many for each character of the limit."""
MAX_LINES = 2000
"""Of a request."""
MAX_ALTERNATIVES = 4
MAX_DIGITS = 9
SURE = 90.0
"""Percent from which on a language is taken to be known."""
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
PAGES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}


@dataclass(frozen=True)
class ServedModel:
    """What translates."""

    models: Sequence[Run]
    options: DecodingOptions

    @classmethod
    def of(cls, folders: Sequence[Path], options: DecodingOptions) -> "ServedModel":
        """The models in `folders`, or the bundled one if there are none."""
        return cls(open_models(models_named(folders)), options)

    @cached_property
    def translator(self) -> Translator:
        """Searches as the options say."""
        return Translator.of_models(self.models, self.options)

    def translate(self, lines: list[str], wanted: Wanted) -> list[list[Translation]]:
        """What is `wanted` of each of `lines`; several translations are searched with a beam."""
        beam_size = self.translator.engine.config.beam_size
        if wanted.num_choices > 1:
            beam_size = max(beam_size, MAX_ALTERNATIVES + 1)
        found = self.translator.translate_n_best(
            lines,
            n_best=wanted.num_choices,
            beam_size=beam_size,
            is_scored=wanted.is_detailed or wanted.num_choices > 1,
            with_alignment=wanted.is_detailed,
            with_words=wanted.is_detailed,
        )
        for of_line in found:
            _ = of_line[0].facts  # in this thread, which is not the one that answers
        return found

    @property
    def name(self) -> str:
        """The names of the folders."""
        return " + ".join(model.folder.resolve().name for model in self.models)

    @cached_property
    def language_names(self) -> list[str]:
        """Their English names."""
        return [language_name(code) for code in self.languages]

    @property
    def languages(self) -> tuple[str, str]:
        """The codes of the source's language and the translation's."""
        data = self.models[0].config.data
        return base_language(data.src_lang), base_language(data.tgt_lang)


def create_app(
    model: ServedModel, *, char_limit: int, cors_origins: Sequence[str] = ()
) -> Starlette:
    """The application that serves `model`; a request may hold `char_limit` characters."""
    api = _Api(model, char_limit=char_limit)
    routes = [Route(path, _page(*page)) for path, page in PAGES.items()]
    routes += [
        Route("/translate", api.translate, methods=["POST"]),
        Route("/detect", api.detect, methods=["POST"]),
        Route("/words", api.words, methods=["POST"]),
        Route("/languages", api.languages),
        Route("/frontend/settings", api.settings),
        Route("/health", api.health),
    ]
    middleware = []
    if cors_origins:
        middleware = [
            Middleware(
                CORSMiddleware,
                allow_origins=list(cors_origins),
                allow_methods=["GET", "POST"],
                allow_headers=["Content-Type"],
            )
        ]
    return Starlette(
        routes=routes,
        middleware=middleware,
        lifespan=api.lifespan,
        exception_handlers={
            HTTPException: _refused,
            TimeoutError: _too_slow,
            ClientDisconnect: _gone,
            Exception: _failed,
        },
    )


def _page(name: str, media_type: str) -> Callable[[Request], Response]:
    content = files(__package__).joinpath(name).read_bytes()
    return lambda _: Response(content, media_type=media_type, headers=HEADERS)


def _whole_texts(of_lines: Sequence[Sequence[Translation]]) -> list[str]:
    """A text's translations from those of its lines: the best of each, and so on."""
    ranks = zip(*of_lines, strict=True)
    return ["\n".join(each.text for each in of_rank) for of_rank in ranks]


def _facts(of_lines: Sequence[Sequence[Translation]]) -> dict[str, object]:
    """What may be wrong with a text's best translation, of all its lines together."""
    together: dict[str, object] = {}
    for name in of_lines[0][0].facts:
        first, *others = name.split("_")
        key = first + "".join(map(str.title, others))
        values = [getattr(best, name) for best, *_ in of_lines]
        if isinstance(values[0], tuple):
            together[key] = list(chain.from_iterable(values))
        else:
            together[key] = next(filter(None, values), values[0])
    return together


def _confidences(of_lines: Sequence[Sequence[Translation]]) -> list[dict[str, object]]:
    """How sure the model is of each line's best translation, a token on average, and each word."""
    found: list[dict[str, object]] = []
    for best, *_ in of_lines:
        words = [{"word": word, "logProb": log_prob} for word, log_prob in best.words]
        found.append({"meanLogProb": best.mean_log_prob, "words": words})
    return found


def _json(content: object, *, status: int = 200, **headers: str) -> Response:
    return JSONResponse(content, status, headers={**HEADERS, **headers})


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _json({"error": error.detail}, status=error.status_code, **(error.headers or {}))


async def _too_slow(_: Request, error: Exception) -> Response:
    return _json({"error": "the request took too long to arrive"}, status=408)


async def _gone(_: Request, error: Exception) -> Response:
    return _json({"error": "the request ended before its body"}, status=400)


async def _failed(_: Request, error: Exception) -> Response:
    # Not what the error says, which may quote the request.
    places = [
        f"{Path(place.filename).name}:{place.lineno}"
        for place in traceback.extract_tb(error.__traceback__)
    ]
    log.error("a request failed: %s at %s", type(error).__name__, " > ".join(places))
    return _json({"error": "the server failed; its log says why"}, status=500)


class _Api:
    """The API of LibreTranslate (its version 1), and `words` for the page."""

    def __init__(self, model: ServedModel, *, char_limit: int) -> None:
        self._model = model
        self._char_limit = char_limit
        self._batcher = Batcher(model.translate)

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Translate while the application runs."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._batcher.thread, lambda: self._model.translator)
        await loop.run_in_executor(self._batcher.thread, lambda: self._model.language_names)
        task = asyncio.create_task(self._batcher.run())
        yield
        task.cancel()

    async def translate(self, request: Request) -> Response:
        """POST /translate."""
        given = await self._fields(request)
        texts = self._texts(given.get("q"))
        self._check_languages(given)
        num_alternatives = _whole_number(given.get("alternatives") or 0)
        if num_alternatives > MAX_ALTERNATIVES:
            raise HTTPException(400, f"at most {MAX_ALTERNATIVES} alternatives are given")
        if (given.get("format") or "text") != "text":
            raise HTTPException(400, "only plain text is translated: take the tags out first")
        says_how_sure = str(given.get("confidence")).lower() in ("true", "1")
        wanted = Wanted(num_alternatives + 1, is_detailed=says_how_sure)
        is_auto = given.get("source") == "auto"
        detected = [await self._detected(text) for text in texts] if is_auto else []
        as_they_are = [self._is_target(each) for each in detected] or [False] * len(texts)
        to_translate = [text for text, stays in zip(texts, as_they_are, strict=True) if not stays]
        found = iter(await self._of_texts(request, to_translate, wanted))
        answers = []
        for i, text in enumerate(texts):
            of_lines = self._unchanged(text, wanted) if as_they_are[i] else next(found)
            best, *others = _whole_texts(of_lines)
            answer: dict[str, object] = {"translatedText": best, **_facts(of_lines)}
            if num_alternatives:
                answer["alternatives"] = others
            if says_how_sure:
                answer["confidence"] = _confidences(of_lines)
            if is_auto:
                answer["detectedLanguage"] = detected[i]
            answers.append(answer)
        if not isinstance(given["q"], list):
            return _json(answers[0])
        return _json({key: [answer[key] for answer in answers] for key in answers[0]})

    def _is_target(self, detected: Mapping[str, object]) -> bool:
        """Whether a text is clearly in the language that it would be translated into."""
        _, target = self._model.languages
        return detected["language"] == target and float(str(detected["confidence"])) >= SURE

    def _unchanged(self, text: str, wanted: Wanted) -> list[list[Translation]]:
        """The lines of `text`, which is in the target's language, in the form of translations."""
        source, _ = self._model.languages
        lines = [Translation(line, 0.0, source=line, src_lang=source) for line in text.split("\n")]
        return [[line] * wanted.num_choices for line in lines]

    async def _of_texts(
        self, request: Request, texts: list[str], wanted: Wanted
    ) -> list[list[list[Translation]]]:
        """Of each text, what is `wanted` of each of its lines."""
        lines_of_texts = [text.split("\n") for text in texts]
        lines = [line for of_text in lines_of_texts for line in of_text]
        found = iter(await self._translated(request, lines, wanted))
        return [list(islice(found, len(of_text))) for of_text in lines_of_texts]

    async def _translated(
        self, request: Request, lines: list[str], wanted: Wanted
    ) -> list[list[Translation]]:
        if len(lines) > MAX_LINES:
            raise HTTPException(400, f"a request may have {MAX_LINES:,} lines")
        return await self._batcher.translate(lines, wanted, is_gone=request.is_disconnected)

    async def words(self, request: Request) -> Response:
        """POST /words: which tokens of a line and of its best translation belong together."""
        given = await self._fields(request)
        (text,) = self._texts(given.get("q"))[:1]
        # More than one, so that they are searched with a beam, as for the page.
        wanted = Wanted(2, is_detailed=True)
        (choices,) = await self._translated(request, text.split("\n")[:1], wanted)
        best = choices[0]
        return _json(
            {
                "source": best.src_tokens,
                "translation": best.tokens,
                "alignment": best.alignment,
                **_confidences([choices])[0],
            }
        )

    async def detect(self, request: Request) -> Response:
        """POST /detect."""
        given = await self._fields(request)
        return _json([await self._detected(text) for text in self._texts(given.get("q"))])

    async def _detected(self, text: str) -> dict[str, object]:
        language, probability = await asyncio.to_thread(
            detected_language, text, among=self._model.languages
        )
        return {"confidence": round(100 * probability, 1), "language": language}

    async def languages(self, _: Request) -> Response:
        """GET /languages."""
        source, target = self._model.languages
        src_name, tgt_name = self._model.language_names
        return _json(
            [
                {"code": source, "name": src_name, "targets": [target]},
                {"code": target, "name": tgt_name, "targets": []},
            ]
        )

    async def settings(self, _: Request) -> Response:
        """GET /frontend/settings."""
        source, target = self._model.languages
        src_name, tgt_name = self._model.language_names
        return _json(
            {
                "apiKeys": False,
                "keyRequired": False,
                "charLimit": self._char_limit,
                "frontendTimeout": 250,
                "suggestions": False,
                "supportedFilesFormat": [],
                "language": {
                    "source": {"code": source, "name": src_name},
                    "target": {"code": target, "name": tgt_name},
                },
                "model": self._model.name,
                "version": __version__,
            }
        )

    async def health(self, _: Request) -> Response:
        """GET /health."""
        return _json({"status": "ok"})

    # What a request says

    async def _fields(self, request: Request) -> dict[str, Any]:
        """The fields of a request: of JSON, of a form, or where it has no body, of its address."""
        kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        body = await self._body(request)
        try:
            if not body or kind == "application/x-www-form-urlencoded":
                form = body.decode(errors="replace") or request.url.query
                fields = parse_qs(form, keep_blank_values=True, max_num_fields=100)
                given = {name: values[0] for name, values in fields.items()}
            elif kind == "application/json":
                given = json.loads(body)
            else:
                raise HTTPException(415, "expected application/json or a urlencoded form")
        except (ValueError, RecursionError):
            raise HTTPException(400, "the request's body cannot be read") from None
        if not isinstance(given, dict):
            raise HTTPException(400, "expected a JSON object")
        return given

    async def _body(self, request: Request) -> bytes:
        most = BYTES_OF_CHARACTER * self._char_limit + 1000
        body = bytearray()
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise HTTPException(413, f"a request may have {most:,} bytes")
        return bytes(body)

    def _texts(self, q: object) -> list[str]:
        """The texts of the field `q`, one or a list."""
        given = q if isinstance(q, list) else [q]
        texts = [text for text in given if isinstance(text, str)]
        if not texts or len(texts) < len(given):
            raise HTTPException(400, "Invalid request: missing q parameter")
        if len(texts) > MAX_LINES:
            raise HTTPException(400, f"a request may have {MAX_LINES:,} texts")
        size = sum(map(len, texts))
        if size > self._char_limit:
            raise HTTPException(
                400, f"Invalid request: request ({size}) exceeds text limit ({self._char_limit})"
            )
        # JSON can spell half of a pair of surrogates, which is no character.
        return [
            text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts
        ]

    def _check_languages(self, given: dict[str, Any]) -> None:
        source, target = self._model.languages
        for name, own in (("source", source), ("target", target)):
            code = given.get(name)
            if not isinstance(code, str):
                raise HTTPException(400, f"Invalid request: missing {name} parameter")
            if base_language(code) != own and (name, code) != ("source", "auto"):
                shown = visible(code[:20])
                raise HTTPException(400, f"{shown} is not supported as the {name}; {own} is")


def _whole_number(value: object) -> int:
    text = str(value)
    if not text.isdecimal() or len(text) > MAX_DIGITS:
        raise HTTPException(400, "alternatives: expected a whole number")
    return int(text)


MAX_CONNECTIONS = 512
FINISH_S = 30
"""How long requests that have begun may take after SIGTERM or Ctrl-C."""
MAX_HEADER_BYTES = 1 << 14


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens at `host` and `port`; 0 is any port that is free.

    Raises:
        ResourceError: there is no such host, or the port is taken.
    """
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(place[:2], family=family)
    except OSError as error:
        raise ResourceError(
            f"{host}:{port}: {reason_of(error)}; give another with --port or --host"
        ) from error
    # Connections inherit it; without it, the second packet of an answer waits for 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def address_of(listener: socket.socket) -> str:
    """Where `listener` can be reached; a warning if others than this machine can."""
    ip, port = listener.getsockname()[:2]
    address = f"http://{f'[{ip}]' if ':' in ip else ip}:{port}"
    if not ipaddress.ip_address(ip).is_loopback:
        log.warning("%s answers everyone who reaches it, without a password", address)
    return address


def serve_until_stopped(
    application: Starlette, listener: socket.socket, *, on_ready: Callable[[], None]
) -> None:
    """Answer until SIGTERM or Ctrl-C; requests that have begun are finished."""
    config = uvicorn.Config(
        application,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=FINISH_S,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
    # What may quote a request stays out of the log; the application has told what failed.
    logging.getLogger("uvicorn.error").addFilter(
        lambda record: not record.getMessage().startswith("Exception in ASGI application")
    )
    stopping = (signal.SIGINT, *TERMINATING, *HANGUP)  # its own are two of them
    uvicorn.server.HANDLED_SIGNALS = tuple(
        number for number in stopping if signal.getsignal(number) != signal.SIG_IGN
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            on_ready()

    Server(config).run([listener])
