"""The tools behind the SDK's server: a call is a run, its progress is told, its cancel stops the run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from contextlib import aclosing
from importlib.metadata import version
from typing import Any, Final, TypeAlias, TypeVar

import anyio
import mcp.types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from pydantic import ValidationError

from remit.api.dialects import progress_line
from remit.api.mcp._ports import ToolRuns
from remit.api.mcp._telling import cancel_words, error_answer, run_answer
from remit.api.mcp._tools import CancelRunArguments, GetRunArguments, RunArguments, tools
from remit.contract import Model, RunView, say_fault
from remit.errors import InternalError, InvalidRequest, RemitError
from remit.primitives import Clock, Ids

SIGN_OF_LIFE_S: Final = 10.0
"""Between two notices of progress at most: a client's timer counts from each."""
_CANCEL_WITHIN_S: Final = 20.0
_log = logging.getLogger(__name__)

Context: TypeAlias = ServerRequestContext[Any, Any]
RunsOf: TypeAlias = Callable[[Context], ToolRuns]
_Shape = TypeVar("_Shape", bound=Model)


def make_server(runs_of: RunsOf, *, ids: Ids, clock: Clock, sign_of_life_s: float = SIGN_OF_LIFE_S) -> Server:
    """The SDK's server with our tools.

    Args:
        runs_of: The runs that a request's caller sees; may raise a `RemitError`.
        ids: Where the ids of runs come from.
        clock: Where time comes from.
        sign_of_life_s: Between two notices of progress at most.
    """
    handlers = _Handlers(runs_of, ids=ids, clock=clock, sign_of_life_s=sign_of_life_s)
    return Server(
        "remit",
        version=version("remit"),
        instructions=(
            "`run` has a coding request planned, done in a sandboxed copy, reviewed and checked. "
            "Give it one whole request, not a step of one."
        ),
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
    )


class _Handlers:
    def __init__(self, runs_of: RunsOf, *, ids: Ids, clock: Clock, sign_of_life_s: float) -> None:
        self._runs_of = runs_of
        self._ids = ids
        self._clock = clock
        self._sign_of_life_s = sign_of_life_s

    async def list_tools(
        self, context: Context, params: mcp.types.PaginatedRequestParams | None
    ) -> mcp.types.ListToolsResult:
        """All tools, on one page."""
        return mcp.types.ListToolsResult(tools=tools())

    async def call_tool(
        self, context: Context, params: mcp.types.CallToolRequestParams
    ) -> mcp.types.CallToolResult:
        """Do one call. What is wrong with it is its result, so that the model that asked can see it."""
        try:
            return await self._call(context, params.name, params.arguments or {})
        except RemitError as error:
            return error_answer(error)
        except Exception:  # noqa: BLE001 - a call has an answer, whatever happens
            _log.exception("a tool call of the MCP door failed")
            return error_answer(InternalError("the host couldn't do this; its log says why"))

    async def _call(self, context: Context, name: str, arguments: dict[str, Any]) -> mcp.types.CallToolResult:
        runs = self._runs_of(context)
        match name:
            case "run":
                return await self._run(context, runs, _read(RunArguments, arguments))
            case "get_run":
                return await self._get(context, runs, _read(GetRunArguments, arguments))
            case "cancel_run":
                asked = _read(CancelRunArguments, arguments)
                return cancel_words(await runs.cancel(asked.run_id, reason=asked.reason))
            case _:
                raise InvalidRequest("there is no such tool: there are run, get_run and cancel_run")

    async def _run(self, context: Context, runs: ToolRuns, asked: RunArguments) -> mcp.types.CallToolResult:
        body = asked.body(self._ids)
        run_id = body["id"]
        try:
            view = await runs.start(body)
            if asked.detach:
                return run_answer(view, waited=False)
            return run_answer(await self._attend(context, runs, run_id, wait_ms=None))
        except asyncio.CancelledError:
            # Shielded: the scope that was cancelled would break off every wait in here as well.
            with anyio.move_on_after(_CANCEL_WITHIN_S, shield=True), contextlib.suppress(RemitError):
                await runs.cancel(run_id, reason="the MCP request was cancelled", tombstone=True)
            raise

    async def _get(
        self, context: Context, runs: ToolRuns, asked: GetRunArguments
    ) -> mcp.types.CallToolResult:
        view = await runs.get(asked.run_id)
        if asked.wait_ms and not view.status.ended:
            view = await self._attend(context, runs, asked.run_id, wait_ms=asked.wait_ms)
        patch = await runs.patch(asked.run_id) if asked.include_patch and view.patch is not None else None
        return run_answer(view, patch=patch)

    async def _attend(self, context: Context, runs: ToolRuns, run_id: str, *, wait_ms: int | None) -> RunView:
        """Wait for the end, and tell meanwhile how it goes."""
        report = _Report(context, self._clock)
        try:
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(runs.wait(run_id, wait_ms=wait_ms), name="end of a run")
                telling = group.create_task(_tell(runs, run_id, report), name="progress of a run")
                while not (await asyncio.wait({waiting}, timeout=self._sign_of_life_s))[0]:
                    await runs.check()
                    await report.sign_of_life()
                telling.cancel()
            return waiting.result()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None


class _Report:
    """What the client is told while it waits; a no-op where it hasn't asked to be told."""

    def __init__(self, context: Context, clock: Clock) -> None:
        self._context = context
        self._clock = clock
        self._began_at = clock.monotonic()
        self._count = 0

    async def say(self, text: str) -> None:
        """One more notice; their number rises, as the protocol wants it."""
        self._count += 1
        await self._context.session.report_progress(self._count, message=text)

    async def sign_of_life(self) -> None:
        """That it goes on."""
        await self.say(f"The run goes on, {self._clock.monotonic() - self._began_at:.0f} s so far.")


async def _tell(runs: ToolRuns, run_id: str, report: _Report) -> None:
    """Each thing worth telling. A viewer that was cut is told no more; the run goes on."""
    await report.say(f"Run {run_id}.")
    try:
        async with aclosing(runs.events(run_id)) as events:
            async for event in events:
                line = progress_line(event)
                if line is not None:
                    await report.say(line)
    except RemitError as error:
        _log.info("progress of run %s isn't told any more: %s", run_id, error.code)


def _read(shape: type[_Shape], arguments: dict[str, Any]) -> _Shape:
    try:
        return shape.model_validate(arguments)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "arguments"
        raise InvalidRequest(f"`{where}`: {say_fault(first)}", param=where) from None
