"""`mt-cli serve` as clients see it: a process of its own, asked over HTTP."""

import gzip
import json
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode

import pytest
from libretranslatepy import LibreTranslateAPI
from prometheus_client.parser import text_string_to_metric_families
from served import JSON, LIMIT, Served, serving
from workspace import Workspace

from mt_cli import Translator

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def served(workspace: Workspace) -> Iterator[Served]:
    with serving(workspace, "--cors-origin", "https://example.org") as server:
        yield server
        code, log = server.stop()
    assert code == 143
    assert "Hund" not in log  # no text is logged


@pytest.fixture(scope="module")
def translator(workspace: Workspace) -> Translator:
    return Translator.load(workspace.run, device="cpu", threads=1)


@pytest.fixture(scope="module")
def known(workspace: Workspace) -> list[str]:
    return workspace.corpus("train.de").read_text(encoding="utf-8").splitlines()[1:6]


def test_text_is_translated_line_by_line(
    served: Served, translator: Translator, known: list[str]
) -> None:
    text = f"{known[0]}\n\n{known[1]}\n"
    expected = "\n".join(translator.translate(text.split("\n")))
    status, answer = served.translate(text)
    assert (status, answer["translatedText"]) == (200, expected)
    fields = urlencode({"q": text, "source": "de", "target": "en"})
    form = "application/x-www-form-urlencoded"
    assert served.ask("POST", "/translate", fields, form)[1]["translatedText"] == expected
    assert served.ask("POST", f"/translate?{fields}")[1]["translatedText"] == expected


def test_lists_alternatives_and_languages_are_answered(
    served: Served, workspace: Workspace, known: list[str]
) -> None:
    beams = Translator.load(workspace.run, device="cpu", threads=1, beam_size=5)
    expected = beams.translate_n_best(known, n_best=3)
    status, answer = served.translate(known, alternatives=2, source="auto")
    assert status == 200
    assert answer["translatedText"] == [of_line[0].text for of_line in expected]
    others = [[each.text for each in of_line[1:]] for of_line in expected]
    assert answer["alternatives"] == others
    assert len(answer["detectedLanguage"]) == len(known)


def test_how_sure_the_model_is_stands_beside_the_translation(
    served: Served, translator: Translator, known: list[str]
) -> None:
    text = f"{known[0]}\n\n{known[1]}"
    plain, answer = served.translate(text), served.translate(text, confidence=True)
    confidence = answer[1].pop("confidence")
    assert answer == plain
    found = translator.translate_n_best(text.split("\n"), with_words=True)
    for (best,), of_line in zip(found, confidence, strict=True):
        assert of_line["meanLogProb"] == pytest.approx(best.mean_log_prob, abs=1e-4)
        assert [each["word"] for each in of_line["words"]] == [word for word, _ in best.words]
        log_probs = [log_prob for _, log_prob in best.words]
        assert [each["logProb"] for each in of_line["words"]] == pytest.approx(log_probs, abs=1e-4)
    assert served.translate([text], confidence="1")[1]["confidence"] == [confidence]


