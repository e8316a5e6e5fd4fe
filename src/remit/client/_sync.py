"""The sync client: the async one, step for step, without `await`."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import closing
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
from remit.client._async import final_error
from remit.client._reading import CancelAnswer, FrameReader, error_of, read_answer, read_shape
from remit.contract import RunRequest, RunView
from remit.errors import MisuseError, RemitError
from remit.events import TERMINAL_TYPES, Event
from remit.primitives import check_count, check_flag, check_text


class Client:
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
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        headers = checked_headers(api_key)
        check_timeout(timeout_s)
        self._timeout_s = timeout_s
        url = checked_url(base_url)
        self._http = httpx2.Client(
            base_url=url,
            headers=headers,
            timeout=timeout_s,
            transport=transport,
            trust_env=not is_loopback(url),
            verify=trust_for(url),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Runs go on."""
        self._http.close()

    # ---- runs

    def create(
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
        """
        ask = ask_create(request, fields, idempotency_key=idempotency_key, wait_ms=wait_ms, dry_run=False)
        return read_shape(RunView, self._ask(ask))

    def dry_run(self, request: RunRequest | Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        """What a request would become; nothing is stored, and nothing spent."""
        ask = ask_create(request, fields, idempotency_key=None, wait_ms=0, dry_run=True)
        return self._ask(ask)

    def get(self, run_id: str) -> RunView:
        """A run as it stands now."""
        return read_shape(RunView, self._ask(Ask(method="GET", path=run_path(run_id))))

    def list(
        self,
        *,
        status: str | None = None,
        session_id: str | None = None,
        binding: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> tuple[tuple[RunView, ...], str | None]:
        """Runs, newest first, and the cursor of the next page."""
        page = self._ask(
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

    def events(self, run_id: str, *, after: int = 0) -> Generator[Event]:
        """A run's events behind number `after`, to its terminal; a stream that breaks is resumed.

        What isn't stored (`seq` None) comes in between, and may be lost where a stream broke.
        """
        check_count("after", after)
        run_path(run_id)  # raises here, not at the first step
        self._open()
        return self._events(run_id, after)

    def _events(self, run_id: str, after: int) -> Generator[Event]:
        failed = 0
        while True:
            try:
                with closing(self._stream(run_id, after)) as stream:
                    for event in stream:
                        failed = 0
                        after = event.seq or after
                        yield event
                        if event.type in TERMINAL_TYPES:
                            return
                if self.get(run_id).status.ended and self._is_told(run_id, after):
                    return
            except (httpx2.TransportError, RemitError) as error:
                failed = self._pause(failed, error)

    def _is_told(self, run_id: str, after: int) -> bool:
        """Whether nothing comes behind this number."""
        return not self.read_events(run_id, after=after, limit=1)["data"]

    def _stream(self, run_id: str, after: int) -> Generator[Event]:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": str(after)} if after else {})}
        timeout = httpx2.Timeout(self._timeout_s, read=STREAM_SILENCE_S)
        path = run_path(run_id, "events")
        with self._open().stream("GET", path, headers=headers, timeout=timeout) as response:
            if response.status_code == 204:
                return
            if not response.is_success:
                response.read()
                read_answer(response)
                raise error_of(response.status_code, None, response.headers)
            reader = FrameReader()
            for piece in response.iter_bytes():
                yield from reader.feed(piece)

    def wait(self, run_id: str) -> RunView:
        """The run, once it has ended, however it ended."""
        for event in self.events(run_id):
            if event.type in TERMINAL_TYPES:
                return read_shape(RunView, event.data)
        return self.get(run_id)

    def cancel(
        self, run_id: str, *, reason: str | None = None, tombstone: bool = False, wait_ms: int = 10_000
    ) -> CancelAnswer:
        """Stop a run and everything that it started."""
        ask = ask_cancel(run_id, reason=reason, tombstone=tombstone, wait_ms=wait_ms)
        return read_shape(CancelAnswer, self._ask(ask))

    def read_events(self, run_id: str, *, after: int = 0, limit: int = 500) -> dict[str, Any]:
        """A page of a run's stored events, as JSON: `{data, next_cursor}`."""
        check_count("after", after)
        check_count("limit", limit, least=1)
        ask = Ask(
            method="GET",
            path=run_path(run_id, "events"),
            query={"after": after, "limit": limit},
            headers={"Accept": "application/json"},
        )
        return self._ask(ask)

    def input(self, run_id: str, text: str) -> dict[str, Any]:
        """Add something while a run goes on: the model reads it before its next round; `{changed, run}`."""
        return self._ask(Ask(method="POST", path=run_path(run_id, "input"), body=input_body(text), once=True))

    def deliver(
        self,
        run_id: str,
        *,
        unreviewed: bool = False,
        allow_protected: bool = False,
        branch: str | None = None,
    ) -> dict[str, Any]:
        """Approve a waiting delivery, or deliver an ended run's patch, all or nothing; `{run, delivery}`."""
        given = deliver_body(unreviewed=unreviewed, allow_protected=allow_protected, branch=branch)
        return self._ask(Ask(method="POST", path=run_path(run_id, "deliver"), body=given))

    def discard(self, run_id: str) -> dict[str, Any]:
        """Let the patch of a waiting or ended run never be applied; `{run, delivery}`."""
        return self._ask(Ask(method="POST", path=run_path(run_id, "discard")))

    def acknowledge(self, run_id: str, *, accepted: bool = True) -> dict[str, Any]:
        """Accept or refuse the result of a run that waits for it; `{changed, run}`."""
        check_flag("accepted", accepted)
        body = {"accepted": accepted}
        return self._ask(Ask(method="POST", path=run_path(run_id, "acknowledge"), body=body))

    def cancel_work(self, work_id: str) -> dict[str, Any]:
        """Stop one piece of work; `{changed, work}`."""
        return self._ask(Ask(method="POST", path=work_path(work_id, "cancel")))

    def patch(self, run_id: str) -> str:
        """The run's patch."""
        response = self._send(Ask(method="GET", path=run_path(run_id, "patch")))
        if not response.is_success:
            read_answer(response)
        return response.text

    def read(self, path: str, **query: Any) -> Any:
        """Any other thing that the API has to read, such as `host` or `runs/RUN/usage`, as JSON."""
        check_text("path", path)
        return self._ask(Ask(method="GET", path=f"{API}/{path.lstrip('/')}", query=query))

    # ---- the wire

    def _open(self) -> httpx2.Client:
        if self._http.is_closed:
            raise MisuseError("the client is closed: make another one")
        return self._http

    def _ask(self, ask: Ask) -> Any:
        failed = 0
        while True:
            try:
                return read_answer(self._send_once(ask))
            except (httpx2.TransportError, RemitError) as error:
                failed = self._pause(failed, error, once=ask.once)

    def _send(self, ask: Ask) -> httpx2.Response:
        failed = 0
        while True:
            try:
                return self._send_once(ask)
            except httpx2.TransportError as error:
                failed = self._pause(failed, error)

    def _send_once(self, ask: Ask) -> httpx2.Response:
        return self._open().request(
            ask.method,
            ask.path,
            params=dict(ask.query),
            json=None if ask.body is None else dict(ask.body),
            headers=dict(ask.headers),
            timeout=httpx2.Timeout(self._timeout_s, read=self._timeout_s + ask.waits_s),
        )

    def _pause(self, failed: int, error: httpx2.TransportError | RemitError, *, once: bool = False) -> int:
        """Wait before the next try; returns how many have failed. Raises where none is to follow."""
        if failed + 1 >= MAX_TRIES or not may_repeat(error, once=once):
            raise final_error(error, self._http.base_url) from error
        time.sleep(wait_before(failed, error))
        return failed + 1
