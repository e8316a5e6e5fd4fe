"""Carries out a model's tool calls in one checkout: checked, bounded, written down, never done twice."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, cast, get_args

from remit.contract import ChildResult, StageKind, ToolSpec, ToolStatus
from remit.primitives import Clock, StrictJsonError, clean_text, load_json
from remit.workspaces._command import CommandResult, CommandSpec
from remit.workspaces._failures import WorkspaceOperationError
from remit.workspaces._mcp_results import McpFailed, readable
from remit.workspaces._mcp_servers import McpServers
from remit.workspaces._mcp_tools import ListedTool
from remit.workspaces._receipts import Intent, Outcome, Receipted, Receipts
from remit.workspaces._secrets import WorkspaceSecrets
from remit.workspaces._settings import WorkspaceSettings
from remit.workspaces._tool_arguments import ArgumentsRefused, parse_arguments, parse_object
from remit.workspaces._tool_commands import (
    command_argv,
    command_call_id,
    exit_code_of,
    in_words,
    shown_command,
    status_of,
)
from remit.workspaces._tool_outputs import KeptOutputs, cut_part
from remit.workspaces._tool_schemas import DELEGATE, Effect, stage_kind_of, tools_for
from remit.workspaces.keeper._output import clip_text

__all__ = ["ToolCall", "ToolCheckout", "ToolOutcome", "ToolRunner", "call_fingerprint"]

_NOTE_BYTES: Final = 320
_SEARCH_MARGIN_MS: Final = 1_000
_STATUSES: Final = frozenset(get_args(ToolStatus))

OnOutput = Callable[[bytes], None]
ChildChanges = Callable[[ChildResult], Awaitable[Mapping[str, object]]]


class ToolCheckout(Protocol):
    """What a tool needs of a checkout."""

    async def run(self, spec: CommandSpec, *, on_output: OnOutput | None = None) -> CommandResult:
        """Runs a command; cancelled, it is gone before the cancel is raised."""
        ...

    async def call(self, operation: str, arguments: Mapping[str, object]) -> dict[str, object]:
        """Does a file operation; raises WorkspaceOperationError with a tool status word."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One tool call as a stage asks for it."""

    run_id: str
    stage_id: str
    tool_call_id: str
    name: str
    arguments: str
    """The argument text exactly as the model wrote it."""
    timeout_ms: int
    """What the call gets when it asks for no time of its own."""
    remaining_ms: int
    """What is left of the stage and the run; no call outlives it."""
    generation: int = 1
    max_shown_bytes: int = 16_384
    child: ChildResult | None = None
    """For `delegate`: whose changes are taken over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutcome:
    """What came of a call. Everything that can go wrong in it is a status; only a lost checkout raises."""

    status: ToolStatus
    content: str
    """What the model is shown."""
    exit_code: int | None
    truncated: bool
    receipt_id: str
    duration_ms: int
    effect: Effect
    changed: tuple[str, ...]
    command: str | None
    leftovers: tuple[str, ...]
    """Processes that a command left running, and that were stopped."""
    output_bytes: int
    """Size of the whole text, kept for `read_output`; 0 where `content` is all there is."""
    repeated: bool
    """Whether it had been done before, and only the receipt was read."""
    fingerprint: str
    """The same for calls that ask for the same; with `failed`, it shows a model that goes in circles."""

    @property
    def failed(self) -> bool:
        """Whether the same call again has little hope: an error status, or a command's non-zero exit."""
        return self.status != "success" or bool(self.exit_code)


