"""`mt-cli serve`."""

from pathlib import Path
from typing import Annotated

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import DECODING_FLAGS, Checkpoint, OptionalModelPaths, decoding_options
from mt_cli.machine.process import import_extra
from mt_cli.machine.terminal import print_result


@command(
    app,
    "serve runs/sample",
    "serve runs/sample --port 8000 --cors-origin https://example.org",
    flags=DECODING_FLAGS,
    settings="decoding.KEY=VALUE",
)
def serve(
    settings: list[str],
    as_json: bool,
    runs: OptionalModelPaths = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on; 0.0.0.0: all.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option("--port", min=0, max=65535, metavar="N", help="Port; 0: any free port."),
    ] = 8000,
    char_limit: Annotated[
        int,
        typer.Option(
            "--char-limit", min=1, metavar="N", help="Maximum number of characters per request."
        ),
    ] = 20_000,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--cors-origin",
            metavar="ORIGIN",
            help="Website whose scripts may use the API (CORS); * allows all.",
        ),
    ] = None,
    api_keys: Annotated[
        Path | None,
        typer.Option(
            "--api-keys",
            metavar="FILE",
            help="File of API keys, one per line; other requests are refused.",
        ),
    ] = None,
    checkpoint: Checkpoint = "best",
) -> None:
    """Serve a web page for translation, and LibreTranslate's API.

    Prints the address once it is ready, and logs each request, but not its text. On SIGTERM and
    Ctrl-C, running requests are finished first.
    """
    for package in ("uvicorn", "starlette", "prometheus_client", "python_multipart"):
        import_extra(package, extra="serve", needed_by="serve")
    from mt_cli.serving import api, requests, server

    keys = requests.read_keys(api_keys) if api_keys else []
    reader = requests.RequestReader(char_limit=char_limit, keys=keys)
    model = api.ServedModel.of(runs or [], decoding_options(settings, checkpoint))
    _ = model.translator  # load it now, so that errors come before the server starts
    application = server.create_app(model, reader, cors_origins=cors_origin or ())
    listener = server.listening_socket(host, port)
    address = server.address_of(listener, has_keys=bool(keys))

    def tell() -> None:
        print_result(address, {"address": address}, as_json=as_json)

    server.serve_until_stopped(application, listener, on_ready=tell)
