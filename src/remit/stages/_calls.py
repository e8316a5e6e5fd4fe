"""The tool calls of one reply: which are done, in what order, and what the model is told of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, cast

from remit.contract import ToolCompleted, ToolResponse, ToolSpec, ToolStarted, ToolStatus
from remit.errors import NodeError
from remit.events import NewEvent
from remit.models import ToolCallBlock, ToolResult
from remit.primitives import Clock, StrictJsonError, clean_text, load_json
from remit.stages._children import Children, was_cancelled
from remit.stages._clip import clip_end, clip_line, clip_middle
from remit.stages._log import StageLog
from remit.stages._notices import INTERRUPTED
from remit.stages._ports import CommandRecord, Partial, StageInput, Tools, ToolUse

AT_ONCE: Final = 8
"""Reading calls of one round that run beside each other."""
SHOWN_AFTER_S: Final = 0.25
"""While others of its round go on, a finished call is on record after this long."""

_KEPT_TAIL_CHARS: Final = 800
_LABEL_CHARS: Final = 120
_LABEL_KEYS: Final = ("command", "relative_path", "path", "pattern", "query", "id", "name", "prompt")
_NEVER_REACHED: Final[frozenset[str]] = frozenset({"denied", "invalid_arguments", "cancelled"})
_NO_FAULT: Final[frozenset[str]] = frozenset({"success", "cancelled", "outcome_unknown"})
_MARK_CHARS: Final = 2048
"""What a node's own marks may take beyond the bound that it was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """What came of one call."""

    call: ToolCallBlock
    result: ToolResult
    changed_files: bool = False

    @property
    def failed(self) -> bool:
        """Whether it failed for a reason that lies in the call."""
        return self.result.status not in _NO_FAULT


