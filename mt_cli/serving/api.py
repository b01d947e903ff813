"""LibreTranslate's API (version 1), plus `/words` for the web page."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mt_cli import __version__
from mt_cli.machine.terminal import visible
from mt_cli.runs.opening import models_named, open_models
from mt_cli.runs.run import Run
from mt_cli.serving.batcher import Batcher, Wanted
from mt_cli.serving.requests import MAX_ALTERNATIVES, RequestReader, TextRequest, TranslationRequest
from mt_cli.serving.watch import Metrics
from mt_cli.text.language import base_language, detected_language, english_name
from mt_cli.translation.options import DecodingOptions
from mt_cli.translation.result import Translation
from mt_cli.translation.translator import Translator

SURE = 90.0
"""Confidence, in percent, from which a detected language counts as certain."""
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
"""Headers of every response."""


@dataclass(frozen=True)
class ServedModel:
    """The models that translate, and their options."""

    models: Sequence[Run]
    options: DecodingOptions

    @classmethod
    def of(cls, folders: Sequence[Path], options: DecodingOptions) -> "ServedModel":
        """Open the models in `folders`, or the bundled one if `folders` is empty."""
        return cls(open_models(models_named(folders)), options)

    @cached_property
    def translator(self) -> Translator:
        """The translator, loaded on first use."""
        return Translator.of_models(self.models, self.options)

    def translate(self, lines: list[str], wanted: Wanted) -> list[list[Translation]]:
        """Translate `lines`; more than one translation per line takes a beam search."""
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
            _ = of_line[0].facts  # compute it here, outside the event loop's thread
        return found

    @property
    def name(self) -> str:
        """The model's name: its folder, or all folders of an ensemble."""
        return " + ".join(model.folder.resolve().name for model in self.models)

    @cached_property
    def language_names(self) -> list[str]:
        """The English names of `languages`."""
        return [english_name(code) for code in self.languages]

    @property
    def languages(self) -> tuple[str, str]:
        """The codes of the source and the target language."""
        data = self.models[0].config.data
        return base_language(data.src_lang), base_language(data.tgt_lang)


def json_answer(content: object, *, status: int = 200, **headers: str) -> Response:
    """A JSON response with the common headers."""
    return JSONResponse(content, status, headers={**HEADERS, **headers})


