"""`mt-cli serve`."""

from typing import Annotated

import typer

from mt_cli.cli.app import app, command
from mt_cli.cli.flags import DecodingFlags, OptionalModelPaths, OutputFlags
from mt_cli.errors import ResourceError
from mt_cli.machine.terminal import print_result


@command(
    app,
    "serve runs/sample",
    "serve runs/sample --port 8000 --cors-origin https://example.org",
)
def serve(
    output: OutputFlags,
    decoding: DecodingFlags,
    runs: OptionalModelPaths = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0 is all.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="Port; 0 is any that is free.")
    ] = 8000,
    char_limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="Characters that a request may hold.")
    ] = 20_000,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="Web site whose scripts may ask; * is every one."),
    ] = None,
) -> None:
    """Serve a page to translate on, and the API of LibreTranslate.

    Prints the address once it answers. SIGTERM and Ctrl-C let requests finish that have begun.
    """
    try:
        from mt_cli.serving import process, server
    except ImportError as error:
        raise ResourceError(
            f"serve needs packages that cannot be imported ({error}); run: "
            "pip install 'mt_cli[serve]'"
        ) from error
    model = server.ServedModel.of(runs or [], decoding.options())
    application = server.create_app(model, char_limit=char_limit, cors_origins=cors_origin or ())
    listener = process.listening_socket(host, port)
    address = process.address_of(listener)

    def tell() -> None:
        print_result(address, {"address": address}, as_json=output.as_json)

    process.serve_until_stopped(application, listener, on_ready=tell)