class ToolRound:
    """Does the tool calls of a stage, reply by reply.

    Calls keep their order where it matters. Reading calls that stand next to each other run beside each
    other, at most eight at once; a call that changes files or runs a command goes alone, after the calls
    before it and before those after it. So `[write a, read a]` reads what was written, every time.
    """

    def __init__(
        self,
        stage: StageInput,
        tools: Tools | None,
        log: StageLog,
        *,
        specs: Sequence[ToolSpec],
        partial: Partial,
        clock: Clock,
    ) -> None:
        self._stage = stage
        self._tools = tools
        self._log = log
        self._partial = partial
        self._clock = clock
        self._effects = {spec.name: spec.effect for spec in specs}
        self._open: dict[str, ToolCallBlock] = {}
        self._began: dict[str, float] = {}
        self._outcomes: dict[str, CallOutcome] = {}
        self.changed: dict[str, None] = {}
        """Paths that file tools changed, in the order of their first change."""
        self.used = False
        """Whether a call has reached the workspace."""
        self.begun: set[str] = set()
        """Ids of calls that were handed to the node, whatever came of them."""

    @property
    def known(self) -> tuple[ToolResult, ...]:
        """The results of the latest reply's calls so far, also when the rest was cut off."""
        return tuple(outcome.result for outcome in self._outcomes.values())

    async def run(self, calls: Sequence[ToolCallBlock]) -> Mapping[str, CallOutcome]:
        """Do the calls, all of tools that there are; what came of each, by id.

        Raises:
            NodeError: The node is lost or can't open the checkout; the other calls were stopped.

        Cancellation: every call is stopped first; what is known stays readable in `known`.
        """
        self._outcomes = {}
        if not calls:
            return {}
        self._open, self._began = {call.tool_call_id: call for call in calls}, {}
        self._log.add(*(self._started(call) for call in calls))
        try:
            await self._log.flush()
            await self._carry_out(calls)
        finally:
            self._close_open()
        for call in calls:
            if call.tool_call_id not in self._outcomes:
                self._outcomes[call.tool_call_id] = _without_result(call)
        return self._outcomes

    async def _carry_out(self, calls: Sequence[ToolCallBlock]) -> None:
        """Do them in their order, and put on record what is finished while others go on."""
        if len(calls) == 1:
            return await self._do(calls[0])
        async with Children() as children:
            children.start(self._show_finished())
            await self._in_order(calls)
        return None

    async def _show_finished(self) -> None:
        while True:
            await self._clock.sleep(SHOWN_AFTER_S)
            await self._log.flush()

    async def _in_order(self, calls: Sequence[ToolCallBlock]) -> None:
        for reading, batch in groupby(calls, key=lambda call: self._effects[call.name] == "read"):
            if reading:
                await self._beside_each_other(list(batch))
            else:
                for call in batch:
                    await self._do(call)

    async def _beside_each_other(self, calls: list[ToolCallBlock]) -> None:
        places = asyncio.Semaphore(AT_ONCE)

        async def do(call: ToolCallBlock) -> None:
            async with places:
                await self._do(call)

        async with Children() as children:
            for call in calls:
                children.start(do(call))
            await children.join()

    async def _do(self, call: ToolCallBlock) -> None:
        use = ToolUse(
            stage_id=self._stage.stage_id,
            tool_call_id=call.tool_call_id,
            name=call.name,
            arguments=call.arguments,
        )
        assert self._tools is not None, "a stage without tools was about to use one"
        self.begun.add(call.tool_call_id)
        self._began[call.tool_call_id] = self._clock.monotonic()
        try:
            response = await self._tools.call(use, max_shown_bytes=self._stage.limits.max_tool_output_bytes)
        except NodeError:
            self._close(call, status="outcome_unknown", duration_ms=self._took_ms(call))
            raise
        except asyncio.CancelledError:
            if was_cancelled():
                raise
            return  # cancelled from below, while nobody above asked for it: this call has no result
        self._take(call, response)

    def _take(self, call: ToolCallBlock, response: ToolResponse) -> None:
        content, _ = clean_text(response.content)
        content = clip_middle(content, max_chars=self._stage.limits.max_tool_output_bytes + _MARK_CHARS)
        self._outcomes[call.tool_call_id] = CallOutcome(
            call=call,
            result=ToolResult(
                tool_call_id=call.tool_call_id,
                name=call.name,
                content=content or _without_content(response),
                status=response.status,
            ),
            changed_files=bool(response.changed),
        )
        self.used = self.used or response.status not in _NEVER_REACHED
        self.changed.update(dict.fromkeys(response.changed))
        if response.command is not None:
            self._partial.commands.append(self._record(response, response.command, content))
        self._close(
            call,
            status=response.status,
            exit_code=response.exit_code,
            duration_ms=response.duration_ms or self._took_ms(call),
            receipt_id=response.receipt_id,
            leftovers=response.leftovers,
        )

    def _record(self, response: ToolResponse, command: str, content: str) -> CommandRecord:
        return CommandRecord(
            stage_id=self._stage.stage_id,
            command=command,
            exit_code=response.exit_code,
            status=response.status,
            tail=clip_end(content, max_chars=_KEPT_TAIL_CHARS),
        )

    # ---- what goes on record

    def _started(self, call: ToolCallBlock) -> NewEvent:
        payload = ToolStarted(
            tool_call_id=call.tool_call_id,
            stage_id=self._stage.stage_id,
            name=call.name,
            label=call_label(call.arguments),
        )
        return self._event("tool.started", call, payload)

    def _close(
        self,
        call: ToolCallBlock,
        *,
        status: ToolStatus,
        duration_ms: int | None,
        exit_code: int | None = None,
        receipt_id: str | None = None,
        leftovers: tuple[str, ...] = (),
    ) -> None:
        del self._open[call.tool_call_id]
        payload = ToolCompleted(
            tool_call_id=call.tool_call_id,
            stage_id=self._stage.stage_id,
            name=call.name,
            status=status,
            exit_code=exit_code,
            duration_ms=duration_ms,
            receipt_id=receipt_id,
            leftovers=leftovers,
        )
        self._log.add(self._event("tool.completed", call, payload))

    def _close_open(self) -> None:
        """What was announced and didn't come to a result was stopped, or never sent."""
        for call in list(self._open.values()):
            self._close(call, status="cancelled", duration_ms=self._took_ms(call))

    def _took_ms(self, call: ToolCallBlock) -> int | None:
        """How long ago it was handed to the node; None: it never was."""
        began = self._began.get(call.tool_call_id)
        return None if began is None else int((self._clock.monotonic() - began) * 1000)

    def _event(self, type_: str, call: ToolCallBlock, payload: ToolStarted | ToolCompleted) -> NewEvent:
        return NewEvent(
            type=type_,
            payload=payload,
            work_id=f"{self._stage.work_id}.{call.tool_call_id}",
            parent_work_id=self._stage.work_id,
        )


def _without_result(call: ToolCallBlock) -> CallOutcome:
    """The result of a call that was cancelled from below."""
    result = ToolResult(
        tool_call_id=call.tool_call_id, name=call.name, content=INTERRUPTED, status="cancelled"
    )
    return CallOutcome(call=call, result=result)


def call_label(arguments: str, *, mask: Callable[[str], str] = str) -> str:
    """What a call is about, on one short printable line: its command, path or pattern; empty when unknown.

    Args:
        arguments: As the model wrote them.
        mask: Takes secrets out; it sees the text before it is cut, so that no half of one stays.
    """
    try:
        value = load_json(arguments)
    except StrictJsonError:
        return ""
    if not isinstance(value, dict):
        return ""
    named = cast("dict[str, Any]", value)
    texts: Iterator[Any] = (named[key] for key in _LABEL_KEYS if key in named)
    return next(
        (
            clip_line(mask(clean_text(text)[0]), max_chars=_LABEL_CHARS)
            for text in texts
            if isinstance(text, str)
        ),
        "",
    )


def _without_content(response: ToolResponse) -> str:
    """Some providers refuse an empty result; the model shouldn't have to guess either."""
    if response.status != "success":
        return f"({response.status.replace('_', ' ')})"
    return (
        "(done, no output)" if response.exit_code is None else f"(no output, exit code {response.exit_code})"
    )
