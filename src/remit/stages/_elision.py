"""What of a conversation still fits: pure, and the same for the same messages.

Three steps, each only when the one before wasn't enough:

1. Results of old rounds are replaced by a line that says how to read them again; then those of all rounds
   but the last one.
2. Old rounds are taken out whole, a reply always together with the results of its calls. What was done
   in them stands in one message after the head, and what the caller said meanwhile after that.
3. The results of the rounds that are left are cut in the middle.

Replies themselves are never changed, only kept or taken out: their signatures hold for what was received.
More is given up than is needed for now, so that the next requests begin with the same bytes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from remit.models import (
    AssistantMessage,
    Message,
    ToolResult,
    ToolResultsMessage,
    UserMessage,
    estimate_input_tokens,
)
from remit.primitives import dump_json
from remit.stages._clip import clip_line, clip_middle
from remit.stages._notices import FROM_CALLER

KEPT_ROUNDS: Final = 4
"""The latest rounds keep their results as long as giving up older ones is enough."""
SHORT_CHARS: Final = 600
"""Results up to this length are never replaced: the line in their place would save nothing."""
LINES_SHARE: Final = 5
"""One part in so many of the target may go to lines about rounds that were taken out."""

_LAST_LINE_CHARS: Final = 160
_TEXT_CHARS: Final = 200
_CALL_CHARS: Final = 120
_CUT_SIZES: Final = (8_000, 4_000, 2_000, 1_000, 500)
_CHARS_A_TOKEN: Final = 3
_EARLIER: Final = "[… earlier lines left out …]"
_READ_AGAIN: Final = "read_output"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortened:
    """A conversation that takes less room."""

    messages: tuple[Message, ...]
    tokens: int
    """Their estimate."""
    results_replaced: int
    rounds_left_out: int
    results_cut: int
    lines: tuple[str, ...]
    """What was done in all rounds that were ever taken out."""


def shorten(
    messages: Sequence[Message],
    *,
    head: int,
    target: int,
    most: int,
    lines: Sequence[str] = (),
    readable: bool = True,
) -> Shortened | None:
    """Bring a conversation down to `target`, or as near as it gets.

    Args:
        messages: All that would be sent.
        head: How many messages at the beginning are never touched.
        target: Estimated tokens to come down to.
        most: Estimated tokens with which a lesser step is enough.
        lines: About rounds that were taken out before; the message after the head holds them.
        readable: Whether `read_output` is among the tools.

    Returns:
        None: nothing can be given up.
    """
    work = _Shortening(messages, head=head, lines=lines, readable=readable)
    work.replace_results(target, keep=KEPT_ROUNDS)
    if work.tokens > most:
        work.replace_results(target, keep=1)
    if work.tokens > most:
        work.leave_out_rounds(target)
    if work.tokens > most:
        work.cut_results(target)
    return work.result()


class _Shortening:
    """One conversation that is being shortened."""

    def __init__(
        self, messages: Sequence[Message], *, head: int, lines: Sequence[str], readable: bool
    ) -> None:
        self._head = list(messages[:head])
        rest = list(messages[head:])
        if lines and rest and isinstance(rest[0], UserMessage):
            del rest[0]  # what was said of earlier rounds; it is written anew
        self._lines = list(lines)
        self._said: list[Message] = []
        """Of the caller, from rounds that were taken out: it is part of what is asked."""
        self._rounds = list(_rounds(rest))
        self._readable = readable
        self._sizes = [_size(messages) for messages in self._rounds]
        self._fixed = _size(self._head)
        self._replaced = self._left_out = self._cut = 0

    @property
    def tokens(self) -> int:
        return self._fixed + _size(self._about()) + _size(self._said) + sum(self._sizes)

    def result(self) -> Shortened | None:
        if not (self._replaced or self._left_out or self._cut):
            return None
        rest = [message for round_ in self._rounds for message in round_]
        return Shortened(
            messages=(*self._head, *self._about(), *self._said, *rest),
            tokens=self.tokens,
            results_replaced=self._replaced,
            rounds_left_out=self._left_out,
            results_cut=self._cut,
            lines=tuple(self._lines),
        )

    def replace_results(self, target: int, *, keep: int) -> None:
        """The oldest results first, those of the latest rounds not at all."""
        total = self.tokens
        for number in range(len(self._rounds) - keep):
            if total <= target:
                return
            before = self._sizes[number]
            self._change_results(number, self._replacement)
            total += self._sizes[number] - before

    def leave_out_rounds(self, target: int) -> None:
        """The oldest rounds first; the last one stays."""
        while len(self._rounds) > 1 and self.tokens > target:
            round_ = self._rounds.pop(0)
            del self._sizes[0]
            said = [message for message in round_ if _is_of_caller(message)]
            self._said += said
            if len(said) == len(round_):
                continue
            self._lines = _bounded(
                [*self._lines, *_told(round_)], max_chars=target * _CHARS_A_TOKEN // LINES_SHARE
            )
            self._left_out += 1

    def cut_results(self, target: int) -> None:
        """All that are left, to the largest of a few sizes with which they fit."""
        for size in _CUT_SIZES:
            for number in range(len(self._rounds)):
                self._change_results(number, partial(self._cut_to, size=size))
            if self.tokens <= target:
                return

    def _change_results(self, number: int, change: Callable[[ToolResult], ToolResult]) -> None:
        round_ = self._rounds[number]
        changed = [
            replace(message, results=tuple(change(result) for result in message.results))
            if isinstance(message, ToolResultsMessage)
            else message
            for message in round_
        ]
        if changed != round_:
            self._rounds[number] = changed
            self._sizes[number] = _size(changed)

    def _replacement(self, result: ToolResult) -> ToolResult:
        if len(result.content) <= SHORT_CHARS:
            return result
        self._replaced += 1
        last = clip_line(result.content.rstrip().rpartition("\n")[2], max_chars=_LAST_LINE_CHARS)
        text = (
            f"[Left out to save room: {len(result.content)} characters. {self._again(result)} "
            f"The last line was:]\n{last}"
        )
        return replace(result, content=text)

    def _cut_to(self, result: ToolResult, *, size: int) -> ToolResult:
        if len(result.content) <= size + 2 * SHORT_CHARS:
            return result
        self._cut += 1
        content = f"{clip_middle(result.content, max_chars=size)}\n[Cut to save room. {self._again(result)}]"
        return replace(result, content=content)

    def _again(self, result: ToolResult) -> str:
        if not self._readable:
            return "Make the call again if you need it."
        arguments = dump_json({"tool_call_id": result.tool_call_id, "offset_bytes": 0})
        return f"{_READ_AGAIN} {arguments} shows it again."

    def _about(self) -> list[Message]:
        if not self._lines:
            return []
        listed = "\n".join(self._lines)
        text = (
            "[Remit: earlier rounds of this stage were taken out to save room. What was said and called in "
            f"them, oldest first; files may have changed since:]\n{listed}"
        )
        return [UserMessage(text=text)]


def _rounds(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """A reply and what answered it; what stands before the first reply is a round of its own.

    A result without its call, or a call without its result, is part of the round it stands in: it is kept
    or taken out with it, and bars nothing.
    """
    round_: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage) and round_:
            yield round_
            round_ = []
        round_.append(message)
    if round_:
        yield round_


def _is_of_caller(message: Message) -> bool:
    return isinstance(message, UserMessage) and message.text.startswith(FROM_CALLER)


def _size(messages: Iterable[Message]) -> int:
    return estimate_input_tokens(messages)


def _told(round_: Iterable[Message]) -> Iterator[str]:
    """A round in a few lines: what the model said, and how each of its calls ended."""
    held = list(round_)
    ends = {
        result.tool_call_id: result.status
        for message in held
        if isinstance(message, ToolResultsMessage)
        for result in message.results
    }
    for message in held:
        if not isinstance(message, AssistantMessage):
            continue
        if message.text.strip():
            yield f'- you: "{clip_line(" ".join(message.text.split()), max_chars=_TEXT_CHARS)}"'
        for call in message.tool_calls:
            asked = clip_line(call.arguments, max_chars=_CALL_CHARS)
            name = clip_line(call.name, max_chars=80)
            yield f"- {name} {asked}: {ends.get(call.tool_call_id, 'no result')}"


def _bounded(lines: list[str], *, max_chars: int) -> list[str]:
    """The newest lines, as many as there is room for."""
    kept: list[str] = []
    left = max_chars
    for line in reversed(lines):
        left -= len(line) + 1
        if left < 0:
            return [_EARLIER, *reversed(kept)]
        kept.append(line)
    return list(reversed(kept))
