"""The same answers through us and through peers in one run: a bare server, LiteLLM's proxy if there is one.

Ours is a binding of profile `answer`: admitted, stored, billed, streamed through OpenAI's door. The bare one
(`bench.peer_server`) is what no server can be below. `REMIT_BENCH_LITELLM` names the `litellm` program of an
environment with `litellm[proxy]`.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import statistics
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
from bench.bench_runs import MODEL, Provider, provider
from bench.bench_server import Served, prepare, started

ROOT = Path(__file__).resolve().parents[1]
ALONE = 50
AT_ONCE, COUNT = 200, 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one server did."""

    name: str
    ready_s: float
    idle_mib: float
    """Before the first request, of all its processes."""
    first_p50_ms: float
    """To the first byte of an answer, one request at a time."""
    rate: float
    """Answers a second, 200 at once."""


@asynccontextmanager
async def peer(words: list[str], url: str | None, ready: str, **more: str) -> AsyncGenerator[Served]:
    """A peer in a process of its own; without a known address it prints it."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **more}
    begun = time.monotonic()
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *words, env=environment, stdout=asyncio.subprocess.PIPE if url is None else quiet, stderr=quiet,
        cwd=ROOT,
    )  # fmt: skip
    try:
        if url is None:
            assert process.stdout is not None
            url = (await process.stdout.readline()).decode().strip()
        async with httpx2.AsyncClient(timeout=5, trust_env=False) as client:
            while True:
                try:
                    if (await client.get(url + ready)).status_code == 200:
                        break
                except httpx2.TransportError:
                    if process.returncode is not None:
                        raise RuntimeError(f"{words[0]} ended with {process.returncode}") from None
                await asyncio.sleep(0.02)
        key = more.get("LITELLM_MASTER_KEY", "key")
        yield Served(url=url, key=key, pid=process.pid, ready_s=time.monotonic() - begun)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 20)
            except TimeoutError:
                process.kill()
                await process.wait()


async def ask(client: httpx2.AsyncClient, model: str) -> float:
    """One streamed answer, read to its end; milliseconds to its first byte."""
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "Say ok."}]}
    begun = time.perf_counter()
    first: float | None = None
    text = b""
    async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        async for piece in answer.aiter_bytes():
            first = first or (time.perf_counter() - begun) * 1000
            text += piece
    if first is None or b"[DONE]" not in text or b'"finish_reason":"stop"' not in text:
        raise RuntimeError(f"no answer: {answer.status_code} {text[-300:]!r}")
    return first


async def measure_one(name: str, served: Served, model: str) -> Figures:
    """The figures of a server that is ready."""
    idle = served.all_mib()
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=AT_ONCE)
    async with served.client(limits=limits) as client:
        for _ in range(5):
            await ask(client, model)
        alone = [await ask(client, model) for _ in range(ALONE)]
        places = asyncio.Semaphore(AT_ONCE)

        async def one() -> None:
            async with places:
                await ask(client, model)

        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(COUNT):
                group.create_task(one())
        rate = COUNT / (time.perf_counter() - begun)
    return Figures(
        name=name,
        ready_s=served.ready_s,
        idle_mib=idle,
        first_p50_ms=statistics.median(alone),
        rate=rate,
    )


def _ours(home: Path, fake: Provider) -> Path:
    return prepare(
        home,
        more=f'[providers.fake]\nkind = "openai-compatible"\nbase_url = "{fake.base_url}"\n'
        'api_key_env = "FAKE_KEY"\n'
        f'[prices."fake:{MODEL}"]\nfree = true\n[pools.fake]\nmembers = [{{ model = "fake:{MODEL}" }}]\n'
        '[bindings.answer]\nprofile = "answer"\nwork = { pool = "fake" }\n',
        max_running=AT_ONCE,
    )


async def _measure_litellm(program: str, home: Path, fake: Provider) -> Figures:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = home / "litellm.yaml"
    config.write_text(
        f"model_list:\n  - model_name: peer\n    litellm_params:\n      model: openai/{MODEL}\n"
        f"      api_base: {fake.base_url}\n      api_key: {fake.api_key}\n"
    )
    words = [program, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    more = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks the internet
        "LITELLM_MASTER_KEY": f"sk-{secrets.token_hex(32)}",
        "NO_PROXY": "127.0.0.1",
    }
    async with peer(words, f"http://127.0.0.1:{port}", "/health/liveliness", **more) as served:
        return await measure_one("LiteLLM proxy", served, "peer")


async def measure_peers(home: Path) -> AsyncGenerator[Figures]:
    """Ours first, then the peers."""
    with provider("forget") as fake:
        config = await asyncio.to_thread(_ours, home, fake)
        async with started(home, config, FAKE_KEY=fake.api_key) as served:
            yield await measure_one("remit, profile answer", served, "answer")
        words = [sys.executable, "-m", "bench.peer_server", fake.base_url, fake.api_key]
        more = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
        async with peer(words, None, "/healthz", **more) as served:
            yield await measure_one("bare Starlette and SDK", served, "peer")
        program = os.environ.get("REMIT_BENCH_LITELLM")
        if program:
            yield await _measure_litellm(program, home, fake)
