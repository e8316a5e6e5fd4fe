"""What a model's reply means for its stage: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from remit.contract import StageKind
from remit.models import AssistantMessage, Finish, ToolCallBlock
from remit.stages._answers import SHAPES, Invalid, Valid, is_blank, read_arguments, read_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A valid answer."""

    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotValid:
    """An answer that isn't valid."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsAsked:
    """Tool calls that are to be done, perhaps with a submit beside them that can't be taken."""

    calls: tuple[ToolCallBlock, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutShort:
    """The provider cut the reply at its output limit: nothing of it counts, however whole it looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """Neither text nor a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """The provider's filter, or the model itself, withheld the reply."""

    code: str
    """`content_filter` or `refusal`."""


Meaning: TypeAlias = Answered | NotValid | ToolsAsked | CutShort | Empty | Withheld


def read_reply(kind: StageKind, message: AssistantMessage, finish: Finish) -> Meaning:
    """What a complete reply means.

    A submit call that stands alone is the answer, whatever text is beside it; text beside other calls is
    a remark. Without calls the text is the answer.
    """
    if finish == "length":
        return CutShort()
    if finish == "content_filter" or finish == "refusal":
        return Withheld(code=finish)
    calls = message.tool_calls
    if not calls:
        return Empty() if is_blank(message.text) else _read(read_text(kind, message.text))
    submit = SHAPES[kind].tool
    if len(calls) == 1 and calls[0].name == submit:
        return _read(read_arguments(kind, calls[0].arguments))
    if all(call.name == submit for call in calls):
        return NotValid(reason=f"`{submit}` was called {len(calls)} times in one reply.")
    return ToolsAsked(calls=calls)


def _read(answer: Valid | Invalid) -> Answered | NotValid:
    match answer:
        case Valid():
            return Answered(fields=answer.fields)
        case Invalid():
            return NotValid(reason=answer.reason)
        case _:
            assert_never(answer)
