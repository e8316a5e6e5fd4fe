"""Puts what a node found into the words of the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from remit.contract import (
    CancelRequest,
    ChangedPath,
    Delivered,
    DeliverRequest,
    NodeFailure,
    NodeRequest,
    Snapshot,
    SnapshotRequest,
    StoppedCall,
    ToolRequest,
    ToolResponse,
)
from remit.errors import (
    NodeError,
    PayloadTooLarge,
    RemitError,
    RequestError,
    StaleGeneration,
    StorageFull,
)
from remit.workspaces._changes import Change
from remit.workspaces._delivery import Outcome
from remit.workspaces._patch import PathCounts
from remit.workspaces._protection import matching_paths
from remit.workspaces._receipts import Receipted
from remit.workspaces._review_flags import flags_of_changes
from remit.workspaces._settings import WorkspaceSettings
from remit.workspaces._snapshot import Bundle
from remit.workspaces._tools import ToolCall, ToolOutcome
from remit.workspaces.keeper._tree import show_path

__all__ = [
    "already_ended",
    "delivered_answer",
    "failure",
    "interrupted_answer",
    "reason_of",
    "snapshot_answer",
    "tool_answer",
    "tool_call",
]

Reason = Literal["unavailable", "lost", "storage_full", "refused", "stale_generation", "too_large"]
_NODE_REASONS: dict[str, Reason] = {
    "unavailable": "unavailable",
    "lost": "lost",
    "storage_full": "storage_full",
    "refused": "refused",
}

_SKIPPED_SHOWN = 20
_IGNORED_SHOWN = 3


def snapshot_answer(
    request: SnapshotRequest,
    bundle: Bundle,
    settings: WorkspaceSettings,
    *,
    ignore_case: bool,
    leftovers: Sequence[str],
) -> Snapshot:
    """What a checkout holds, as it is sent."""
    paths = [change.path for change in bundle.changes.changes]
    protected = matching_paths(paths, settings.protected, ignore_case=ignore_case)
    frozen = matching_paths(paths, settings.freeze, ignore_case=ignore_case)
    patch = bundle.patch
    return Snapshot(
        run_id=request.run_id,
        generation=request.generation,
        content_hash=bundle.content_hash,
        patch=patch.text.decode("utf-8"),
        patch_sha256=patch.sha256,
        files=patch.files,
        insertions=patch.insertions,
        deletions=patch.deletions,
        paths=tuple(_changed_path(change, patch.paths.get(change.path)) for change in bundle.changes.changes),
        protected=tuple(show_path(path) for path in protected),
        frozen=tuple(show_path(path) for path in frozen),
        flags=_flags(bundle, protected, frozen),
        ignored_changed=bundle.changes.ignored,
        leftovers=tuple(leftovers),
    )


def _changed_path(change: Change, counts: PathCounts | None) -> ChangedPath:
    counts = counts or PathCounts()
    return ChangedPath(
        path=show_path(change.path),
        change=change.kind,
        insertions=counts.insertions,
        deletions=counts.deletions,
        binary=counts.binary,
        digest=f"{change.result.mode}:{change.result.sha256}" if change.result is not None else "",
    )


def _flags(bundle: Bundle, protected: Sequence[str], frozen: Sequence[str]) -> tuple[str, ...]:
    """What a person should look at."""
    skipped = bundle.changes.skipped
    flags = [f"protected:{show_path(path)}" for path in protected]
    flags += [f"frozen:{show_path(path)}" for path in frozen]
    flags += [f"moved:{show_path(change.path)}" for change in bundle.moved]
    flags += flags_of_changes(bundle.changes.changes, bundle.patch.paths)
    flags += [f"skipped:{entry.path} ({entry.why})" for entry in skipped[:_SKIPPED_SHOWN]]
    if len(skipped) > _SKIPPED_SHOWN:
        flags.append(f"skipped:{len(skipped) - _SKIPPED_SHOWN} more")
    if bundle.changes.ignored:
        such = ", ".join(bundle.changes.ignored_names[:_IGNORED_SHOWN])
        files = "file" if bundle.changes.ignored == 1 else "files"
        flags.append(f"ignored:{bundle.changes.ignored} {files}, such as {such}")
    return tuple(flags)


def failure(request: NodeRequest, reason: Reason, message: str) -> NodeFailure:
    """What couldn't be done."""
    return NodeFailure(run_id=request.run_id, generation=request.generation, reason=reason, message=message)


def reason_of(error: RemitError) -> Reason:
    """The word of the protocol for an error of ours."""
    if isinstance(error, NodeError):
        return _NODE_REASONS.get(error.reason, "unavailable")
    if isinstance(error, StaleGeneration):
        return "stale_generation"
    if isinstance(error, StorageFull):
        return "storage_full"
    if isinstance(error, PayloadTooLarge):
        return "too_large"
    return "refused" if isinstance(error, RequestError) else "unavailable"


def tool_call(request: ToolRequest) -> ToolCall:
    """The tool call that a request asks for."""
    return ToolCall(
        run_id=request.run_id,
        stage_id=request.stage_id,
        tool_call_id=request.tool_call_id,
        name=request.name,
        arguments=request.arguments,
        timeout_ms=request.timeout_ms,
        remaining_ms=request.remaining_ms,
        generation=request.generation,
        max_shown_bytes=request.max_shown_bytes,
        child=request.child,
    )


def tool_answer(request: ToolRequest, outcome: ToolOutcome) -> ToolResponse:
    """What came of a tool call."""
    return ToolResponse(
        run_id=request.run_id,
        generation=request.generation,
        stage_id=request.stage_id,
        tool_call_id=request.tool_call_id,
        status=outcome.status,
        content=outcome.content,
        exit_code=outcome.exit_code,
        truncated=outcome.truncated,
        duration_ms=outcome.duration_ms,
        receipt_id=outcome.receipt_id,
        effect=outcome.effect,
        changed=outcome.changed,
        command=outcome.command,
        leftovers=outcome.leftovers,
    )


def interrupted_answer(request: ToolRequest, receipt: Receipted | None) -> ToolResponse:
    """What came of a tool call that a cancel ended before it had an outcome."""
    return ToolResponse(
        run_id=request.run_id,
        generation=request.generation,
        stage_id=request.stage_id,
        tool_call_id=request.tool_call_id,
        status="cancelled",
        content=receipt.outcome.content if receipt else "cancelled",
        receipt_id=receipt.receipt_id if receipt else "",
    )


def already_ended(request: CancelRequest) -> StoppedCall:
    """The answer to a cancel of a call that doesn't go on."""
    return StoppedCall(
        stage_id=request.stage_id or "",
        tool_call_id=request.tool_call_id or "",
        label=request.tool_call_id or "",
        how="already_ended",
        ms=0,
    )


def delivered_answer(request: DeliverRequest, outcome: Outcome) -> Delivered:
    """What became of a delivery."""
    return Delivered(
        run_id=request.run_id,
        generation=request.generation,
        status=outcome.status if outcome.status in ("delivered", "conflict") else "skipped",
        refused=outcome.status == "refused",
        paths=outcome.paths,
        repeated=outcome.repeated,
        ref=outcome.ref,
        why=outcome.why,
    )
