"""The fake provider itself: a real HTTP server on loopback, in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from remit.testing.fake_provider._dialect import Dialect
from remit.testing.fake_provider._http import ClientLeftError, Connection, HttpRequest
from remit.testing.fake_provider._ollama import OllamaDialect
from remit.testing.fake_provider._openai_chat import OpenAIChatDialect
from remit.testing.fake_provider._openai_rules import Refusal
from remit.testing.fake_provider._reply import RecordedRequest, Replies, Reply, as_replies


class FakeProvider:
    """A provider for tests: strict as the real one, scripted, and wire-faithful in its faults.

    Use it as a context manager; it listens on an ephemeral port of 127.0.0.1 and needs no network.
    The calling thread stays free: an event loop of its own runs in a daemon thread.

    Args:
        replies: What to answer; more can be added by `script`. A plain text is a reply with that text.
        dialect: How strict it is, and whom it imitates.
        delay_ms: Wait before every answer, besides what its reply says; 0 for benches.
        keep_requests: How many of the newest requests stay on record; None: all of them.
    """

    def __init__(
        self,
        replies: Replies = (),
        *,
        dialect: Dialect | None = None,
        delay_ms: int = 0,
        keep_requests: int | None = None,
    ) -> None:
        self.dialect: Dialect = dialect or OpenAIChatDialect()
        self.delay_ms = delay_ms
        self._keep_requests = keep_requests
        self._count = 0
        self._lock = threading.Lock()
        self._replies = as_replies(replies)
        self._requests: list[RecordedRequest] = []
        self._looks: list[RecordedRequest] = []
        self._arrived = threading.Condition(self._lock)
        self._port = 0
        self.connection_count = 0
        """How many connections clients made."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()

    @property
    def base_url(self) -> str:
        """What a client takes as its base URL: `http://127.0.0.1:PORT`, and what the dialect adds."""
        return f"http://127.0.0.1:{self._port}{self.dialect.base_path}"

    @property
    def api_key(self) -> str:
        """The key that it lets in; any text where it needs none."""
        return self.dialect.api_key or "unused-key"

    @property
    def requests(self) -> list[RecordedRequest]:
        """Every request to a model so far, in the order of arrival."""
        with self._lock:
            return list(self._requests)

    @property
    def looks(self) -> list[RecordedRequest]:
        """Every request that only asked what models there are."""
        with self._lock:
            return list(self._looks)

    @property
    def unused(self) -> list[Reply]:
        """Replies that nobody got yet; those that repeat don't count."""
        with self._lock:
            return [reply for reply in self._replies if not reply.repeat]

    def script(self, *replies: Reply | str) -> None:
        """Add replies after those that are there."""
        with self._lock:
            self._replies += as_replies(replies)

    def wait_for_requests(self, count: int, *, timeout_s: float = 10.0) -> list[RecordedRequest]:
        """The first `count` requests, once they are there.

        Raises:
            TimeoutError: They didn't come in time.
        """
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self._requests) >= count, timeout_s):
                raise TimeoutError(f"{len(self._requests)} of {count} requests came in {timeout_s} s")
            return list(self._requests[:count])

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="fake-provider", daemon=True)
        self._thread.start()
        if not self._ready.wait(10):
            raise RuntimeError("the fake provider didn't start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        assert self._stop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.run(self._serve_until_stopped())

    async def _serve_until_stopped(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()
        server = await self._loop.create_server(
            lambda: Connection(self._serve, tasks), "127.0.0.1", 0, backlog=4096
        )
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _serve(self, connection: Connection) -> None:
        self.connection_count += 1
        while (request := await connection.read_request()) is not None:
            recorded = self._record(request)
            try:
                if not await self._answer(connection, recorded):
                    return
            except ClientLeftError:
                recorded.hung_up = True
                return
            finally:
                recorded.ended.set()

    def _record(self, request: HttpRequest) -> RecordedRequest:
        try:
            value = json.loads(request.body)
        except ValueError:
            value = None
        recorded = RecordedRequest(
            method=request.method,
            path=request.path,
            headers=request.headers,
            body=request.body,
            json=value,
            arrived_at=time.monotonic(),
        )
        with self._arrived:
            # Who only looks at what there is asks nothing of a model.
            looks = request.method == "GET" or request.path.startswith("/api/show")
            record = self._looks if looks else self._requests
            record.append(recorded)
            self._count += not looks
            if self._keep_requests is not None:
                del record[: -self._keep_requests]
            self._arrived.notify_all()
        return recorded

    def _looked_at(self, request: RecordedRequest) -> bytes:
        """What there is to see."""
        if isinstance(self.dialect, OllamaDialect):
            return self.dialect.look(request)
        return self.dialect.list_models()

    def _take(self, request: RecordedRequest) -> tuple[Reply | None, int]:
        with self._lock:
            number = self._count
            for position, reply in enumerate(self._replies):
                if reply.matches(request):
                    if not reply.repeat:
                        del self._replies[position]
                    return reply, number
            return None, number

    async def _answer(self, connection: Connection, request: RecordedRequest) -> bool:
        """Answer one request; whether the connection can take another."""
        refusal = self.dialect.refusal(request)
        if refusal is None and (request.method == "GET" or request.path.startswith("/api/show")):
            return await self._send_json(connection, request, 200, self._looked_at(request))
        reply, number = (None, 0) if refusal is not None else self._take(request)
        if reply is None:
            refusal = refusal or Refusal(
                400, f"the fake has no reply for this: {_shown(request)}", code="script"
            )
            return await self._send_json(
                connection, request, refusal.status, self.dialect.error_body(refusal)
            )
        await connection.pause(reply.delay_ms + self.delay_ms)
        headers = {self.dialect.request_id_header: f"req_fake{number:06d}", **reply.headers}
        if reply.status != 200:
            body = self.dialect.fault_body(reply, request)
            return await self._send_json(
                connection, request, reply.status, body, reply=reply, headers=headers
            )
        kind, pieces = self.dialect.render(reply, request, number=number)
        headers["content-type"] = kind
        return await self._send(connection, request, 200, headers, pieces, reply)

    async def _send_json(
        self,
        connection: Connection,
        request: RecordedRequest,
        status: int,
        body: bytes,
        *,
        reply: Reply | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bool:
        kind = (reply.content_type if reply else None) or "application/json"
        sent = {"content-type": kind, **(headers or {})}
        return await self._send(connection, request, status, sent, [body], reply or Reply(framing="length"))

    async def _send(
        self,
        connection: Connection,
        request: RecordedRequest,
        status: int,
        headers: dict[str, str],
        pieces: list[bytes],
        reply: Reply,
    ) -> bool:
        whole = b"".join(pieces)
        if reply.piece_bytes:
            size = reply.piece_bytes
            pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
        framing: dict[str, str] = {
            "chunked": {"transfer-encoding": "chunked"},
            "length": {"content-length": str(len(whole))},
            "close": {"connection": "close"},
        }[reply.framing]
        request.status = status
        await connection.send_head(status, headers | framing)
        await connection.pause(reply.body_delay_ms)
        limit = len(whole) if reply.break_after_bytes is None else reply.break_after_bytes
        await self._send_pieces(connection, request, pieces, reply, limit)
        if reply.break_after_bytes is not None:
            return await self._break(connection, reply)
        if reply.framing == "chunked":
            await connection.send(b"0\r\n\r\n")
        return reply.framing != "close"

    async def _send_pieces(
        self, connection: Connection, request: RecordedRequest, pieces: list[bytes], reply: Reply, limit: int
    ) -> None:
        left = limit
        for number, piece in enumerate(pieces):
            part = piece[:left]
            left -= len(part)
            if not part:
                continue
            if number and reply.piece_delay_ms:
                await connection.pause(reply.piece_delay_ms)
            framed = b"%x\r\n%b\r\n" % (len(part), part) if reply.framing == "chunked" else part
            await connection.send(framed)
            request.sent_bytes += len(part)

    async def _break(self, connection: Connection, reply: Reply) -> bool:
        if reply.break_how == "hang":
            await connection.pause(3_600_000)
        elif reply.break_how == "reset":
            await asyncio.sleep(0.05)  # so that what was written reaches the client first
            connection.reset()
        return False


def _shown(request: RecordedRequest) -> str:
    body: Any = request.json
    messages = body.get("messages", body.get("input", body.get("contents", ())))
    return f"stage {request.stage}, model {request.model}, {len(messages)} messages"