def test_terms_of_a_glossary_stand_in_the_answer_or_are_named(
    workspace: Workspace, known: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "terms.tsv"
    words = [line.split()[0] for line in known[:2]]
    path.write_text(f"{words[0]}\tPerhaps\n{words[1]} x\tnever\n", encoding="utf-8")
    with serving(workspace, "--glossary", path) as server:
        _, answer = server.translate(known[0])
        assert "Perhaps" in answer["translatedText"]
        assert answer["missingTerms"] == []
        path.write_text(f"{words[0]}\t{'very ' * 40}\n", encoding="utf-8")
        assert server.translate([known[0]])[1]["missingTerms"] == [[]]  # the file is read once


def test_what_is_wrong_is_told_as_in_python(
    served: Served, translator: Translator, known: list[str]
) -> None:
    lines = [*known, "98765 Hunde.", "Łódź.", "The weather is nice today and I am happy."]
    _, answer = served.translate(lines)
    found = [best for (best,) in translator.translate_n_best(lines)]
    for key in ("language", "isSplit", "changedNumber", "isBroken", "isCut"):
        name = re.sub("(?=[A-Z])", "_", key).lower()
        assert answer[key] == [getattr(each, name) for each in found]
    assert [answer["changedNumber"][-3], answer["language"][-1]] == [True, "en"]
    assert "Ł" in answer["unlearntLetters"][-2]


def test_text_in_the_target_language_comes_back_as_it_is(served: Served) -> None:
    english = "The weather is nice today and I am happy."
    french = "Un chien court dans la neige avec une balle."
    _, answer = served.translate([english, french], source="auto")
    assert answer["translatedText"][0] == english
    assert [each["language"] for each in answer["detectedLanguage"]] == ["en", "fr"]
    assert answer["language"] == ["en", "fr"]
    assert served.translate(english, source="auto")[1]["translatedText"] == english


def test_the_client_of_libretranslate_works(
    served: Served, translator: Translator, known: list[str]
) -> None:
    client = LibreTranslateAPI(served.address)
    assert client.translate(known[0], "de", "en") == translator.translate(known[:1])[0]
    assert client.detect("Das ist ein schöner Tag im Garten.")[0]["language"] == "de"
    assert client.languages()[0] == {"code": "de", "name": "German", "targets": ["en"]}


def test_the_page_needs_nothing_from_elsewhere_and_may_be_framed_by_nobody(served: Served) -> None:
    status, page, headers = served.ask("GET", "/")
    assert status == 200
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    for name in re.findall(r'(?:href|src)="(?!data:)([^"]+)"', page):
        assert served.ask("GET", f"/{name}")[0] == 200
    assert "style=" not in page
    assert not re.search("https?://| on[a-z]+=", page)


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        ("{", JSON, 400),
        ("[" * 100_000, JSON, 413),
        ("[" * 3000, JSON, 400),
        ("[]", JSON, 400),
        (b"\xff\xfe", JSON, 400),
        ('{"q": [], "source": "de", "target": "en"}', JSON, 400),
        ('{"q": ["a", null], "source": "de", "target": "en"}', JSON, 400),
        ('{"q": "a", "source": "fr", "target": "en"}', JSON, 400),
        ('{"q": "a", "source": "\\ud800", "target": "en"}', JSON, 400),
        ('{"q": "a", "source": "de", "target": "en", "alternatives": 99}', JSON, 400),
        ('{"q": "a", "source": "de", "target": "en", "format": "html"}', JSON, 400),
        (json.dumps({"q": "a" * (LIMIT + 1), "source": "de", "target": "en"}), JSON, 400),
        ("&".join(["a=b"] * 200), "application/x-www-form-urlencoded", 400),
        ("q=a", "multipart/form-data", 400),
        ("q=a", "text/plain", 415),
        ("", "", 400),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_no_request_is_refused_with_a_reason(
    served: Served, body: str | bytes, kind: str, status: int
) -> None:
    found, answer, headers = served.ask("POST", "/translate", body, kind)
    assert found == status
    assert set(answer) == {"error"}
    assert "content-security-policy" in headers


@pytest.mark.parametrize("text", ["", "\ud83d", "\0\x1b[31m", "?!"])
def test_odd_text_is_answered(served: Served, text: str) -> None:
    assert served.translate(text)[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("GET", "/translate", 405),
        ("POST", "/", 405),
    ],
)
def test_health_is_answered_and_other_methods_are_refused(
    served: Served, method: str, path: str, status: int
) -> None:
    assert served.ask(method, path, "{}" if method == "POST" else None)[0] == status


@pytest.mark.parametrize(
    ("origin", "is_allowed"), [("https://example.org", True), ("https://evil.example", False)]
)
def test_scripts_of_the_named_site_alone_may_read_answers(
    served: Served, origin: str, is_allowed: bool
) -> None:
    headers = served.ask("GET", "/health", Origin=origin)[2]
    assert ("access-control-allow-origin" in headers) == is_allowed


