"""Stand-ins for what a stage needs: a pool that plays replies, hands that play results, a full journal.

They hold their callers to the ports: a request with an unanswered call, a fact that isn't in the catalog or
a transcript with a gap is an error here, as it would be at a provider or in a store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any, TypeAlias

from remit.contract import AttemptUsage, ToolResponse
from remit.errors import LimitReached, ProviderError
from remit.events import Artifact, Ephemeral, NewEvent, TranscriptEntry, number_event
from remit.models import (
    AssistantBlock,
    AssistantMessage,
    AttemptFinish,
    AttemptLedger,
    AttemptStart,
    Delta,
    Finish,
    ModelReply,
    ModelRequest,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultsMessage,
)
from remit.stages import ToolUse
from remit.usage import FREE, Price


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReply:
    """One reply of a `FakePool`."""

    text: str = ""
    calls: Sequence[tuple[str, str, str]] = ()
    """(tool call id, name, argument text)."""
    thinking: str = ""
    finish: Finish = "stop"
    input_tokens: int = 10
    output_tokens: int = 5
    gate: asyncio.Event | None = None
    """The reply waits for it after its attempt has begun."""

    def blocks(self) -> tuple[AssistantBlock, ...]:
        """Its parts, as a provider would give them."""
        parts: list[AssistantBlock] = []
        if self.thinking:
            parts.append(ThinkingBlock(text=self.thinking, signature="signed"))
        if self.text:
            parts.append(TextBlock(text=self.text))
        parts += [
            ToolCallBlock(tool_call_id=id_, name=name, arguments=text) for id_, name, text in self.calls
        ]
        return tuple(parts)

    def usage(self) -> AttemptUsage:
        """What it used."""
        return AttemptUsage(
            coverage="reported",
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cache_read_tokens=0,
            cache_write_tokens=0,
            reasoning_tokens=0,
            total_tokens=self.input_tokens + self.output_tokens,
        )


Played: TypeAlias = PoolReply | Exception | Callable[[ModelRequest], PoolReply]


class FakePool:
    """Plays replies in order; an exception among them ends its attempt as failed. Runs out loudly.

    Args:
        replies: What comes back, request by request; a function sees the request first.
        price: The price of every attempt.
        max_output_tokens: The most output that an attempt says it may bring.
        context_window_tokens: How much a conversation may hold.
    """

    def __init__(
        self,
        *replies: Played,
        price: Price | None = FREE,
        max_output_tokens: int = 4_096,
        context_window_tokens: int = 128_000,
    ) -> None:
        self.name = "fake"
        self.context_window_tokens = self.input_room_tokens = context_window_tokens
        self.requests: list[ModelRequest] = []
        self.begun = asyncio.Event()
        """Set while an attempt is in flight."""
        self.sent = 0
        """Attempts that went out: their row was stored, and nothing had stopped them by then."""
        self.bounds: list[int] = []
        """The output bounds that the ledger gave."""
        self._replies = list(replies)
        self._price = price
        self._max_output_tokens = max_output_tokens
        self._attempts = count(1)

    async def prepare(self) -> None:
        """Nothing to import."""

    async def request(
        self,
        request: ModelRequest,
        *,
        ledger: AttemptLedger,
        on_delta: Callable[[Delta], None],
        remaining_s: Callable[[], float | None],
    ) -> ModelReply:
        """One complete reply, one attempt.

        Raises:
            ProviderError: It was played.
            LimitReached: From the ledger.

        Cancellation: the attempt is ended as cancelled.
        """
        check_pairs(request)
        self.requests.append(request)
        if not self._replies:
            raise AssertionError(f"no reply is left for request {len(self.requests)} ({request.stage_id})")
        played = self._replies.pop(0)
        reply = played(request) if callable(played) else played
        attempt_id = f"att_{next(self._attempts)}"
        try:
            self.bounds.append(await ledger.begin(self._start(request, attempt_id)))
        except LimitReached:
            self._replies.insert(0, played)  # nothing was sent, so nobody has had it
            raise
        self.begun.set()
        try:
            return await self._play(request, reply, attempt_id, ledger, on_delta)
        except asyncio.CancelledError:
            cut = AttemptUsage(coverage="interrupted")
            await ledger.end(AttemptFinish(attempt_id=attempt_id, status="cancelled", usage=cut))
            raise
        finally:
            self.begun.clear()

    def _start(self, request: ModelRequest, attempt_id: str) -> AttemptStart:
        return AttemptStart(
            attempt_id=attempt_id,
            stage_id=request.stage_id,
            round=request.round,
            ordinal=1,
            model="fake:model",
            input_tokens_estimate=10,
            max_output_tokens=self._max_output_tokens,
            price=self._price,
        )

    async def _play(
        self,
        request: ModelRequest,
        reply: PoolReply | Exception,
        attempt_id: str,
        ledger: AttemptLedger,
        on_delta: Callable[[Delta], None],
    ) -> ModelReply:
        await asyncio.sleep(0)
        self.sent += 1
        if isinstance(reply, Exception):
            code = reply.reason if isinstance(reply, ProviderError) else None
            usage = AttemptUsage(coverage="refused")
            await ledger.end(AttemptFinish(attempt_id=attempt_id, status="refused", usage=usage, code=code))
            raise reply
        if reply.thinking:
            on_delta(Delta(kind="reasoning", text=reply.thinking))
        if reply.text:
            on_delta(Delta(kind="text", text=reply.text))
        if reply.gate is not None:
            await reply.gate.wait()
        await ledger.end(AttemptFinish(attempt_id=attempt_id, status="completed", usage=reply.usage()))
        return ModelReply(
            message=AssistantMessage(blocks=reply.blocks(), model="fake:model"),
            finish=reply.finish,
            model="fake:model",
            usage=reply.usage(),
            attempt_id=attempt_id,
        )


def check_pairs(request: ModelRequest) -> None:
    """Every call is answered right after its message, in order and once; no id comes twice."""
    seen: set[str] = set()
    for message, after in zip(request.messages, (*request.messages[1:], None), strict=True):
        if not isinstance(message, AssistantMessage):
            continue
        asked = [call.tool_call_id for call in message.tool_calls]
        answered = [r.tool_call_id for r in after.results] if isinstance(after, ToolResultsMessage) else []
        assert asked == answered, f"calls {asked} are answered by {answered}"
        assert seen.isdisjoint(asked), f"an id of {asked} came before"
        assert len(set(asked)) == len(asked), f"an id of {asked} comes twice"
        assert message.tool_calls or message.text.strip(), "an empty assistant message"
        seen.update(asked)


Handler: TypeAlias = Callable[[ToolUse], "ToolResponse | Awaitable[ToolResponse]"]


def tool_response(use: ToolUse, content: str = "ok", **fields: Any) -> ToolResponse:
    """A node's answer to a call; `success` unless told otherwise."""
    return ToolResponse.model_validate(
        {
            "run_id": "run_1",
            "stage_id": use.stage_id,
            "tool_call_id": use.tool_call_id,
            "status": "success",
            "content": content,
            "receipt_id": f"rcp_{use.tool_call_id}",
            **fields,
        }
    )


