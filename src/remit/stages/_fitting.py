"""Requests that fit: old parts of the conversation give way before one is sent, and when one was refused."""

from __future__ import annotations

from collections.abc import Callable

from remit.contract import ToolSpec
from remit.errors import ProviderError
from remit.models import ModelReply, ModelRequest, estimate_input_tokens
from remit.stages import _notices as notices
from remit.stages._asking import Asker
from remit.stages._conversation import Conversation
from remit.stages._room import Room


class FittingAsker:
    """Asks with a conversation that fits.

    Args:
        asker: Who is asked.
        conversation: What is sent.
        room: How much of it there may be.
        readable: Whether the model can read an output again.
    """

    def __init__(self, asker: Asker, conversation: Conversation, *, room: Room, readable: bool) -> None:
        self._asker = asker
        self._conversation = conversation
        self._room = room
        self._readable = readable
        self._tools_tokens: dict[tuple[str, ...], int] = {}

    def _estimate(self, request: ModelRequest) -> int:
        """The conversation keeps its own count, so that a long one isn't gone through again each time."""
        return self._conversation.tokens + self._estimate_tools(request.tools)

    def _estimate_tools(self, tools: tuple[ToolSpec, ...]) -> int:
        """Schemas are rendered to be measured, so each set of tools is measured once."""
        names = tuple(tool.name for tool in tools)
        if names not in self._tools_tokens:
            self._tools_tokens[names] = estimate_input_tokens((), tools)
        return self._tools_tokens[names]

    async def ask(self, request: Callable[[], ModelRequest]) -> ModelReply:
        """One complete reply; a request that the provider finds too long is shortened and sent once more.

        Args:
            request: Makes the request from the conversation as it is then.

        Raises:
            ProviderError, LimitReached: As of `Asker.ask`.
        """
        first = request()
        if self._make_room(first):
            first = request()
        try:
            return await self._ask(first)
        except ProviderError as error:
            if error.reason != "context_length":
                raise
            self._room.refused(estimated=self._estimate(first))
            if not self.give_way(first):
                raise
        return await self._ask(request())

    def give_way(self, request: ModelRequest) -> bool:
        """Halve the input of the next request; False when nothing can go."""
        half = self._estimate(request) // 2
        return self._shorten(request, most=half, target=half)

    async def _ask(self, request: ModelRequest) -> ModelReply:
        reply = await self._asker.ask(request)
        counted = reply.usage.input_tokens if reply.usage.coverage == "reported" else None
        self._room.learn(estimated=self._estimate(request), counted=counted)
        return reply

    def _make_room(self, request: ModelRequest) -> bool:
        if self._estimate(request) <= self._room.most:
            return False
        return self._shorten(request, most=self._room.most, target=self._room.target)

    def _shorten(self, request: ModelRequest, *, most: int, target: int) -> bool:
        tools = self._estimate_tools(request.tools)
        shortened = self._conversation.shorten(
            most=max(1, most - tools), target=max(1, target - tools), readable=self._readable
        )
        if shortened is None:
            return False
        self._conversation.say(notices.made_room(shortened))
        return True
