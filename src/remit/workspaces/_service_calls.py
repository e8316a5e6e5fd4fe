"""Answers `tool`, `cancel` and `artifact`: what a stage does in a checkout, and how it is stopped."""

from __future__ import annotations

from remit.contract import (
    ArtifactRequest,
    ArtifactStored,
    Cancelled,
    CancelRequest,
    ToolRequest,
    ToolResponse,
)
from remit.errors import NodeError
from remit.workspaces._service_answers import already_ended, interrupted_answer, tool_answer, tool_call
from remit.workspaces._service_parts import NodeParts
from remit.workspaces._service_runs import Activity, Interrupted, stop_all
from remit.workspaces._tool_commands import command_call_id

__all__ = ["cancel_calls", "run_tool", "store_artifact"]


async def store_artifact(node: NodeParts, request: ArtifactRequest) -> ArtifactStored:
    """Keep a named text of the run, outside its checkout."""
    await node.enter(request)
    stored = await node.receipts.store_artifact(request.run_id, request.name, request.text)
    return ArtifactStored(
        run_id=request.run_id, generation=request.generation, name=stored.name, sha256=stored.sha256
    )


async def run_tool(node: NodeParts, request: ToolRequest) -> ToolResponse:
    """Make a tool call, or give what came of it before."""
    run = await node.enter(request)
    if run.tools is None:
        raise NodeError("this run has no checkout open on this node", reason="lost")
    # A call of an MCP server has no process of its own: the server is told that nobody waits any more.
    plugin = run.tools.is_plugin(request.name)
    activity = Activity(
        label=request.name,
        stage_id=request.stage_id,
        tool_call_id=request.tool_call_id,
        command_id=None if plugin else command_call_id(request.stage_id, request.tool_call_id),
        ends_as="notified" if plugin else "closed",
    )
    with run.active(activity):
        try:
            outcome = await activity.run(run.tools.run(tool_call(request)))
        except Interrupted:
            key = (request.run_id, request.stage_id, request.tool_call_id)
            return interrupted_answer(request, await node.receipts.find_receipt(key))
    return tool_answer(request, outcome)


async def cancel_calls(node: NodeParts, request: CancelRequest) -> Cancelled:
    """End one tool call, or all that goes on for a run."""
    run = await node.enter(request)
    if request.tool_call_id is None:
        items = await stop_all(run, clock=node.clock, grace_ms=request.grace_ms)
        items += await run.stop_servers()
    else:
        activity = run.find(request.stage_id, request.tool_call_id)
        items = (
            already_ended(request)
            if activity is None
            else await activity.stop(run.checkout, grace_ms=request.grace_ms, clock=node.clock),
        )
    complete = all(activity.ended for activity in run.activities) or request.tool_call_id is not None
    return Cancelled(run_id=request.run_id, generation=request.generation, complete=complete, items=items)