def test_chunked_bodies_and_broken_requests_do_not_stop_it(
    served: Served, translator: Translator, known: list[str]
) -> None:
    body = json.dumps({"q": known[0], "source": "de", "target": "en"}).encode()
    with closing(served.connect()) as connection:
        connection.request("POST", "/translate", iter([body[:9], body[9:]]), {"Content-Type": JSON})
        answer = json.loads(connection.getresponse().read())
    assert answer["translatedText"] == translator.translate(known[:1])[0]
    head = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    rubbish = [
        b"\x16\x03\x01\x02\x00\x01",
        b"GET\r\n\r\n",
        head + b"Content-Length: many\r\n\r\n{}",
        head + b"Content-Length: 500\r\n\r\n{}",  # and no more
        head + b"X: " + b"a" * 100_000,
        head + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    ]
    for data in rubbish:
        with socket.create_connection((served.host, int(served.port)), timeout=30) as connection:
            connection.sendall(data)
    assert served.translate(known[0])[0] == 200


FAILING = """
from mt_cli.__main__ import main
from mt_cli.serving.batcher import Batcher

async def fail(batcher, lines, *args, **options):
    raise ValueError(f"{lines} cannot be translated")

Batcher.translate = fail
main()
"""


def test_who_answers_others_is_warned_and_a_failure_is_logged_without_what_it_quotes(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("served.MT_CLI", (sys.executable, "-c", FAILING))
    with serving(workspace, "--host", "0.0.0.0") as server:
        assert re.fullmatch(r"http://0\.0\.0\.0:\d+", server.address)
        assert server.translate("Ein Hund")[0] == 500
        log = server.stop()[1]
    assert "is open to everyone" in log
    assert "ValueError at " in log
    assert "Hund" not in log


def test_many_at_once_get_what_each_has_asked(
    served: Served, translator: Translator, known: list[str]
) -> None:
    texts = [known[i % len(known)] for i in range(60)]
    expected = dict(zip(known, translator.translate(known), strict=True))
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(served.translate, texts))
    assert [status for status, _ in answers] == [200] * len(texts)
    assert [answer["translatedText"] for _, answer in answers] == [expected[text] for text in texts]


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGHUP])
def test_a_request_that_has_begun_is_finished_before_the_end(
    workspace: Workspace, known: list[str], number: signal.Signals
) -> None:
    with serving(workspace) as server, closing(server.connect()) as connection:
        body = json.dumps({"q": known, "source": "de", "target": "en", "alternatives": 4})
        connection.request("POST", "/translate", body, {"Content-Type": JSON})
        time.sleep(0.05)
        code, log = server.stop(number)
        assert len(json.loads(connection.getresponse().read())["translatedText"]) == len(known)
    assert (code, log.splitlines()[1:]) == (128 + number, ["stopped"])


@pytest.mark.parametrize("host", ["127.0.0.1", "no such host"])
def test_a_port_that_is_taken_and_a_host_that_is_none_are_named(
    served: Served, workspace: Workspace, host: str
) -> None:
    outcome = workspace.call("serve", workspace.run, "--host", host, "--port", served.port)
    assert outcome.code == 5
    assert f"{host}:{served.port}" in outcome.err


def metrics_of(served: Served) -> dict[str, float]:
    """Each sample by its name and labels, as Prometheus reads it."""
    text = served.ask("GET", "/metrics")[1]
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(str(value) for value in sample.labels.values())
            found[f"{sample.name} {labels}".strip()] = sample.value
    return found


