"""The server: its pages, the API of LibreTranslate, what it refuses, and how it begins and ends."""

import asyncio
import ipaddress
import json
import logging
import signal
import socket
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from itertools import islice
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
from mt_cli.serving.batcher import ONE_TEXT, Batcher, Wanted
from mt_cli.text.language import base_language, detected_language, language_name
from mt_cli.translation.glossary import Glossary
from mt_cli.translation.lines import Translation
from mt_cli.translation.options import DecodingOptions
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
    glossary: Glossary | None = None
    """The one that the options name."""

    @classmethod
    def of(cls, folders: Sequence[Path], options: DecodingOptions) -> "ServedModel":
        """The models in `folders`, or the bundled one if there are none."""
        models = open_models(models_named(folders))
        path = options.config_of(models[0]).glossary
        return cls(models, options, None if path is None else Glossary.read(path))

    @cached_property
    def translator(self) -> Translator:
        """Searches as the options say."""
        return Translator.of_models(self.models, self.options, glossary=self.glossary, quiet=True)

    @cached_property
    def with_beam(self) -> Translator:
        """Has enough beams for every number of alternatives; what draws needs none."""
        if self.translator.engine.config.temperature:
            return self.translator
        beam_size = max(self.translator.engine.config.beam_size, MAX_ALTERNATIVES + 1)
        search = {**self.options.search, "beam_size": beam_size}
        options = replace(self.options, search=search)
        return Translator.of_models(self.models, options, glossary=self.glossary, quiet=True)

    def translate(self, lines: list[str], wanted: Wanted) -> list[list[Translation]]:
        """What is `wanted` of each of `lines`."""
        if wanted == ONE_TEXT:
            return [[Translation(text, 0.0)] for text in self.translator.translate(lines)]
        num_choices, is_detailed = wanted
        translator = self.translator if num_choices == 1 else self.with_beam
        return translator.translate_n_best(
            lines, n_best=num_choices, with_alignment=is_detailed, with_words=is_detailed
        )

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
        found = await self._of_texts(request, texts, (num_alternatives + 1, says_how_sure))
        choices = [_whole_texts(of_lines) for of_lines in found]
        is_list = isinstance(given["q"], list)
        best = [of_text[0] for of_text in choices]
        answer: dict[str, object] = {"translatedText": best if is_list else best[0]}
        changed = [
            self._model.translator.changes_a_number(*pair) for pair in zip(texts, best, strict=True)
        ]
        answer["changedNumber"] = changed if is_list else changed[0]
        if self._model.glossary is not None:
            missing = [self._missing_terms(*each) for each in zip(texts, found, strict=True)]
            answer["missingTerms"] = missing if is_list else missing[0]
        if num_alternatives:
            others = [of_text[1:] for of_text in choices]
            answer["alternatives"] = others if is_list else others[0]
        if says_how_sure:
            sure = [_confidences(of_lines) for of_lines in found]
            answer["confidence"] = sure if is_list else sure[0]
        if given.get("source") == "auto":
            detected = [await self._detected(text) for text in texts]
            answer["detectedLanguage"] = detected if is_list else detected[0]
        return _json(answer)

    def _missing_terms(self, text: str, of_lines: Sequence[Sequence[Translation]]) -> list[str]:
        """The terms that the best translations of the lines of `text` lack."""
        names = []
        for line, (best, *_) in zip(text.split("\n"), of_lines, strict=True):
            names += self._model.translator.missing_terms(line, best.text)
        return names

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
        (choices,) = await self._translated(request, text.split("\n")[:1], (2, True))
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
