"""What a stage asks of a model, and what it gets back.

One `ModelPool.request` is one request of a round. The pool picks a member, sends one or more
physical attempts (it alone owns retries), and either returns a complete reply or raises. The caller
cancels by cancelling the task: the provider's stream is closed, and the attempt's end is recorded,
before `CancelledError` goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from remit.contract import AttemptUsage, ToolSpec
from remit.models._messages import AssistantMessage, Message
from remit.usage import Price

Finish = Literal["stop", "tool_calls", "length", "content_filter", "refusal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request of a round."""

    run_id: str
    """Given to the provider as its session id; never empty."""
    stage_id: str
    round: int
    """1 for the stage's first."""
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    options: Mapping[str, Any]
    """The stage's own options (temperature, reasoning_effort, …), of the stage binding."""
    max_output_tokens: int | None = None
    """None: the member's own maximum."""
    reply_schema: Mapping[str, Any] | None = None
    """The JSON schema that the reply's text must keep to; set by the pool for members that reply in JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """A complete reply: its dialect's end mark was seen."""

    message: AssistantMessage
    finish: Finish
    """`length`: the provider cut it; never an answer, and its tool calls are never run."""
    model: str
    """`NAME:MODEL` that gave it."""
    usage: AttemptUsage
    attempt_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStart:
    """A physical request that is about to be sent."""

    attempt_id: str
    stage_id: str
    round: int
    ordinal: int
    model: str
    input_tokens_estimate: int
    max_output_tokens: int
    """The most that can come: the request's own bound, else the model's."""
    price: Price | None
    pool: str | None = None
    """The pool that chose the member; None: nobody said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFinish:
    """How a physical request ended."""

    attempt_id: str
    status: Literal["completed", "refused", "cut", "failed", "cancelled"]
    usage: AttemptUsage
    code: str | None = None
    """A provider code where it wasn't completed (None when cancelled)."""
    detail: str | None = None
    """What the provider said: masked, at most 2 000 characters."""
    finish: str | None = None
    """The provider's own word."""
    provider_request_id: str | None = None
    duration_ms: int = 0
    waited_ms: int = 0
    """Pause before this attempt (rate limits, back-off, a full member)."""


class AttemptLedger(Protocol):
    """Who must know of each attempt. Implemented by the stage."""

    def waiting(self) -> AbstractContextManager[None]:
        """Entered while an attempt waits for a rate limit, a back-off or a place: no working time passes."""
        ...

    async def begin(self, start: AttemptStart) -> int:
        """Reserve its worst case and store its row; returns once that is durable.

        Returns:
            The most output tokens that this attempt may ask for: `start.max_output_tokens`, or less where
            only less fits into what is left of a limit. The request must be sent with it.

        Raises:
            LimitReached: It doesn't fit into what is left; nothing was sent.
        """
        ...

    async def end(self, finish: AttemptFinish) -> None:
        """Store how it ended and settle its reservation. Called exactly once per `begin`, also on cancel."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A piece of a reply while it comes, for viewers."""

    kind: Literal["text", "reasoning", "tool_call"]
    text: str


class ModelPool(Protocol):
    """Provider models that can serve a stage."""

    name: str

    @property
    def context_window_tokens(self) -> int:
        """How much a conversation may hold that any of its members can go on with."""
        ...

    @property
    def input_room_tokens(self) -> int:
        """How much of that may be input, so that a reply has its place beside it."""
        ...

    async def prepare(self) -> None:
        """Import the provider's module and make its client, in a thread; idempotent."""
        ...

    async def request(
        self,
        request: ModelRequest,
        *,
        ledger: AttemptLedger,
        on_delta: Callable[[Delta], None],
        remaining_s: Callable[[], float | None],
    ) -> ModelReply:
        """One complete reply.

        Args:
            request: What to ask.
            ledger: Told of each attempt before it is sent and after it ended.
            on_delta: Called on the loop's thread; must not wait.
            remaining_s: Seconds that stage and run have left; a pause longer than that isn't begun.

        Raises:
            ProviderError: It failed for good; `reason` is the provider code.
            LimitReached: From the ledger.

        Cancellation: the stream is closed and the ledger told; nothing is sent after that.
        """
        ...
