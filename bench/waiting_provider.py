"""A provider that begins each reply and never goes on: `python -m bench.waiting_provider`, for a process.

One line with its address comes out once it listens, and one with the number of replies begun for each line
that comes in; it ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys

_BEGUN = {
    "id": "c",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "gpt-4.1",
    "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}],
}


async def serve() -> None:
    """Serve until standard input ends."""
    begun = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal begun
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:] if line)
        await reader.readexactly(int(fields.get("content-length", "0")))
        record = f"data: {json.dumps(_BEGUN)}\n\n"
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            + f"{len(record):x}\r\n{record}\r\n".encode()
        )
        begun += 1
        await reader.read()  # until the other side has had enough
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=4096)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1\n")
    sys.stdout.flush()
    while await asyncio.to_thread(sys.stdin.readline):
        sys.stdout.write(f"{begun}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(serve())
