"""One MCP server that runs: its process, and the conversation with it by the SDK.

This module and `_mcp_wire` alone import the SDK; they are loaded when a server is first used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Protocol

import mcp.types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from remit.primitives import once_more
from remit.workspaces._command import CommandResult, Stopped
from remit.workspaces._failures import KeeperLost, WorkspaceOperationError
from remit.workspaces._mcp_results import McpFailed, McpResult
from remit.workspaces._mcp_tools import MAX_TOOLS, OfferedTool
from remit.workspaces._mcp_wire import ByteStreams, Wire
from remit.workspaces._outlasting import outlast

__all__ = ["McpProgram", "McpSession"]

_TAIL_CHARS: Final = 600
_MESSAGE_CHARS: Final = 2_000
_MAX_PAGES: Final = 32
_END_S: Final = 15.0
"""How long the end of a conversation is waited for, once its process is gone."""


class McpProgram(ByteStreams, Protocol):
    """What is needed of a server's process."""

    @property
    def ended(self) -> bool:
        """Whether it is gone."""
        ...

    async def wait(self) -> CommandResult:
        """How it ended."""
        ...

    async def stop(self) -> Stopped | None:
        """Ends it; None: it had ended."""
        ...


class McpSession:
    """One server. Calls may run at the same time, each with its own end.

    A task of its own holds the SDK's session, which must be entered and left by the same one; `aclose` waits
    for it.
    """

    def __init__(self, name: str, program: McpProgram) -> None:
        self.name = name
        self._program = program
        self._wire = Wire(program)
        self._closing = asyncio.Event()
        self._ready: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, name: str, program: McpProgram, *, timeout_s: float) -> McpSession:
        """Begin the conversation with a program that was started.

        Raises:
            McpFailed: It says nothing in time, ends, or can't be understood; it is gone then.

        Cancellation: it is gone first.
        """
        session = cls(name, program)
        session._task = asyncio.get_running_loop().create_task(session._live(), name=f"mcp {name}")
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(session._ready)
        except TimeoutError:
            await session.aclose()
            words = f"it didn't answer within {round(timeout_s * 1000)} ms"
            raise await session._failed(words, status="timed_out") from None
        except asyncio.CancelledError:
            await session.aclose()
            raise
        except (MCPError, ValidationError, RuntimeError, ValueError) as error:
            await session.aclose()
            raise await session._failed(_words(error)) from None
        return session

    @property
    def ended(self) -> bool:
        """Whether it can't be used any more."""
        return self._closing.is_set() or self._program.ended or self._task is None or self._task.done()

    # ---- the conversation

    async def _live(self) -> None:
        """Hold the session open until the program says no more, or `aclose`."""
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self._listen())
            speaking = group.create_task(self._wire.speak())
            try:
                await self._converse()
            except Exception as error:  # noqa: BLE001  handed to whoever waits for the start
                self._refuse(error)
            finally:
                self._closing.set()
                self._wire.outgoing.close()
                speaking.cancel()
                listening.cancel()

    async def _listen(self) -> None:
        try:
            await self._wire.listen()
        finally:
            self._closing.set()

    async def _converse(self) -> None:
        client = mcp.types.Implementation(name="remit", version="1")
        async with ClientSession(self._wire.incoming, self._wire.outgoing, client_info=client) as session:
            try:
                await self._shake_hands(session)
            except (MCPError, ValidationError, RuntimeError) as error:
                self._refuse(error)  # in here, since the SDK would wrap it on the way out
                return
            if not self._ready.done():
                self._ready.set_result(session)
            await self._closing.wait()

    async def _shake_hands(self, session: ClientSession) -> None:
        try:
            await session.initialize()
        except MCPError as error:
            if error.error.code != mcp.types.METHOD_NOT_FOUND:
                raise
            await session.discover()  # a server that knows only the newer way to begin

    def _refuse(self, error: Exception) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()

    # ---- requests

    async def list_tools(self, *, timeout_s: float) -> tuple[OfferedTool, ...]:
        """What it offers.

        Raises:
            McpFailed: It doesn't say in time, or not in a way that can be understood.
        """
        offers: list[OfferedTool] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(timeout_s):
                for _ in range(_MAX_PAGES):
                    params = mcp.types.PaginatedRequestParams(cursor=cursor) if cursor else None
                    request = mcp.types.ListToolsRequest(params=params)
                    page = await (await self._ready).send_request(request, mcp.types.ListToolsResult)
                    offers += [_offered(tool) for tool in page.tools]
                    cursor = page.next_cursor
                    if not cursor or len(offers) > MAX_TOOLS:
                        break
        except TimeoutError:
            words = f"it didn't say within {round(timeout_s * 1000)} ms what it offers"
            raise await self._failed(words, status="timed_out") from None
        except (MCPError, ValidationError, RuntimeError) as error:
            raise await self._failed(_words(error)) from None
        return tuple(offers)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> McpResult:
        """Use one of its tools; how long that may take is the caller's to say, by cancelling.

        Raises:
            McpFailed: It refused, ended, or answered something that can't be understood.

        Cancellation: the server is sent one notice that names the request; a late answer is dropped.
        """
        params = mcp.types.CallToolRequestParams(name=tool, arguments=dict(arguments))
        request = mcp.types.CallToolRequest(params=params)
        try:
            # Not the SDK's own `call_tool`: it also runs the server's schema over the result.
            answer = await (await self._ready).send_request(request, mcp.types.CallToolResult)
        except MCPError as error:
            if error.error.code == mcp.types.CONNECTION_CLOSED:
                self._closing.set()
                words = "it ended while the call went on; what the call did is unknown"
                raise await self._failed(words) from None
            raise McpFailed(f"the MCP server {self.name} refuses: {_words(error)}") from None
        except (ValidationError, RuntimeError) as error:
            raise McpFailed(f"the MCP server {self.name}: {_words(error)}") from None
        return McpResult(
            parts=tuple(_part(block) for block in answer.content),
            structured=answer.structured_content,
            is_error=bool(answer.is_error),
        )

    # ---- the end

    async def aclose(self) -> Stopped | None:
        """End the program and the conversation; None: it had ended by itself. Safe to call twice.

        Cancellation: the program is ended all the same; the cancel is raised when it is gone.
        """
        self._closing.set()
        ending = asyncio.get_running_loop().create_task(self._end(), name=f"end mcp {self.name}")
        cancelled = await outlast(ending)
        if cancelled is not None:
            raise once_more(cancelled)
        return ending.result()

    async def _end(self) -> Stopped | None:
        stopped: Stopped | None = None
        try:
            stopped = await self._program.stop()
        except (WorkspaceOperationError, KeeperLost):
            pass  # and with it the program
        if self._task is not None:
            done, _ = await asyncio.wait({self._task}, timeout=_END_S)
            if not done:
                self._task.cancel()
                await asyncio.wait({self._task})
        if not self._ready.done():
            self._ready.cancel()
        return stopped

    async def _failed(self, words: str, *, status: str = "failed") -> McpFailed:
        """The failure, with what the server said last where it has ended."""
        words = self._wire.problem or words
        said = await self._last_words()
        if said:
            words += f"; the last that it said: {said}"
        return McpFailed(f"the MCP server {self.name} can't be used: {words}", status=status)

    async def _last_words(self) -> str:
        said = self._wire.last_stray
        if self._program.ended:
            try:
                result = await self._program.wait()
            except (WorkspaceOperationError, KeeperLost) as error:
                return error.message
            ended = result.message or ""
            tail = result.stderr[-_TAIL_CHARS:].decode("utf-8", "replace")
            said = " ".join(text for text in (ended, said, tail) if text)
        return said.strip()[-_TAIL_CHARS:]


def _words(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return f"its answer isn't what the protocol asks for ({error.error_count()} faults)"
    text = error.error.message if isinstance(error, MCPError) else str(error)
    return text[:_MESSAGE_CHARS]


def _offered(tool: mcp.types.Tool) -> OfferedTool:
    hints = tool.annotations
    return OfferedTool(
        name=tool.name,
        description=tool.description or tool.title or "",
        schema=tool.input_schema,
        reads_only=bool(hints is not None and hints.read_only_hint),
    )


def _part(block: mcp.types.ContentBlock) -> str:
    """A block of a result as text; what can't be shown is named."""
    match block:
        case mcp.types.TextContent():
            return block.text
        case mcp.types.ImageContent() | mcp.types.AudioContent():
            return f"[{block.type} of type {block.mime_type}, {len(block.data)} characters; not shown]"
        case mcp.types.ResourceLink():
            return f"[resource {block.uri}]"
        case mcp.types.EmbeddedResource():
            inner = block.resource
            if isinstance(inner, mcp.types.TextResourceContents):
                return inner.text
            return f"[resource {inner.uri}, binary; not shown]"
        case _:
            return "[something that can't be shown]"
