"""What host and node say to each other. The host asks; the node answers.

Every message carries the version of the protocol. Times are lengths (ms), never moments, since the
two machines' clocks differ. A request that the node can't carry out is answered by `NodeFailure`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from remit.contract._model import Model
from remit.contract._results import CheckResult
from remit.contract._words import DeliveryStatus, How, Isolation, Preserve, SandboxLevel, ToolStatus

PROTOCOL_VERSION = 1


class _Message(Model):
    version: int = PROTOCOL_VERSION


class _RunMessage(_Message):
    run_id: str
    generation: int = 1
    """The lease's fencing number; a stale one is refused in both directions."""


# ---- requests


class PrepareRequest(_RunMessage):
    """Pin the base, make the brief, run the checks once on the base (cached)."""

    kind: Literal["prepare"] = "prepare"
    workspace_ref: str
    base: str | None = None
    """`worktree`, `head` or a revision; None: the workspace's default."""
    subdir: str = ""
    """Working folder relative to the root; empty: the root."""
    isolation: Isolation | None = None
    """None: as the workspace says."""
    continues: str | None = None
    """The run whose base and kept checkout are taken up; `base` then counts for nothing."""
    parent: str | None = None
    """The run that this one is a child of: its base counts, and what its checkout holds now is the start."""
    branch: str | None = None
    """The branch that the result is to go to: one that can't be made is refused now. None: to none."""
    dry: bool = False
    """Only look: nothing is kept, and no check is run, so that none says how it stands."""
    timeout_ms: int = 600_000


class OpenRequest(_RunMessage):
    """Make the run's checkout from the pinned base."""

    kind: Literal["open"] = "open"
    workspace_ref: str
    base: str
    """The base id that `prepare` answered with."""
    subdir: str = ""
    isolation: Isolation | None = None
    continues: str | None = None
    """The run whose kept checkout is the start; None: the base."""
    parent: str | None = None
    """The run whose open checkout is the start, as it is now."""


class ArtifactRequest(_RunMessage):
    """Store a named text of the run, outside the checkout."""

    kind: Literal["artifact"] = "artifact"
    name: str
    text: str


class ChildResult(Model):
    """What a child run's review has passed, to be put into its parent's checkout."""

    run_id: str
    """The child, as the node knows it."""
    content_hash: str


class ToolRequest(_RunMessage):
    """Use one tool once. Idempotent by (run, stage, tool call id)."""

    kind: Literal["tool"] = "tool"
    stage_id: str
    tool_call_id: str
    name: str
    arguments: str
    """The argument text exactly as the model wrote it."""
    timeout_ms: int
    """What the call gets when it asks for no time of its own."""
    remaining_ms: int
    """What is left of the stage and the run; no call outlives it."""
    max_shown_bytes: int = 16_384
    child: ChildResult | None = None
    """For `delegate`: whose changes are taken over as this call's one effect."""


class CancelRequest(_RunMessage):
    """Stop one tool call, or everything of the run (no `tool_call_id`)."""

    kind: Literal["cancel"] = "cancel"
    stage_id: str | None = None
    tool_call_id: str | None = None
    grace_ms: int = 2_000
    """Between TERM and KILL."""


class ChecksRequest(_RunMessage):
    """Run the workspace's checks on the checkout as it is."""

    kind: Literal["checks"] = "checks"
    remaining_ms: int


class SnapshotRequest(_RunMessage):
    """Say what the checkout holds now, against its base."""

    kind: Literal["snapshot"] = "snapshot"
    end_leftovers: bool = False
    """End every process of the run first."""


class DeliverRequest(_RunMessage):
    """Put a reviewed patch into the user's tree, all or nothing. Idempotent by (run, hash)."""

    kind: Literal["deliver"] = "deliver"
    workspace_ref: str
    patch_sha256: str
    content_hash: str
    allow_protected: bool = False
    unreviewed: bool = False
    branch: str | None = None
    """The new branch that gets them as a commit, instead of the tree; None: the tree."""
    message: str = ""
    """The commit's message, whole."""


class CleanupRequest(_RunMessage):
    """Remove the checkout, or keep it where the preserve policy says so."""

    kind: Literal["cleanup"] = "cleanup"
    keep: bool = False
    preserve: Preserve = "failed"


NodeRequest = Annotated[
    PrepareRequest
    | OpenRequest
    | ArtifactRequest
    | ToolRequest
    | CancelRequest
    | ChecksRequest
    | SnapshotRequest
    | DeliverRequest
    | CleanupRequest,
    Field(discriminator="kind"),
]

# ---- responses


class CheckState(Model):
    """A check and how it stands on the base."""

    id: str
    command: str
    """As a person would type it."""
    why: str
    """Where it was found, such as `pyproject.toml [tool.pytest]`, or `remit.toml`."""
    base_exit: int | None = None
    ms: int | None = None
    problem: str | None = None
    """Why it can't be run, in words; None when it can."""


