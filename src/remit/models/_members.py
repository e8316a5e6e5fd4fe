"""The members of a pool: who is asked next, and who isn't for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from remit.models._attempt import Adapter, Broken
from remit.models._catalog import find_model, known_max_output, known_window, takes_images
from remit.models._json_mode import as_json_request, refuses_tools
from remit.models._messages import AssistantMessage, Message
from remit.models._port import ModelRequest
from remit.models._retry import Jitter, KeyPause, backoff_s
from remit.models._settings import PoolMember, ProviderSettings
from remit.primitives import Clock

_LONG_COOL_DOWN_S = 60.0
"""For a key that isn't taken, a model that isn't there, a quota that is used up."""
_FALLS_BACK = frozenset({"auth", "unavailable", "rate_limited", "protocol", "cut", "empty_result"})
"""Failures that say something of a member, not of what was asked."""


@dataclass(slots=True, kw_only=True)
class ProviderHandle:
    """A configured provider at work; pools that use the same one share it."""

    settings: ProviderSettings
    adapter: Adapter
    pause: KeyPause = field(default_factory=KeyPause)


class Member:
    """One member at work."""

    def __init__(self, settings: PoolMember, provider: ProviderHandle) -> None:
        self.settings = settings
        self.provider = provider
        self.replies_in_json = settings.tool_mode == "json"
        """Whether it is asked for one JSON object a round, in place of tool calls."""
        self.in_flight = 0
        """Requests that are being answered, or hold a place to be."""
        self._permits = asyncio.Semaphore(settings.max_concurrency) if settings.max_concurrency else None
        self._looked = False
        self._told_window_tokens: int | None = None
        self._failures = 0
        self._cool_until = 0.0

    @property
    def model(self) -> str:
        """`NAME:MODEL`."""
        return self.settings.model

    @property
    def context_window_tokens(self) -> int:
        """How much a conversation with it may hold."""
        return self.found_window_tokens or known_window(self.settings.model_name)

    @property
    def found_window_tokens(self) -> int | None:
        """The window that was set, or that the server on one's own machine told; None: neither."""
        return self.settings.context_window_tokens or self._told_window_tokens

    async def look(self) -> None:
        """Ask the provider for the model's window, once, where nobody set it."""
        if self._looked or self.settings.context_window_tokens is not None:
            return
        self._looked = True
        self._told_window_tokens = await self.provider.adapter.find_window(self.settings.model_name)

    @property
    def input_room_tokens(self) -> int:
        """What the longest reply leaves of it; half of it at least, since few replies are as long."""
        window = self.context_window_tokens
        return max(window // 2, window - self.longest_reply_tokens)

    @property
    def takes_images(self) -> bool:
        """Whether it may be shown pictures."""
        return takes_images(self.settings.model_name, self.settings.images)

    @property
    def longest_reply_tokens(self) -> int:
        """The most that can come where nothing else is asked for."""
        return self.settings.max_output_tokens or known_max_output(self.settings.model_name)

    @property
    def bounds_itself(self) -> bool:
        """Whether the provider keeps to that by itself."""
        return self.settings.max_output_tokens is None and find_model(self.settings.model_name) is not None

    def form(self, request: ModelRequest) -> ModelRequest:
        """The request in the form that this member takes."""
        return as_json_request(request) if self.replies_in_json else request

    def learns_json(self, outcome: Broken, *, offered: bool) -> bool:
        """Whether its server has just said that it can't call tools; from now on it is asked for JSON.

        Args:
            outcome: What came.
            offered: Whether this request offered it tools. Others beside it may have learned it meanwhile.
        """
        learns = offered and self.settings.tool_mode == "auto"
        if not learns or outcome.status != "refused" or not refuses_tools(outcome.detail):
            return False
        self.replies_in_json = True
        return True

    def permit(self) -> AbstractAsyncContextManager[Any]:
        """A place among the requests in flight; entering it may wait."""
        return nullcontext() if self._permits is None else self._permits

    def is_free(self, clock: Clock) -> bool:
        """Whether it would be asked at once: not paused, not cooling down, a place left."""
        full = self._permits is not None and self._permits.locked()
        return not full and self.provider.pause.left_s(clock) <= 0 and self.cools_s(clock) <= 0

    def cools_s(self, clock: Clock) -> float:
        """Seconds for which others are preferred."""
        return max(0.0, self._cool_until - clock.monotonic())

    def succeeded(self) -> None:
        """It gave a reply."""
        self._failures, self._cool_until = 0, 0.0

    def failed(self, outcome: Broken, *, clock: Clock, jitter: Jitter) -> None:
        """It failed: prefer others for a while, longer each time."""
        if outcome.adapted or outcome.reason not in _FALLS_BACK:
            return
        self._failures += 1
        cool_s = backoff_s(self._failures, jitter) if outcome.retryable else _LONG_COOL_DOWN_S
        self._cool_until = clock.monotonic() + max(cool_s, outcome.pause_s or 0.0)


def bound_to(members: Sequence[Member], messages: Iterable[Message]) -> Member | None:
    """The member whose tool calls stand in the conversation: nobody else goes on with them."""
    models = [
        message.model for message in messages if isinstance(message, AssistantMessage) and message.tool_calls
    ]
    return next((member for member in members if models and member.model == models[-1]), None)


def may_serve_after(outcome: Broken, failed: Member, other: Member) -> bool:
    """Whether another member may fare better with the same request."""
    if outcome.reason == "context_length":
        return other.context_window_tokens > failed.context_window_tokens
    return outcome.reason in _FALLS_BACK


def choose(candidates: Sequence[Member], *, last_model: str | None, clock: Clock, jitter: Jitter) -> Member:
    """The member to ask: of those that are free the lowest order, there the least busy for its weight.

    Where nobody is free: the one that will be soonest. Whoever gave the conversation's last reply is
    preferred among equals of one order, since its cache holds the prompt.

    Args:
        candidates: Who may be asked; at least one.
        last_model: `NAME:MODEL` of the conversation's last reply.
        clock: For pauses.
        jitter: Decides among equals, by weight.
    """
    free = [member for member in candidates if member.is_free(clock)]
    if not free:
        return min(candidates, key=lambda member: _wait(member, clock))
    order = min(member.settings.order for member in free)
    free = [member for member in free if member.settings.order == order]
    for member in free:
        if member.model == last_model:
            return member
    load = min(member.in_flight / member.settings.weight for member in free)
    return _drawn([member for member in free if member.in_flight / member.settings.weight == load], jitter)


def _wait(member: Member, clock: Clock) -> tuple[float, float, int]:
    """How long it may take until a member is free, as something to compare."""
    blocked_s = max(member.provider.pause.left_s(clock), member.cools_s(clock))
    return blocked_s, member.in_flight / member.settings.weight, member.settings.order


def _drawn(members: Sequence[Member], jitter: Jitter) -> Member:
    """One of them, by weight."""
    point = jitter() * sum(member.settings.weight for member in members)
    for member in members:
        point -= member.settings.weight
        if point < 0:
            return member
    return members[-1]