class Api:
    """LibreTranslate's API (version 1), plus `/words` for the web page."""

    def __init__(self, model: ServedModel, reader: RequestReader) -> None:
        """Serve `model`; `reader` reads and checks requests."""
        self._model = model
        self._reader = reader
        self._batcher = Batcher(model.translate)
        self.metrics = Metrics(lambda: self._batcher.num_waiting)

    def routes(self) -> list[Route]:
        """The routes of the API."""
        return [
            Route("/translate", self.translate, methods=["POST"]),
            Route("/detect", self.detect, methods=["POST"]),
            Route("/words", self.words, methods=["POST"]),
            Route("/languages", self.languages),
            Route("/frontend/settings", self.settings),
            Route("/health", self.health),
            Route("/metrics", self.metrics.answer),
        ]

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Run the batcher while the application runs."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._batcher.thread, lambda: self._model.language_names)
        task = asyncio.create_task(self._batcher.run())
        yield
        task.cancel()

    async def translate(self, request: Request) -> Response:
        """POST /translate."""
        given = await self._reader.read(request, TranslationRequest)
        texts = given.texts
        self._check_languages(given)
        wanted = Wanted(given.alternatives + 1, is_detailed=given.confidence)
        is_auto = given.source == "auto"
        detected = [await self._detected(text) for text in texts] if is_auto else []
        as_they_are = [self._is_target(each) for each in detected] or [False] * len(texts)
        to_translate = [text for text, stays in zip(texts, as_they_are, strict=True) if not stays]
        found = iter(await self._of_texts(request, to_translate, wanted))
        answers = []
        for i, text in enumerate(texts):
            if as_they_are[i]:
                of_lines = await asyncio.to_thread(self._unchanged, text, wanted)
            else:
                of_lines = next(found)
            best, *others = _whole_texts(of_lines)
            answer: dict[str, object] = {"translatedText": best, **_facts(of_lines)}
            if given.alternatives:
                answer["alternatives"] = others
            if given.confidence:
                answer["confidence"] = _confidences(of_lines)
            if is_auto:
                answer["detectedLanguage"] = detected[i]
            answers.append(answer)
        if isinstance(given.q, str):
            return json_answer(answers[0])
        together: dict[str, list[object]] = {key: [] for key in answers[0]}
        for answer in answers:
            for key, value in answer.items():
                together[key].append(value)
        return json_answer(together)

    def _is_target(self, detected: Mapping[str, object]) -> bool:
        """Whether a text is clearly in the target language already."""
        _, target = self._model.languages
        return detected["language"] == target and float(str(detected["confidence"])) >= SURE

    def _unchanged(self, text: str, wanted: Wanted) -> list[list[Translation]]:
        """The lines of a text that is already in the target language, as translations."""
        source, _ = self._model.languages
        lines = [Translation(line, 0.0, source=line, src_lang=source) for line in text.split("\n")]
        for line in lines:
            _ = line.facts  # compute it here, in a thread: language detection is slow
        return [[line] * wanted.num_choices for line in lines]

    async def _of_texts(
        self, request: Request, texts: list[str], wanted: Wanted
    ) -> list[list[list[Translation]]]:
        """The translations of each line of each text."""
        lines_of_texts = [text.split("\n") for text in texts]
        lines = [line for of_text in lines_of_texts for line in of_text]
        found = iter(await self._translated(request, lines, wanted))
        return [list(islice(found, len(of_text))) for of_text in lines_of_texts]

    async def _translated(
        self, request: Request, lines: list[str], wanted: Wanted
    ) -> list[list[Translation]]:
        found = await self._batcher.translate(lines, wanted, is_gone=request.is_disconnected)
        self.metrics.lines.inc(len(lines))
        return found

    async def words(self, request: Request) -> Response:
        """POST /words: the word alignment of a line and its best translation."""
        given = await self._reader.read(request, TextRequest)
        text = given.texts[0]
        # Two, so that it is a beam search, as for the page.
        wanted = Wanted(2, is_detailed=True)
        (choices,) = await self._translated(request, text.split("\n")[:1], wanted)
        best = choices[0]
        return json_answer(
            {
                "source": best.src_tokens,
                "translation": best.tokens,
                "alignment": best.alignment,
                **_confidences([choices])[0],
            }
        )

    async def detect(self, request: Request) -> Response:
        """POST /detect."""
        given = await self._reader.read(request, TextRequest)
        return json_answer([await self._detected(text) for text in given.texts])

    async def _detected(self, text: str) -> dict[str, object]:
        language, probability = await asyncio.to_thread(
            detected_language, text, among=self._model.languages
        )
        return {"confidence": round(100 * probability, 1), "language": language}

    async def languages(self, _: Request) -> Response:
        """GET /languages."""
        source, target = self._model.languages
        src_name, tgt_name = self._model.language_names
        return json_answer(
            [
                {"code": source, "name": src_name, "targets": [target]},
                {"code": target, "name": tgt_name, "targets": []},
            ]
        )

    async def settings(self, _: Request) -> Response:
        """GET /frontend/settings."""
        source, target = self._model.languages
        src_name, tgt_name = self._model.language_names
        return json_answer(
            {
                "apiKeys": bool(self._reader.keys),
                "keyRequired": bool(self._reader.keys),
                "charLimit": self._reader.char_limit,
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
        return json_answer({"status": "ok"})

    def _check_languages(self, given: TranslationRequest) -> None:
        source, target = self._model.languages
        for name, code, own in (("source", given.source, source), ("target", given.target, target)):
            if base_language(code) != own and (name, code) != ("source", "auto"):
                shown = visible(code[:20])
                raise HTTPException(400, f"{name} {shown} is not supported; use {own}")


def _whole_texts(of_lines: Sequence[Sequence[Translation]]) -> list[str]:
    """Join the translations of lines to those of the text: the best of each line first."""
    ranks = zip(*of_lines, strict=True)
    return ["\n".join(each.text for each in of_rank) for of_rank in ranks]


def _facts(of_lines: Sequence[Sequence[Translation]]) -> dict[str, object]:
    """The signs of problems in a text's best translation, over all its lines."""
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
    """Mean log-probability per token, and that of each word, in each line's best translation."""
    found: list[dict[str, object]] = []
    for best, *_ in of_lines:
        words = [{"word": word, "logProb": log_prob} for word, log_prob in best.words]
        found.append({"meanLogProb": best.mean_log_prob, "words": words})
    return found
