"""What the pool and the adapters say to each other about one physical request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from remit.contract import AttemptUsage
from remit.models._messages import AssistantMessage
from remit.models._port import Delta, Finish, ModelRequest

ProviderCode = Literal[
    "rate_limited",
    "auth",
    "unavailable",
    "context_length",
    "content_filter",
    "refusal",
    "empty_result",
    "protocol",
    "cut",
]
"""The provider codes of a terminal."""

NOTHING_SENT = AttemptUsage(
    coverage="refused",
    input_tokens=0,
    output_tokens=0,
    cache_read_tokens=0,
    cache_write_tokens=0,
    reasoning_tokens=0,
    total_tokens=0,
)
"""The provider did no work, so it cost nothing."""
UNKNOWN_USAGE = AttemptUsage(coverage="interrupted")
"""It broke off before any number came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCall:
    """One physical request, for the member that was chosen."""

    request: ModelRequest
    attempt_id: str
    model: str
    """As the provider knows it."""
    full_model: str
    """`NAME:MODEL`."""
    max_output_tokens: int | None
    """The bound to send; None: none."""
    window_tokens: int | None = None
    """The context window, where it is known."""
    bound_is_assumed: bool = False
    """Nobody asked for that bound: it is what we assume of a model that isn't known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The end mark was seen, and the content is whole."""

    message: AssistantMessage
    finish: Finish
    usage: AttemptUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """There is no whole reply."""

    status: Literal["refused", "cut", "failed"]
    reason: ProviderCode
    usage: AttemptUsage
    detail: str
    """What the provider said, or what happened: masked, bounded."""
    retryable: bool
    """Whether the same request may fare better."""
    most_retries: int | None = None
    """A lower bound on retries than the usual one."""
    pause_s: float | None = None
    """What the provider asks for."""
    pauses_key: bool = False
    """The pause is for everybody who uses the key."""
    adapted: bool = False
    """The adapter will send something else next time; that is worth one more attempt at once."""


Outcome = Completed | Broken


class Exchange(Protocol):
    """What has been read of one reply so far. The pool looks into it when the attempt is cancelled."""

    @property
    def provider_request_id(self) -> str | None:
        """The provider's own id of the request."""
        ...

    @property
    def finish_word(self) -> str | None:
        """The provider's own word for why it stopped."""
        ...

    def usage_so_far(self) -> AttemptUsage:
        """What is known of the usage when nothing more is read."""
        ...


class Adapter(Protocol):
    """One configured provider: its client, its dialect, its key."""

    async def prepare(self) -> None:
        """Import what is needed and make the client, in a thread; idempotent."""
        ...

    async def find_window(self, model: str) -> int | None:
        """The context window of a model as its server was started with; None where that needn't be asked."""
        ...

    def open(self, call: AttemptCall) -> Exchange:
        """The record that `run` will fill."""
        ...

    async def run(
        self, call: AttemptCall, exchange: Exchange, *, on_delta: Callable[[Delta], None]
    ) -> Outcome:
        """Send the request once and read the reply.

        Never raises for what a provider does; a fault of ours goes through.

        Cancellation: the stream is closed; `exchange` holds what was read.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...
