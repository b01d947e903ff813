"""Measures `mt-cli serve`: requests a second and how long they take, with 1, 8 and 64 clients.

Usage: scripts/bench_serve.py ADDRESS FILE [--requests N]

Each client sends one line of FILE after the other to ADDRESS, over one connection.
"""

import argparse
import asyncio
import itertools
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

CLIENTS = (1, 8, 64)


def request_for(line: str, host: str) -> bytes:
    """The bytes that ask for a translation."""
    body = json.dumps({"q": line, "source": "de", "target": "en"}).encode()
    head = (
        f"POST /translate HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def send(host: str, port: int, requests: Iterator[bytes], seconds: list[float]) -> None:
    """Send `requests` one after the other; note how long each takes."""
    reader, writer = await asyncio.open_connection(host, port)
    for request in requests:
        began_at = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        await reader.readexactly(size)
        seconds.append(time.perf_counter() - began_at)
    writer.close()


async def measure(host: str, port: int, requests: list[bytes], clients: int) -> str:
    """A row of the table."""
    seconds: list[float] = []
    shared = iter(requests)  # each client takes the next
    began_at = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(send(host, port, shared, seconds))
    rate = len(seconds) / (time.perf_counter() - began_at)
    percents = statistics.quantiles(seconds, n=100)
    times = [f"{1000 * percents[percent - 1]:.0f}" for percent in (50, 95, 99)]
    return f"| {clients} | {rate:.0f} | {' | '.join(times)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address")
    parser.add_argument("file", type=Path)
    parser.add_argument("--requests", type=int, default=2000)
    args = parser.parse_args()
    place = urlsplit(args.address)
    host, port = place.hostname or "127.0.0.1", place.port or 80
    lines = args.file.read_text(encoding="utf-8").splitlines()
    print("| clients | requests/s | 50 %, ms | 95 % | 99 % |\n| --- | --- | --- | --- | --- |")
    for clients in CLIENTS:
        chosen = itertools.islice(itertools.cycle(lines), args.requests)
        requests = [request_for(line, host) for line in chosen]
        print(asyncio.run(measure(host, port, requests, clients)), flush=True)


if __name__ == "__main__":
    main()
