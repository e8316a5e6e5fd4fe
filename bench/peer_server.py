"""The least that a server in front of a provider can be: Starlette, uvicorn and the provider's SDK.

`python -m bench.peer_server BASE_URL KEY`: its address is the first line; `POST /v1/chat/completions` streams
what the provider says. No queue, no store, no bill, no key: what all of that costs is the difference.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncGenerator

import uvicorn
from openai import AsyncOpenAI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route


def application(client: AsyncOpenAI) -> Starlette:
    """The application."""

    async def chat(request: Request) -> Response:
        body = await request.json()

        async def frames() -> AsyncGenerator[str]:
            stream = await client.chat.completions.create(
                model="gpt-4.1", messages=body["messages"], stream=True
            )
            async for chunk in stream:
                yield f"data: {chunk.model_dump_json(exclude_unset=True)}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(frames(), media_type="text/event-stream")

    async def healthy(_: Request) -> Response:
        return PlainTextResponse("ok")

    return Starlette(
        routes=[Route("/v1/chat/completions", chat, methods=["POST"]), Route("/healthz", healthy)]
    )


async def main() -> None:
    """Serve until a signal comes."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    async with AsyncOpenAI(base_url=sys.argv[1], api_key=sys.argv[2], max_retries=0) as client:
        config = uvicorn.Config(application(client), log_level="error", access_log=False)
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        await uvicorn.Server(config).serve([listener])


if __name__ == "__main__":
    asyncio.run(main())
