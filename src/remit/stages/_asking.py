"""One request of a round, and what a cancel means while it is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Literal, assert_never

from remit.errors import ProviderError
from remit.events import Ephemeral
from remit.models import Delta, ModelPool, ModelReply, ModelRequest
from remit.stages._answers import is_blank
from remit.stages._children import was_cancelled
from remit.stages._ledger import StageLedger
from remit.stages._ports import Journal, Partial, StageInput

_STOPS_FORGIVEN: Final = 1
"""How often a request is asked again after somebody stopped its attempt by hand."""


class Asker:
    """Asks the pool, shows what comes while it comes, and hands back complete replies."""

    def __init__(
        self,
        stage: StageInput,
        pool: ModelPool,
        ledger: StageLedger,
        journal: Journal,
        *,
        partial: Partial,
        remaining_s: Callable[[], float | None],
    ) -> None:
        self._stage = stage
        self._pool = pool
        self._ledger = ledger
        self._journal = journal
        self._partial = partial
        self._remaining_s = remaining_s

    async def ask(self, request: ModelRequest) -> ModelReply:
        """One complete reply.

        Raises:
            ProviderError: The pool's; also when the attempt was stopped by hand twice, or when a cancellation
                came up from below that nobody above had asked for.
            LimitReached: The request doesn't fit into what is left of the run.

        Cancellation: the stream is closed and the attempt's end stored before it goes on.
        """
        for _ in range(_STOPS_FORGIVEN + 1):
            reply = await self._ask_once(request)
            if reply is not None:
                return reply
        raise ProviderError("the attempt was stopped by hand, twice", reason="unavailable")

    async def _ask_once(self, request: ModelRequest) -> ModelReply | None:
        """The reply; None when its attempt was stopped by hand."""
        task = asyncio.current_task()
        assert task is not None, "a stage runs in a task"
        shown = _Shown(self._stage, self._journal, request.round, attempt=self._ledger.current)
        self._ledger.watch(task)
        try:
            return await self._pool.request(
                request, ledger=self._ledger, on_delta=shown.add, remaining_s=self._remaining_s
            )
        except asyncio.CancelledError:
            # The cancel of one attempt is taken back here; that of the stage, or of all above it, goes on.
            stopped = self._ledger.unwatch()
            if was_cancelled() or self._ledger.stage_cancelled():
                raise
            if stopped:
                return None
            raise ProviderError("the request was cancelled from below", reason="unavailable") from None
        except Exception:
            if was_cancelled():
                raise asyncio.CancelledError from None  # a cancel from above wins over any error from below
            raise
        finally:
            self._ledger.unwatch()
            shown.keep_in(self._partial)


class _Shown:
    """What viewers see of a reply while it comes, and what is left of it when it never becomes whole."""

    def __init__(
        self, stage: StageInput, journal: Journal, round_: int, *, attempt: Callable[[], str | None]
    ) -> None:
        self._stage = stage
        self._journal = journal
        self._round = round_
        self._current = attempt
        self._attempt: str | None = None
        self._shown_chars = 0
        self._text: list[str] = []

    def add(self, delta: Delta) -> None:
        """Show a piece; never waits."""
        match delta.kind:
            case "text":
                self._text.append(delta.text)
                self._emit("message.delta", delta.text, **self._place(delta.text))
            case "reasoning":
                self._emit("reasoning.delta", delta.text)
            case "tool_call":
                pass  # a call is shown once it is whole, by `tool.started`
            case _:
                assert_never(delta.kind)

    def keep_in(self, partial: Partial) -> None:
        """Remember the text so far, if there is any."""
        text = "".join(self._text)
        if not is_blank(text):
            partial.text = text

    def _place(self, text: str) -> dict[str, Any]:
        """Where a piece of text belongs: viewers miss pieces, and a further attempt begins anew."""
        attempt = self._current()
        if attempt != self._attempt:
            self._attempt, self._shown_chars = attempt, 0
        offset, self._shown_chars = self._shown_chars, self._shown_chars + len(text)
        return {"attempt_id": attempt, "offset_chars": offset}

    def _emit(self, type_: Literal["message.delta", "reasoning.delta"], text: str, **more: Any) -> None:
        data = {"stage_id": self._stage.stage_id, "round": self._round, "text": text, **more}
        self._journal.emit(Ephemeral(type=type_, data=data, work_id=self._stage.work_id))