def test_metrics_and_the_log_tell_what_was_asked_but_never_a_text(workspace: Workspace) -> None:
    with serving(workspace) as server:
        assert server.translate("Ein Hund\nund ein Mann")[0] == 200
        assert server.translate(["Ein Hund", "Ja"], alternatives=2)[0] == 200
        assert server.translate("Ein Hund", target="fr")[0] == 400
        assert server.ask("GET", "/Hund%0a%1b[1m")[0] == 404
        found = metrics_of(server)
        log = server.stop()[1]
    assert found["mt_cli_requests_total /translate,200"] == 2
    assert found["mt_cli_requests_total /translate,400"] == 1
    assert found["mt_cli_requests_total other,404"] == 1
    assert found["mt_cli_errors_total"] == 2
    assert found["mt_cli_lines_total"] == 4
    assert found["mt_cli_letters_total"] == 21 + 10 + 8
    assert found["mt_cli_waiting_lines"] == 0
    assert found["mt_cli_request_seconds_count /translate"] == 3
    assert 0 < found["mt_cli_request_seconds_sum /translate"] < 60
    assert [re.sub(r"\d+ ms", "N ms", line) for line in log.splitlines()] == [
        "POST /translate 200  N ms  21 characters",
        "POST /translate 200  N ms  10 characters",
        "POST /translate 400  N ms  8 characters",
        r"GET /Hund\n\x1b[1m 404  N ms  0 characters",
        "GET /metrics 200  N ms  0 characters",
        "stopped",
    ]


def test_only_who_has_a_key_is_answered(
    workspace: Workspace, tmp_path: Path, known: list[str]
) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("# of the team\nfirst-ß\n\n  second  \n", encoding="utf-8")
    with serving(workspace, "--host", "0.0.0.0", "--api-keys", keys) as server:
        server.host, server.address = "127.0.0.1", f"http://127.0.0.1:{server.port}"
        for wrong in ({}, {"api_key": ""}, {"api_key": "third"}, {"api_key": "\ud800"}):
            assert server.translate(known[0], **wrong)[0] == 403
        assert server.ask("POST", "/detect", json.dumps({"q": "Ja"}))[0] == 403
        assert server.ask("POST", "/words", json.dumps({"q": "Ja"}))[0] == 403
        assert server.translate(known[0], api_key=["second"])[0] == 400
        assert server.translate(known[0], api_key="first-ß")[0] == 200
        assert LibreTranslateAPI(server.address, "second").translate(known[0], "de", "en")
        assert server.ask("GET", "/frontend/settings")[1]["keyRequired"] is True
        assert server.ask("GET", "/health")[0] == 200
        log = server.stop()[1]
    assert "is open to everyone" not in log
    assert not any(key in log for key in ("first", "second", "third"))


def test_a_file_without_a_key_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("# none\n")
    outcome = workspace.call("serve", workspace.run, "--port", 0, "--api-keys", keys)
    assert (outcome.code, outcome.out) == (3, b"")
    assert "keys.txt" in outcome.err


def form_data(**fields: str) -> tuple[bytes, str]:
    """A multipart body, and its content type."""
    parts = ""
    for name, value in fields.items():
        parts += f'--x7\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
    return f"{parts}--x7--\r\n".encode(), "multipart/form-data; boundary=x7"


def test_a_multipart_form_is_answered_as_json_is(served: Served, known: list[str]) -> None:
    body, kind = form_data(q=known[0], source="auto", target="en", alternatives="1", format="")
    status, answer, _ = served.ask("POST", "/translate", body, kind)
    assert status == 200
    assert answer == served.translate(known[0], source="auto", alternatives=1)[1]


def test_forms_are_bounded(served: Served, known: list[str]) -> None:
    many = form_data(q=known[0], source="de", target="en", **{f"n{i}": "" for i in range(200)})
    assert served.ask("POST", "/translate", *many)[0] in (400, 413)
    large = form_data(q="a" * 50_000, source="de", target="en")
    assert served.ask("POST", "/translate", *large)[0] == 413
    file = form_data(q=known[0], source="de", target="en")[0].replace(
        b'name="source"', b'name="source"; filename="a.txt"'
    )
    assert served.ask("POST", "/translate", file, "multipart/form-data; boundary=x7")[0] == 400
    packed = gzip.compress(json.dumps({"q": "Ja", "source": "de", "target": "en"}).encode())
    status, answer, _ = served.ask(
        "POST", "/translate", packed, JSON, **{"Content-Encoding": "gzip"}
    )
    assert status == 415
    assert "Content-Encoding" in answer["error"]