def call_fingerprint(name: str, arguments: str) -> str:
    """The same for all calls of one tool with the same arguments, however they are written as JSON."""
    try:
        arguments = json.dumps(load_json(arguments), sort_keys=True)
    except (StrictJsonError, ValueError):
        arguments = arguments.strip()
    return hashlib.sha256(f"{name}\0{arguments}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


class ToolRunner:
    """The tools of one checkout. Calls may run at the same time, and be cancelled.

    Args:
        checkout: where the work is done.
        settings: what the workspace allows.
        receipts: the node's.
        clock: for durations.
        outputs: folder of the run's own, outside the checkout, for whole outputs.
        working_folder: where commands start, from the root.
        servers: the checkout's MCP servers; None: there are none.
        plugins: the tools that those offer.
        child_changes: finds what a child's review has passed; None: there are no children.
        secrets: the workspace's; its commands get some of them.
    """

    def __init__(
        self,
        checkout: ToolCheckout,
        settings: WorkspaceSettings,
        receipts: Receipts,
        clock: Clock,
        *,
        outputs: Path,
        working_folder: str = "",
        servers: McpServers | None = None,
        plugins: Sequence[ListedTool] = (),
        child_changes: ChildChanges | None = None,
        secrets: WorkspaceSecrets | None = None,
    ) -> None:
        self._checkout = checkout
        self._settings = settings
        self._receipts = receipts
        self._clock = clock
        self._outputs = KeptOutputs(outputs)
        self._working_folder = working_folder
        self._servers = servers
        self._child_changes = child_changes
        self._secrets = secrets or WorkspaceSecrets()
        self._plugins = {tool.spec.name: tool for tool in plugins}

    async def run(self, call: ToolCall, *, on_output: OnOutput | None = None) -> ToolOutcome:
        """Does a call once. A repeat gets the first one's outcome, and joins it while it goes on.

        Args:
            call: what to do.
            on_output: is called with a command's raw output as it comes.

        Raises:
            NodeError: the checkout is lost; what the call did is unknown unless it only reads.
            StaleGeneration: a later owner of the run is known; nothing was done.
            StorageError: the receipt couldn't be stored.

        Cancellation: the call is stopped and its receipt says so before the cancel is raised.
        """
        spec, arguments, refusal = self._read(call)
        effect: Effect = "read" if spec is None or refusal is not None else _receipted_effect(spec)
        intent = Intent(
            run_id=call.run_id,
            stage_id=call.stage_id,
            tool_call_id=call.tool_call_id,
            name=call.name,
            arguments=call.arguments,
            effect=effect,
            generation=call.generation,
        )

        async def work(receipt_id: str) -> Outcome:
            return refusal or await self._timed(call, arguments, on_output)

        receipted = await self._receipts.run_once(intent, work)
        return _tool_outcome(call, receipted, "read" if spec is None else spec.effect)

    def _read(self, call: ToolCall) -> tuple[ToolSpec | None, dict[str, object], Outcome | None]:
        """The tool and its checked arguments, or why the call isn't done."""
        try:
            stage = stage_kind_of(call.stage_id)
        except ValueError as error:
            return None, {}, _refused("denied", str(error))
        if call.name == DELEGATE.name and call.child is not None and self._child_changes is not None:
            return DELEGATE, {}, None
        offered = (*tools_for(self._settings, stage), *self._plugin_specs(stage))
        spec = next((spec for spec in offered if spec.name == call.name), None)
        if spec is None:
            return None, {}, self._no_tool(call)
        try:
            if spec.plugin is not None:
                return spec, parse_object(call.arguments), None
            arguments = parse_arguments(call.arguments, spec)
            if spec.effect == "command":
                command_argv(spec.name, arguments, self._settings)
        except ArgumentsRefused as error:
            return spec, {}, _refused("invalid_arguments", str(error))
        return spec, arguments, None

    def is_plugin(self, name: str) -> bool:
        """Whether the tool of this name is an MCP server's."""
        return name in self._plugins

    def _plugin_specs(self, stage: StageKind) -> tuple[ToolSpec, ...]:
        """The tools of MCP servers: none while planning, since what a server says of itself is no proof."""
        return () if stage == "plan" else tuple(tool.spec for tool in self._plugins.values())

    def _no_tool(self, call: ToolCall) -> Outcome:
        everywhere = {spec.name for spec in tools_for(self._settings)} | self._plugins.keys()
        name = call.name[:80]
        if call.name in everywhere:
            return _refused("denied", f"{name} isn't available while planning: this stage only reads")
        return _refused(
            "denied", f"there is no tool {name!r} in this workspace; there are: {_listed(everywhere)}"
        )

    async def _timed(
        self, call: ToolCall, arguments: Mapping[str, object], on_output: OnOutput | None
    ) -> Outcome:
        began = self._clock.monotonic()
        if call.remaining_ms <= 0:
            outcome = _refused("timed_out", "no time is left; it wasn't started")
        elif call.name in ("run_shell", "run_command"):
            outcome = await self._command(call, arguments, on_output)
        elif call.name == "read_output":
            outcome = await self._read_output(call, arguments)
        elif call.child is not None and self._child_changes is not None:
            outcome = await self._take_over(call.child, self._child_changes)
        elif call.name in self._plugins:
            outcome = await self._plugin(call, arguments, self._plugins[call.name])
        else:
            outcome = await self._operation(call, arguments)
        took_ms = int((self._clock.monotonic() - began) * 1000)
        content, _ = clean_text(outcome.content)
        return outcome.model_copy(update={"content": content, "duration_ms": outcome.duration_ms or took_ms})

    # ---- file operations

    async def _operation(self, call: ToolCall, arguments: Mapping[str, object]) -> Outcome:
        limit_ms = min(call.timeout_ms, call.remaining_ms, self._settings.max_command_timeout_ms)
        bounds = {
            "max_read_bytes": self._settings.max_read_bytes,
            "max_write_bytes": self._settings.max_write_bytes,
            "max_shown_bytes": call.max_shown_bytes,
        }
        if call.name in ("search", "list_files"):
            # It ends by itself a little earlier, and then tells what it has found so far.
            bounds["timeout_ms"] = max(limit_ms // 2, limit_ms - _SEARCH_MARGIN_MS)
        try:
            async with asyncio.timeout(limit_ms / 1000):
                result = await self._checkout.call(call.name, {**arguments, **bounds})
        except TimeoutError:
            return _refused("timed_out", f"timed out after {limit_ms} ms")
        except WorkspaceOperationError as error:
            status = error.reason if error.reason in _STATUSES else "failed"
            return _refused(cast("ToolStatus", status), error.message)
        clipped = clip_text(str(result.get("content", "")), max_bytes=call.max_shown_bytes)
        return Outcome(
            status="success",
            content=clipped.text,
            truncated=clipped.truncated or bool(result.get("truncated")),
            changed=tuple(cast("list[str]", result.get("changed", []))),
        )

    async def _read_output(self, call: ToolCall, arguments: Mapping[str, object]) -> Outcome:
        wanted = cast("str", arguments["tool_call_id"])
        offset = cast("int", arguments["offset_bytes"])
        found = await self._receipts.find_call(call.run_id, wanted, stage_id=call.stage_id)
        if found is None:
            return _refused("not_found", f"there is no finished call {wanted[:80]!r} in this run")
        (_, stage_id, _), earlier = found
        room = max(4, call.max_shown_bytes - _NOTE_BYTES if call.max_shown_bytes > 2 * _NOTE_BYTES else 4)
        if earlier.output_bytes:
            try:
                part = await self._outputs.read(stage_id, wanted, offset_bytes=offset, max_bytes=room)
            except FileNotFoundError:
                return _refused("not_found", "that output isn't kept any more")
        else:
            part = cut_part(earlier.content.encode(), offset_bytes=offset, max_bytes=room)
        if offset >= part.total_bytes > 0:
            return _refused("invalid_arguments", f"that output has {part.total_bytes} bytes")
        more = part.stop_bytes < part.total_bytes
        note = f"read on with offset_bytes={part.stop_bytes}" if more else "this is the end"
        return Outcome(
            status="success",
            content=f"{part.text}\n[up to byte {part.stop_bytes} of {part.total_bytes}; {note}]",
            truncated=more,
        )

    async def _take_over(self, child: ChildResult, changes_of: ChildChanges) -> Outcome:
        """Puts a child's changes into this checkout: all of them, or none."""
        try:
            result = await self._checkout.call("take_over", await changes_of(child))
        except WorkspaceOperationError as error:
            status = error.reason if error.reason in _STATUSES else "failed"
            return _refused(cast("ToolStatus", status), error.message)
        return Outcome(status="success", changed=tuple(cast("list[str]", result["changed"])))

    # ---- tools of MCP servers

    async def _plugin(self, call: ToolCall, arguments: Mapping[str, object], tool: ListedTool) -> Outcome:
        if self._servers is None:
            return _refused("failed", "the checkout has no MCP servers")
        limit_ms = max(1, min(call.timeout_ms, call.remaining_ms, self._settings.max_command_timeout_ms))
        try:
            result = await self._servers.call(tool, arguments, limit_ms=limit_ms)
        except McpFailed as failed:
            status: ToolStatus = "timed_out" if failed.status == "timed_out" else "failed"
            message = self._secrets.masker.mask(failed.message)
            return _refused(status, readable(message, max_bytes=call.max_shown_bytes)[0])
        text, cut = readable(
            self._secrets.masker.mask(result.text), max_bytes=self._settings.max_output_bytes
        )
        room = max(1, call.max_shown_bytes - _NOTE_BYTES)
        clipped = clip_text(text, max_bytes=room)
        notes, kept = "", False
        if clipped.truncated:
            data = text.encode()
            kept = await self._keep(call, data, stdout=data, stderr=b"")
            notes = f"\n{_where_the_rest_is(call, clipped.head_bytes, kept=kept)}"
        return Outcome(
            status="failed" if result.is_error else "success",
            content=f"{clipped.text}{notes}",
            truncated=clipped.truncated or cut,
            output_bytes=len(text.encode()) if kept else 0,
        )

    # ---- commands

    async def _command(
        self, call: ToolCall, arguments: Mapping[str, object], on_output: OnOutput | None
    ) -> Outcome:
        argv = command_argv(call.name, arguments, self._settings)
        asked_ms = cast("int", arguments.get("timeout_ms", call.timeout_ms))
        limit_ms = max(1, min(asked_ms, call.remaining_ms, self._settings.max_command_timeout_ms))
        spec = CommandSpec(
            call_id=command_call_id(call.stage_id, call.tool_call_id),
            argv=argv,
            cwd=self._working_folder,
            timeout_ms=limit_ms,
            max_output_bytes=self._settings.max_output_bytes,
            network=self._settings.network,
            environment=self._secrets.environment("tools"),
        )
        try:
            result = await self._checkout.run(spec, on_output=on_output)
        except WorkspaceOperationError as error:
            return _refused("failed", error.message)
        return await self._command_outcome(call, result, shown_command(call.name, argv), limit_ms)

    async def _command_outcome(
        self, call: ToolCall, result: CommandResult, command: str, limit_ms: int
    ) -> Outcome:
        notes = in_words(result, timeout_ms=limit_ms, network=self._settings.network)
        total = result.stdout_total_bytes + result.stderr_total_bytes
        room = max(1, call.max_shown_bytes - len(notes.encode()) - _NOTE_BYTES)
        clipped = clip_text(result.text, max_bytes=room, total_bytes=total)
        text = result.text.encode("utf-8", "replace")
        kept = False
        if clipped.truncated or text != result.stdout + result.stderr:
            kept = await self._keep(call, text, stdout=result.stdout, stderr=result.stderr)
        if clipped.truncated:
            notes = f"{_where_the_rest_is(call, clipped.head_bytes, kept=kept)}\n{notes}"
        separator = "" if not clipped.text or clipped.text.endswith("\n") else "\n"
        return Outcome(
            status=status_of(result),
            content=f"{clipped.text}{separator}{notes}",
            exit_code=exit_code_of(result),
            truncated=clipped.truncated or result.truncated,
            duration_ms=result.duration_ms,
            command=command,
            output_bytes=len(text) if kept else 0,
            leftovers=result.leftovers,
        )

    async def _keep(self, call: ToolCall, text: bytes, *, stdout: bytes, stderr: bytes) -> bool:
        """Keeps the whole output; the command has run, so a full disk must not take its result."""
        try:
            await self._outputs.keep(
                call.stage_id, call.tool_call_id, text=text, stdout=stdout, stderr=stderr
            )
        except OSError:
            return False
        return True


def _receipted_effect(spec: ToolSpec) -> Effect:
    """How a call is written down: one of an MCP server is never done again, whatever the server says."""
    return "command" if spec.plugin is not None else spec.effect


def _where_the_rest_is(call: ToolCall, head_bytes: int, *, kept: bool) -> str:
    if not kept:
        return "[cut; the whole couldn't be kept]"
    arguments = json.dumps({"tool_call_id": call.tool_call_id, "offset_bytes": head_bytes})
    return f"[cut; read_output {arguments} reads on]"


def _tool_outcome(call: ToolCall, receipted: Receipted, effect: Effect) -> ToolOutcome:
    fields: dict[str, Any] = receipted.outcome.model_dump()
    return ToolOutcome(
        **fields,
        receipt_id=receipted.receipt_id,
        effect=effect,
        repeated=receipted.repeated,
        fingerprint=call_fingerprint(call.name, call.arguments),
    )


def _refused(status: ToolStatus, content: str) -> Outcome:
    return Outcome(status=status, content=content)


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
