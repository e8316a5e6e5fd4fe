"""Which end a run comes to when something went wrong: pure."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from remit.contract import CODES, LimitHit, Terminal, TerminalClass
from remit.errors import InternalError, LimitReached, NodeError, ProviderError, StorageFull
from remit.primitives import clean_text
from remit.stages import StageFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How a run ends, as it is recorded in `run.settling`."""

    terminal: Terminal
    output: str | None = None
    detail: str | None = None
    """What there is to say beyond the terminal's own sentence."""


class Ended(Exception):
    """The pipeline has come to an end that isn't an error of anything below it."""

    def __init__(self, terminal: Terminal, *, detail: str | None = None) -> None:
        super().__init__(f"{terminal.class_}/{terminal.code}")
        self.terminal = terminal
        self.detail = detail
        """What the node said of it."""


class SentBack(Exception):
    """The review wants more work; `summary` tells the work stage what."""

    def __init__(self, summary: str) -> None:
        super().__init__(summary)
        self.summary = summary


_MAX_DETAIL_CHARS = 1_000
_RANK: dict[TerminalClass | None, int] = {
    "cancelled": 0,
    "budget": 1,
    "timeout": 2,
    "provider": 3,
    "workspace": 4,
    "invalid_output": 5,
    "rejected": 6,
    "internal": 7,
}


def classify_error(error: BaseException, *, stage_id: str | None) -> Terminal:
    """The terminal that an error leads to; of several at once, the one that has precedence."""
    ends = [_classify(leaf, stage_id) for leaf in _leaves(error)]
    return min(ends, key=lambda end: _RANK.get(end.class_, 9))


def detail_of(error: BaseException) -> str | None:
    """What the node said, or what was wrong with an answer; bounded. A provider's text isn't among it."""
    for leaf in _leaves(error):
        match leaf:
            case NodeError():
                said = leaf.message
            case Ended() | StageFailure():
                said = leaf.detail
            case _:
                said = None
        if said:
            return clean_text(said)[0][:_MAX_DETAIL_CHARS]
    return None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _classify(error: BaseException, stage_id: str | None) -> Terminal:
    match error:
        case Ended():
            return error.terminal
        case StageFailure():
            return _terminal(error.class_, error.code, stage_id)
        case LimitReached():
            hit = LimitHit(
                kind=str(error.fields.get("kind", error.limit_code)),
                value=error.fields.get("value"),
                cap=error.fields.get("cap"),
            )
            return Terminal.of("budget", error.limit_code, stage=stage_id, limit=hit)
        case ProviderError():
            return _terminal("provider", error.reason, stage_id)
        case NodeError():
            return _terminal("workspace", error.reason, stage_id)
        case StorageFull():
            return Terminal.of("workspace", "storage_full", stage=stage_id)
        case asyncio.CancelledError():
            # The parent is alive and nobody asked: a cancellation that came up from a provider call.
            return Terminal.of("provider", "unavailable", stage=stage_id)
        case _:
            return Terminal.of("internal", "invariant", stage=stage_id)


def _terminal(class_: str, code: str, stage_id: str | None) -> Terminal:
    codes = CODES.get(cast("TerminalClass", class_))
    if codes is None or code not in codes:
        raise InternalError(f"no terminal {class_}/{code}")
    return Terminal.of(cast("TerminalClass", class_), code, stage=stage_id)