class ToolSpec(Model):
    """A tool as a model is told of it."""

    name: str
    description: str
    parameters: dict[str, object]
    """JSON schema of the arguments."""
    effect: Literal["read", "write", "command"]
    plugin: str | None = None
    """The MCP server that offers it; None: it is the workspace's own."""


class Prepared(_RunMessage):
    """The facts that a run starts from."""

    kind: Literal["prepared"] = "prepared"
    base: str
    brief: str
    """First in every prompt; the same bytes for the same base."""
    brief_sha256: str
    checks: tuple[CheckState, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    """All tools that the workspace allows; a stage may get fewer."""
    isolation: Isolation
    sandbox: SandboxLevel
    notes: tuple[str, ...] = ()
    """What the user should know: a fallback and why, a missing tool."""
    cached: bool = False


class Opened(_RunMessage):
    """The checkout is there."""

    kind: Literal["opened"] = "opened"
    checkout_id: str
    root: str
    isolation: Isolation
    sandbox: SandboxLevel
    notes: tuple[str, ...] = ()


class ArtifactStored(_RunMessage):
    """The text is kept."""

    kind: Literal["artifact_stored"] = "artifact_stored"
    name: str
    sha256: str


class ToolResponse(_RunMessage):
    """What came of one tool call."""

    kind: Literal["tool_result"] = "tool_result"
    stage_id: str
    tool_call_id: str
    status: ToolStatus
    content: str = ""
    """What the model is shown."""
    exit_code: int | None = None
    truncated: bool = False
    duration_ms: int = 0
    receipt_id: str
    effect: Literal["read", "write", "command"] = "read"
    changed: tuple[str, ...] = ()
    """Workspace-relative paths that a file tool changed."""
    command: str | None = None
    """The command line, for the command log; None for file tools."""
    leftovers: tuple[str, ...] = ()
    """Processes that the command left running, and that were stopped."""


class StoppedCall(Model):
    """One tool call or check that a cancel ended."""

    stage_id: str
    tool_call_id: str
    label: str
    how: How
    ms: int
    pids: tuple[int, ...] = ()


class Cancelled(_RunMessage):
    """The processes are gone (all of them, when `complete`)."""

    kind: Literal["cancelled"] = "cancelled"
    complete: bool
    items: tuple[StoppedCall, ...] = ()


class ChecksDone(_RunMessage):
    """The checks, before and after."""

    kind: Literal["checks_done"] = "checks_done"
    checks: tuple[CheckResult, ...] = ()
    broken: tuple[str, ...] = ()
    """What to tell the work stage of each check that is worse: its output's end."""


class ChangedPath(Model):
    """One path that differs from the base."""

    path: str
    change: Literal["added", "modified", "deleted", "type", "mode"]
    insertions: int = 0
    deletions: int = 0
    binary: bool = False
    digest: str = ""
    """Mode and hash of what is there now; empty: it is gone."""


class Snapshot(_RunMessage):
    """What the checkout holds, against its base."""

    kind: Literal["snapshot_taken"] = "snapshot_taken"
    content_hash: str
    """Hash over every changed path, its mode and bytes: what a review is bound to."""
    patch: str
    """The patch as git writes it (binary parts encoded); empty when nothing changed."""
    patch_sha256: str
    files: int
    insertions: int
    deletions: int
    paths: tuple[ChangedPath, ...] = ()
    protected: tuple[str, ...] = ()
    """Changed paths that delivery protects."""
    frozen: tuple[str, ...] = ()
    """Changed paths that the workspace froze: such a patch is refused."""
    flags: tuple[str, ...] = ()
    ignored_changed: int = 0
    """Ignored files that changed; they aren't part of the patch."""
    leftovers: tuple[str, ...] = ()
    """Processes that were ended first, in words."""


class Delivered(_RunMessage):
    """What became of a delivery."""

    kind: Literal["delivered"] = "delivered"
    status: DeliveryStatus
    refused: bool = False
    """True: it touches protected or frozen paths; nothing was applied."""
    paths: tuple[str, ...] = ()
    """The paths applied, or those in conflict, or those refused."""
    repeated: bool = False
    """True: it had been done before, and only the receipt was read."""
    ref: str | None = None
    """The branch that was made."""
    why: str | None = None
    """Why it wasn't done, where the paths don't say it."""


class CleanedUp(_RunMessage):
    """The checkout is gone, or kept."""

    kind: Literal["cleaned_up"] = "cleaned_up"
    kept: bool = False
    folder: str | None = None
    abandoned: tuple[str, ...] = ()
    undone: int | None = None
    """How many paths that a dead host's run had changed in the tree itself were put back by somebody since;
    None: nobody did that."""


class NodeFailure(_RunMessage):
    """The node couldn't do what it was asked."""

    kind: Literal["failure"] = "failure"
    reason: Literal["unavailable", "lost", "storage_full", "refused", "stale_generation", "too_large"]
    message: str


NodeResponse = Annotated[
    Prepared
    | Opened
    | ArtifactStored
    | ToolResponse
    | Cancelled
    | ChecksDone
    | Snapshot
    | Delivered
    | CleanedUp
    | NodeFailure,
    Field(discriminator="kind"),
]
