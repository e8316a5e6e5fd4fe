"""The async client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self

import httpx2

from remit.client._asking import (
    API,
    MAX_TRIES,
    STREAM_SILENCE_S,
    Ask,
    ask_cancel,
    ask_create,
    ask_runs,
    check_timeout,
    checked_headers,
    checked_url,
    deliver_body,
    input_body,
    is_loopback,
    may_repeat,
    run_path,
    trust_for,
    wait_before,
    work_path,
)
from remit.client._reading import CancelAnswer, FrameReader, error_of, read_answer, read_shape
from remit.contract import RunRequest, RunView
from remit.errors import HostUnreachable, MisuseError, RemitError
from remit.events import TERMINAL_TYPES, Event
from remit.primitives import check_count, check_flag, check_text


class AsyncClient:
    """Calls a host over HTTP.

    Every method raises the `RemitError` that the host answers with, and `HostUnreachable` where none does;
    and `MisuseError`, before anything is sent, where an argument is of a wrong kind or the client is closed.

    Args:
        base_url: Where the host is, such as `http://127.0.0.1:7433`.
        api_key: `rk_...`.
        timeout_s: How long one answer may take, beyond what a call says that it waits.
        transport: For tests.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        headers = checked_headers(api_key)
        check_timeout(timeout_s)
        self._timeout_s = timeout_s
        self._loop: asyncio.AbstractEventLoop | None = None
        url = checked_url(base_url)
        self._http = httpx2.AsyncClient(
            base_url=url,
            headers=headers,
            timeout=timeout_s,
            transport=transport,
            trust_env=not is_loopback(url),
            verify=trust_for(url),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. Runs go on."""
        await self._http.aclose()

    # ---- runs

    async def create(
        self,
        request: RunRequest | Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        wait_ms: int = 0,
        **fields: Any,
    ) -> RunView:
        """Start a run, or find the one that the same key had started.

        Args:
            request: What is asked; or its fields, by name.
            idempotency_key: Stands for this request; None: one is made, so that it may be sent again.
            wait_ms: How long to wait for the end.
            fields: `prompt`, `binding`, `session_id` ... as in `RunRequest`.

        Cancellation: the run may have been started; its key finds it.
        """
        ask = ask_create(request, fields, idempotency_key=idempotency_key, wait_ms=wait_ms, dry_run=False)
        return read_shape(RunView, await self._ask(ask))

    async def dry_run(
        self, request: RunRequest | Mapping[str, Any] | None = None, **fields: Any
    ) -> dict[str, Any]:
        """What a request would become; nothing is stored, and nothing spent."""
        ask = ask_create(request, fields, idempotency_key=None, wait_ms=0, dry_run=True)
        return await self._ask(ask)

    async def get(self, run_id: str) -> RunView:
        """A run as it stands now."""
        return read_shape(RunView, await self._ask(Ask(method="GET", path=run_path(run_id))))

    async def list(
        self,
        *,
        status: str | None = None,
        session_id: str | None = None,
        binding: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> tuple[tuple[RunView, ...], str | None]:
        """Runs, newest first, and the cursor of the next page."""
        page = await self._ask(
            ask_runs(
                {
                    "status": status,
                    "session_id": session_id,
                    "binding": binding,
                    "cursor": cursor,
                    "limit": limit,
                }
            )
        )
        return tuple(read_shape(RunView, one) for one in page["data"]), page["next_cursor"]

    def events(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """A run's events behind number `after`, to its terminal; a stream that breaks is resumed.

        What isn't stored (`seq` None) comes in between, and may be lost where a stream broke.

        Cancellation: this viewer is gone; the run goes on.
        """
        check_count("after", after)
        run_path(run_id)  # raises here, not at the first step
        self._require_open()
        return self._events(run_id, after)

    async def _events(self, run_id: str, after: int) -> AsyncGenerator[Event]:
        failed = 0
        while True:
            try:
                async with aclosing(self._stream(run_id, after)) as stream:
                    async for event in stream:
                        failed = 0
                        after = event.seq or after
                        yield event
                        if event.type in TERMINAL_TYPES:
                            return
                if (await self.get(run_id)).status.ended and await self._is_told(run_id, after):
                    return
            except (httpx2.TransportError, RemitError) as error:
                failed = await self._pause(failed, error)

    async def _is_told(self, run_id: str, after: int) -> bool:
        """Whether nothing comes behind this number."""
        return not (await self.read_events(run_id, after=after, limit=1))["data"]

    async def _stream(self, run_id: str, after: int) -> AsyncGenerator[Event]:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": str(after)} if after else {})}
        timeout = httpx2.Timeout(self._timeout_s, read=STREAM_SILENCE_S)
        path = run_path(run_id, "events")
        async with self._open().stream("GET", path, headers=headers, timeout=timeout) as response:
            if response.status_code == 204:
                return
            if not response.is_success:
                await response.aread()
                read_answer(response)
                raise error_of(response.status_code, None, response.headers)
            reader = FrameReader()
            async for piece in response.aiter_bytes():
                for event in reader.feed(piece):
                    yield event

    async def wait(self, run_id: str) -> RunView:
        """The run, once it has ended, however it ended. Cancellation: the wait just ends; the run goes on."""
        async for event in self.events(run_id):
            if event.type in TERMINAL_TYPES:
                return read_shape(RunView, event.data)
        return await self.get(run_id)

    async def cancel(
        self, run_id: str, *, reason: str | None = None, tombstone: bool = False, wait_ms: int = 10_000
    ) -> CancelAnswer:
        """Stop a run and everything that it started. Cancellation: the cancel stands; only the wait ends."""
        ask = ask_cancel(run_id, reason=reason, tombstone=tombstone, wait_ms=wait_ms)
        return read_shape(CancelAnswer, await self._ask(ask))

    async def read_events(self, run_id: str, *, after: int = 0, limit: int = 500) -> dict[str, Any]:
        """A page of a run's stored events, as JSON: `{data, next_cursor}`."""
        check_count("after", after)
        check_count("limit", limit, least=1)
        ask = Ask(
            method="GET",
            path=run_path(run_id, "events"),
            query={"after": after, "limit": limit},
            headers={"Accept": "application/json"},
        )
        return await self._ask(ask)

    async def input(self, run_id: str, text: str) -> dict[str, Any]:
        """Add something while a run goes on: the model reads it before its next round; `{changed, run}`."""
        ask = Ask(method="POST", path=run_path(run_id, "input"), body=input_body(text), once=True)
        return await self._ask(ask)

    async def deliver(
        self,
        run_id: str,
        *,
        unreviewed: bool = False,
        allow_protected: bool = False,
        branch: str | None = None,
    ) -> dict[str, Any]:
        """Approve a waiting delivery, or deliver an ended run's patch, all or nothing; `{run, delivery}`."""
        given = deliver_body(unreviewed=unreviewed, allow_protected=allow_protected, branch=branch)
        return await self._ask(Ask(method="POST", path=run_path(run_id, "deliver"), body=given))

    async def discard(self, run_id: str) -> dict[str, Any]:
        """Let the patch of a waiting or ended run never be applied; `{run, delivery}`."""
        return await self._ask(Ask(method="POST", path=run_path(run_id, "discard")))

    async def acknowledge(self, run_id: str, *, accepted: bool = True) -> dict[str, Any]:
        """Accept or refuse the result of a run that waits for it; `{changed, run}`."""
        check_flag("accepted", accepted)
        body = {"accepted": accepted}
        return await self._ask(Ask(method="POST", path=run_path(run_id, "acknowledge"), body=body))

    async def cancel_work(self, work_id: str) -> dict[str, Any]:
        """Stop one piece of work; `{changed, work}`."""
        return await self._ask(Ask(method="POST", path=work_path(work_id, "cancel")))

    async def patch(self, run_id: str) -> str:
        """The run's patch."""
        response = await self._send(Ask(method="GET", path=run_path(run_id, "patch")))
        if not response.is_success:
            read_answer(response)
        return response.text

    async def read(self, path: str, **query: Any) -> Any:
        """Any other thing that the API has to read, such as `host` or `runs/RUN/usage`, as JSON."""
        check_text("path", path)
        return await self._ask(Ask(method="GET", path=f"{API}/{path.lstrip('/')}", query=query))

    # ---- the wire

    def _open(self) -> httpx2.AsyncClient:
        """What connections are made with; they belong to the loop of the first call."""
        self._require_open()
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise MisuseError("a client belongs to the event loop that used it first; see `remit.Client`")
        self._loop = loop
        return self._http

    def _require_open(self) -> None:
        if self._http.is_closed:
            raise MisuseError("the client is closed: make another one")

    async def _ask(self, ask: Ask) -> Any:
        failed = 0
        while True:
            try:
                return read_answer(await self._send_once(ask))
            except (httpx2.TransportError, RemitError) as error:
                failed = await self._pause(failed, error, once=ask.once)

    async def _send(self, ask: Ask) -> httpx2.Response:
        failed = 0
        while True:
            try:
                return await self._send_once(ask)
            except httpx2.TransportError as error:
                failed = await self._pause(failed, error)

    async def _send_once(self, ask: Ask) -> httpx2.Response:
        return await self._open().request(
            ask.method,
            ask.path,
            params=dict(ask.query),
            json=None if ask.body is None else dict(ask.body),
            headers=dict(ask.headers),
            timeout=httpx2.Timeout(self._timeout_s, read=self._timeout_s + ask.waits_s),
        )

    async def _pause(
        self, failed: int, error: httpx2.TransportError | RemitError, *, once: bool = False
    ) -> int:
        """Wait before the next try; returns how many have failed. Raises where none is to follow."""
        if failed + 1 >= MAX_TRIES or not may_repeat(error, once=once):
            raise final_error(error, self._http.base_url) from error
        await asyncio.sleep(wait_before(failed, error))
        return failed + 1


def final_error(error: httpx2.TransportError | RemitError, base_url: httpx2.URL) -> RemitError:
    """The error that the caller gets."""
    if isinstance(error, RemitError):
        return error
    what = str(error) or type(error).__name__
    if "[SSL" in what:
        return HostUnreachable(_tls_trouble(what, base_url))
    if base_url.scheme == "http" and not isinstance(error, httpx2.ConnectError | httpx2.TimeoutException):
        # It ended while it was asked, or waits for TLS: then this is all that is heard of it.
        address = base_url.copy_with(scheme="https")
        told = f"the host at {base_url} broke off ({what}); is it still running?"
        return HostUnreachable(f"{told} If it speaks TLS, write {address}")
    return HostUnreachable(f"the host at {base_url} doesn't answer ({what}); is `remit serve` running?")


def _tls_trouble(what: str, base_url: httpx2.URL) -> str:
    """What is wrong between the two ends of a connection that isn't the host's absence."""
    if "CERTIFICATE_VERIFY_FAILED" in what:
        why = what.rpartition("verify failed: ")[2].partition(" (_ssl")[0]
        return (
            f"the certificate of {base_url} isn't trusted here ({why}); SSL_CERT_FILE names a file with the "
            "authority that signed it"
        )
    if "WRONG_VERSION_NUMBER" not in what:  # what somebody who speaks no TLS at all comes to
        return f"there is no TLS with {base_url}: {what}"
    plain = base_url.copy_with(scheme="http")
    return f"what answers at {base_url} doesn't speak TLS; without it the address is {plain}"