class FakeTools:
    """Hands that play what each tool does, and note what was asked and how much ran at once."""

    def __init__(self, handlers: Mapping[str, Handler] | None = None) -> None:
        self.uses: list[ToolUse] = []
        self.ended: list[str] = []
        self.stopped: list[str] = []
        self.running = 0
        self.most_at_once = 0
        self.shown_bytes: list[int] = []
        self.handlers: dict[str, Handler] = dict(handlers or {})

    async def call(self, use: ToolUse, *, max_shown_bytes: int) -> ToolResponse:
        """Do one call. Cancellation: noted in `stopped`."""
        self.uses.append(use)
        self.shown_bytes.append(max_shown_bytes)
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            await asyncio.sleep(0)
            answer = self.handlers.get(use.name, tool_response)(use)
            response = answer if isinstance(answer, ToolResponse) else await answer
            self.ended.append(use.tool_call_id)
            return response
        except asyncio.CancelledError:
            self.stopped.append(use.tool_call_id)
            raise
        finally:
            self.running -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One durable step."""

    events: tuple[NewEvent, ...]
    transcript: tuple[TranscriptEntry, ...]

    @property
    def types(self) -> list[str]:
        """The types of its events."""
        return [event.type for event in self.events]


@dataclass(slots=True)
class FakeJournal:
    """Keeps every step; refuses what a store would refuse."""

    steps: list[Step] = field(default_factory=list[Step])
    ephemeral: list[Ephemeral] = field(default_factory=list[Ephemeral])
    fail: list[Exception] = field(default_factory=list[Exception])
    """Raised, one by one, by the next appends; nothing of those is kept."""
    on_append: Callable[[Step], object] | None = None
    """Called when a step is stored."""

    async def append(
        self,
        *events: NewEvent,
        transcript: Sequence[TranscriptEntry] = (),
        artifacts: Sequence[Artifact] = (),
    ) -> None:
        """Keep one step; it is kept also when the waiting task is cancelled."""
        if self.fail:
            raise self.fail.pop(0)
        self._keep(events, transcript)
        await asyncio.sleep(0)

    def hold(self, *events: NewEvent, transcript: Sequence[TranscriptEntry] = ()) -> None:
        """Keep it as a step, as if the next one had come."""
        self._keep(events, transcript)

    def _keep(self, events: Sequence[NewEvent], transcript: Sequence[TranscriptEntry]) -> None:
        for event in events:
            number_event(
                event, seq=1, run_id="run_1", session_id="run_1", at=datetime(2026, 1, 1, tzinfo=UTC)
            )
        for entry in transcript:
            told = [entry.position for entry in self.transcript(entry.stage_id)]
            told += [other.position for other in transcript if other.stage_id == entry.stage_id]
            assert sorted(told) == list(range(len(told))), f"positions {told}"
        step = Step(events=tuple(events), transcript=tuple(transcript))
        self.steps.append(step)
        if self.on_append is not None:
            self.on_append(step)

    def emit(self, ephemeral: Ephemeral) -> None:
        """Keep it."""
        self.ephemeral.append(ephemeral)

    @property
    def events(self) -> list[NewEvent]:
        """All facts, in order."""
        return [event for step in self.steps for event in step.events]

    @property
    def types(self) -> list[str]:
        """Their types."""
        return [event.type for event in self.events]

    def of_type(self, type_: str) -> list[Any]:
        """The payloads of all facts of one type."""
        return [event.payload for event in self.events if event.type == type_]

    def transcript(self, stage_id: str) -> list[TranscriptEntry]:
        """A stage's conversation."""
        return [entry for step in self.steps for entry in step.transcript if entry.stage_id == stage_id]
