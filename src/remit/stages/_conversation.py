"""One stage's conversation: whole at every request, kept as it came, only added to while it has room."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from remit.models import (
    AssistantBlock,
    AssistantMessage,
    Message,
    ToolCallBlock,
    ToolResult,
    ToolResultsMessage,
    UserMessage,
    estimate_input_tokens,
)
from remit.primitives import Ids
from remit.stages._answers import is_blank
from remit.stages._elision import Shortened, shorten
from remit.stages._log import StageLog
from remit.stages._notices import INTERRUPTED, NOT_BEGUN


class Conversation:
    """The messages of a stage, and their transcript.

    Every call of an assistant message is answered in the message right after it, before anything
    else is said and before anything is sent. What is given up when room gets short is given up in what
    is sent alone: the transcript keeps the whole.
    """

    def __init__(self, log: StageLog, ids: Ids, *, head: Sequence[Message]) -> None:
        self._log = log
        self._ids = ids
        self._messages: list[Message] = []
        self._seen_ids: set[str] = set()
        self._head = len(head)
        self._lines: tuple[str, ...] = ()
        self.tokens = 0
        """An estimate of what is sent."""
        for message in head:
            self._add(message)

    def to_send(self) -> tuple[Message, ...]:
        """What the next request carries.

        A reply that held nothing that can be sent back is left out (providers refuse an empty
        assistant message); the transcript keeps it.
        """
        assert not self._open_calls(), "a call without its result was about to be sent"
        return tuple(message for message in self._messages if not _is_empty_reply(message))

    def shorten(self, *, most: int, target: int, readable: bool) -> Shortened | None:
        """Give up what is oldest until `target` tokens are sent, or fewer; None: nothing can be given up.

        Args:
            most: The estimate with which a lesser step is enough.
            target: The estimate to come down to.
            readable: Whether the model can read an output again.
        """
        assert not self._open_calls(), "a call waits for its result"
        shortened = shorten(
            self._messages, head=self._head, target=target, most=most, lines=self._lines, readable=readable
        )
        if shortened is not None:
            self._messages = list(shortened.messages)
            self._lines = shortened.lines
            self.tokens = shortened.tokens
        return shortened

    def add_reply(self, message: AssistantMessage) -> AssistantMessage:
        """Take up the model's reply, as it came but for tool call ids, which are made unique in the stage."""
        taken = replace(message, blocks=tuple(self._with_own_id(block) for block in message.blocks))
        self._add(taken)
        return taken

    def _with_own_id(self, block: AssistantBlock) -> AssistantBlock:
        if not isinstance(block, ToolCallBlock):
            return block
        if not block.tool_call_id or block.tool_call_id in self._seen_ids:
            block = replace(block, tool_call_id=self._ids.new("call"))
        self._seen_ids.add(block.tool_call_id)
        return block

    def add_results(self, results: Sequence[ToolResult], *, note: str | None = None) -> None:
        """Answer the calls of the reply before, all of them, in call order."""
        asked = [call.tool_call_id for call in self._open_calls()]
        assert asked == [result.tool_call_id for result in results], "the results don't match the calls"
        self._add(ToolResultsMessage(results=tuple(results), note=note))

    def say(self, text: str) -> None:
        """Tell the model something when no call waits for a result."""
        assert not self._open_calls(), "a call waits for its result"
        self._add(UserMessage(text=text))

    def make_whole(self, known: Sequence[ToolResult] = (), *, begun: Collection[str] = ()) -> None:
        """Answer calls that got no result because the stage ended; results that are known are kept.

        Args:
            known: The results that there are.
            begun: Ids of calls that may have done something.
        """
        calls = self._open_calls()
        if not calls:
            return
        found = {result.tool_call_id: result for result in known}
        results = tuple(
            found.get(call.tool_call_id) or _cut_off(call, begun=call.tool_call_id in begun) for call in calls
        )
        self._add(ToolResultsMessage(results=results))

    def _add(self, message: Message) -> None:
        self._messages.append(message)
        self.tokens += estimate_input_tokens((message,))
        self._log.say(message)

    def _open_calls(self) -> tuple[ToolCallBlock, ...]:
        last = self._messages[-1] if self._messages else None
        return last.tool_calls if isinstance(last, AssistantMessage) else ()


def _is_empty_reply(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and not message.tool_calls and is_blank(message.text)


def _cut_off(call: ToolCallBlock, *, begun: bool) -> ToolResult:
    return ToolResult(
        tool_call_id=call.tool_call_id,
        name=call.name,
        content=INTERRUPTED if begun else NOT_BEGUN,
        status="cancelled",
    )
