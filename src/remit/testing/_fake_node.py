"""A node in memory: a tree of texts, tools that read and write it, checks that are functions of it.

It holds its callers to the protocol: no tool before `open`, no second `open`, no delivery of a patch that
wasn't the last snapshot's, nothing after `cleanup`.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from remit.contract import (
    ArtifactRequest,
    ArtifactStored,
    Cancelled,
    CancelRequest,
    ChangedPath,
    CheckResult,
    ChecksDone,
    ChecksRequest,
    CheckState,
    CleanedUp,
    CleanupRequest,
    Delivered,
    DeliverRequest,
    NodeFailure,
    NodeRequest,
    NodeResponse,
    Opened,
    OpenRequest,
    Prepared,
    PrepareRequest,
    Snapshot,
    SnapshotRequest,
    StoppedCall,
    ToolRequest,
    ToolResponse,
    ToolSpec,
)

Check = Callable[[Mapping[str, str]], int]
_SCHEMA: dict[str, object] = {"type": "object", "properties": {}}
_TOOLS = (
    ToolSpec(name="read_file", description="Read a file.", parameters=_SCHEMA, effect="read"),
    ToolSpec(name="write_file", description="Write a file.", parameters=_SCHEMA, effect="write"),
    ToolSpec(name="run_shell", description="Run a command.", parameters=_SCHEMA, effect="command"),
)
PLUGIN_TOOL = ToolSpec(
    name="mcp__notes__look", description="Look.", parameters=_SCHEMA, effect="read", plugin="notes"
)
"""A tool of an MCP server; of `{"command": "block"}` it waits to be cancelled, as `run_shell` does."""


@dataclass(slots=True)
class _Checkout:
    files: dict[str, str]
    base: dict[str, str]
    """What its changes are told against."""
    cleaned: bool = False
    kept: bool = False
    blocked: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])


class FakeNode:
    """Answers every request of interfaces, section 10, from memory.

    Args:
        files: The user's tree: path -> text. Only a delivery changes it.
        checks: Exit codes as functions of a tree.
        protected: Paths that delivery protects.
        plugins: Tools of MCP servers.
    """

    def __init__(
        self,
        files: Mapping[str, str] | None = None,
        *,
        checks: Mapping[str, Check] | None = None,
        protected: tuple[str, ...] = (),
        plugins: tuple[ToolSpec, ...] = (),
    ) -> None:
        self.tree = dict(files or {})
        self.requests: list[NodeRequest] = []
        self.opened = self.cleaned = 0
        self.failures: dict[str, NodeFailure] = {}
        """Request kind -> what it answers instead, once."""
        self.gates: dict[str, asyncio.Event] = {}
        """Request kind -> it waits for this first."""
        self.blocked = asyncio.Event()
        """Set while a `run_shell` of `block` waits to be cancelled."""
        self.ignore_cancel = False
        """True: a blocked call isn't ended by a cancel; it answers only when `release` is set."""
        self.release = asyncio.Event()
        self.branches: dict[str, str] = {}
        """Branch -> the message of its commit."""
        self._checks = dict(checks or {})
        self._protected = protected
        self._tools = (*_TOOLS, *plugins)
        self._base = dict(self.tree)
        self._checkouts: dict[str, _Checkout] = {}
        self._snapshots: dict[str, Snapshot] = {}

    async def handle(self, request: NodeRequest) -> NodeResponse:
        """Answer one request."""
        self.requests.append(request)
        if (gate := self.gates.get(request.kind)) is not None:
            await gate.wait()
        if (failure := self.failures.pop(request.kind, None)) is not None:
            return failure.model_copy(update={"run_id": request.run_id})
        match request:
            case PrepareRequest():
                return self._prepare(request)
            case OpenRequest():
                return self._open(request)
            case ArtifactRequest():
                digest = hashlib.sha256(request.text.encode()).hexdigest()
                return ArtifactStored(run_id=request.run_id, name=request.name, sha256=digest)
            case ToolRequest():
                return await self._tool(request)
            case CancelRequest():
                return self._cancel(request)
            case ChecksRequest():
                return self._run_checks(request)
            case SnapshotRequest():
                return self._snapshot(request)
            case DeliverRequest():
                return self._deliver(request)
            case CleanupRequest():
                return self._cleanup(request)

    def kinds(self) -> list[str]:
        """The kinds of all requests, in order."""
        return [request.kind for request in self.requests]

    def edit(self, run_id: str, path: str, text: str) -> None:
        """Change a checkout behind everybody's back."""
        self._checkouts[run_id].files[path] = text

    # ---- one request each

    def _prepare(self, request: PrepareRequest) -> NodeResponse:
        if request.continues is not None and self._find_kept(request.continues) is None:
            return NodeFailure(run_id=request.run_id, reason="refused", message="no checkout is kept")
        if request.branch in self.branches:
            return NodeFailure(run_id=request.run_id, reason="unavailable", message="the branch is there")
        if request.parent is None and request.continues is None:
            self._base = dict(self.tree)
        return Prepared(
            run_id=request.run_id,
            base="tree:0000",
            brief="A tree in memory.",
            brief_sha256=hashlib.sha256(b"A tree in memory.").hexdigest(),
            tools=self._tools,
            isolation="copy",
            sandbox="external",
            checks=tuple(
                CheckState(id=name, command=name, why="given", base_exit=check(self._base))
                for name, check in self._checks.items()
            ),
        )

    def _open(self, request: OpenRequest) -> NodeResponse:
        assert request.run_id not in self._checkouts, "opened twice"
        kept = self._find_kept(request.continues)
        assert (kept is None) == (request.continues is None), "prepared from another start"
        start = self._base if request.parent is None else self._live(request.parent).files
        files, base = (start, start) if kept is None else (kept.files, kept.base)
        self._checkouts[request.run_id] = _Checkout(dict(files), dict(base))
        self.opened += 1
        return Opened(
            run_id=request.run_id,
            checkout_id=f"co_{request.run_id}",
            root="/tree",
            isolation="copy",
            sandbox="external",
        )

    async def _tool(self, request: ToolRequest) -> ToolResponse:
        checkout = self._live(request.run_id)
        arguments = json.loads(request.arguments)
        if request.name == "delegate":
            return self._take_over(request, checkout)
        if request.name == "read_file":
            return self._answer(request, checkout.files.get(arguments["relative_path"], ""))
        if request.name == "write_file":
            path = arguments["relative_path"]
            checkout.files[path] = arguments["content"]
            return self._answer(request, "written", effect="write", changed=(path,))
        if arguments.get("command") == "block":
            return await self._block(request, checkout)
        if any(spec.name == request.name and spec.plugin is not None for spec in self._tools):
            return self._answer(request, "looked", effect="command")
        return self._answer(request, "ran", effect="command", command=arguments["command"], exit_code=0)

    def _take_over(self, request: ToolRequest, checkout: _Checkout) -> ToolResponse:
        assert request.child is not None, "a node doesn't start children"
        child, snapshot = self._checkouts[request.child.run_id], self._snapshots[request.child.run_id]
        assert snapshot.content_hash == request.child.content_hash, "not what was reviewed"
        paths = tuple(path.path for path in snapshot.paths)
        moved = [path for path in paths if checkout.files.get(path) != child.base.get(path)]
        if moved:
            return self._answer(request, f"changed meanwhile: {moved}", effect="write", status="conflict")
        for path in paths:
            checkout.files[path] = child.files[path]
        return self._answer(request, "", effect="write", changed=paths)

    async def _block(self, request: ToolRequest, checkout: _Checkout) -> ToolResponse:
        ended = asyncio.Event()
        checkout.blocked[f"{request.stage_id}/{request.tool_call_id}"] = ended
        self.blocked.set()
        await (self.release if self.ignore_cancel else ended).wait()
        return self._answer(request, "", status="cancelled", effect="command", command="block")

    def _cancel(self, request: CancelRequest) -> Cancelled:
        checkout = self._checkouts.get(request.run_id)
        items: list[StoppedCall] = []
        for key, ended in checkout.blocked.items() if checkout else ():
            stage_id, tool_call_id = key.split("/")
            if request.tool_call_id not in (None, tool_call_id) or ended.is_set():
                continue
            ended.set()
            items.append(
                StoppedCall(
                    stage_id=stage_id, tool_call_id=tool_call_id, label="block", how="term", ms=1, pids=(7,)
                )
            )
        return Cancelled(run_id=request.run_id, complete=True, items=tuple(items))

    def _run_checks(self, request: ChecksRequest) -> ChecksDone:
        checkout = self._live(request.run_id)
        results = tuple(
            _gated(name, check(checkout.base), check(checkout.files)) for name, check in self._checks.items()
        )
        broken = tuple(f"{result.id} fails" for result in results if result.gate == "worse")
        return ChecksDone(run_id=request.run_id, checks=results, broken=broken)

    def _snapshot(self, request: SnapshotRequest) -> Snapshot:
        checkout = self._live(request.run_id)
        patch, paths = _diff(checkout.base, checkout.files)
        content = json.dumps(checkout.files, sort_keys=True).encode()
        snapshot = Snapshot(
            run_id=request.run_id,
            content_hash=hashlib.sha256(content).hexdigest(),
            patch=patch,
            patch_sha256=hashlib.sha256(patch.encode()).hexdigest(),
            files=len(paths),
            insertions=patch.count("\n+"),
            deletions=patch.count("\n-"),
            paths=paths,
            protected=tuple(path.path for path in paths if path.path in self._protected),
        )
        self._snapshots[request.run_id] = snapshot
        return snapshot

    def _deliver(self, request: DeliverRequest) -> Delivered:
        checkout, snapshot = self._live(request.run_id), self._snapshots[request.run_id]
        assert request.patch_sha256 == snapshot.patch_sha256, "not the patch that was last taken"
        moved = [
            path.path for path in snapshot.paths if self.tree.get(path.path) != checkout.base.get(path.path)
        ]
        if moved:
            return Delivered(run_id=request.run_id, status="conflict", paths=tuple(moved))
        if request.branch is not None:
            return self._branch(request, request.branch, snapshot)
        for path in snapshot.paths:
            self.tree[path.path] = checkout.files[path.path]
        return Delivered(
            run_id=request.run_id, status="delivered", paths=tuple(path.path for path in snapshot.paths)
        )

    def _branch(self, request: DeliverRequest, branch: str, snapshot: Snapshot) -> Delivered:
        if branch in self.branches:
            why = f"there is a branch {branch} already"
            return Delivered(run_id=request.run_id, status="conflict", paths=(branch,), why=why)
        self.branches[branch] = request.message
        paths = tuple(path.path for path in snapshot.paths)
        return Delivered(run_id=request.run_id, status="delivered", paths=paths, ref=branch)

    def _cleanup(self, request: CleanupRequest) -> CleanedUp:
        checkout = self._checkouts.get(request.run_id)
        if checkout is not None:  # an open that failed left nothing to clean up
            assert not checkout.cleaned, "cleaned up twice"
            checkout.cleaned, checkout.kept = True, request.keep
            self.cleaned += 1
        return CleanedUp(run_id=request.run_id, kept=request.keep)

    def _find_kept(self, run_id: str | None) -> _Checkout | None:
        checkout = self._checkouts.get(run_id) if run_id is not None else None
        return checkout if checkout is not None and checkout.kept else None

    def _live(self, run_id: str) -> _Checkout:
        checkout = self._checkouts.get(run_id)
        assert checkout is not None, "no checkout was opened"
        assert not checkout.cleaned, "the checkout is gone"
        return checkout

    def _answer(self, request: ToolRequest, content: str, **more: object) -> ToolResponse:
        values = {"status": "success", **more}
        return ToolResponse.model_validate(
            {
                "run_id": request.run_id,
                "stage_id": request.stage_id,
                "tool_call_id": request.tool_call_id,
                "content": content,
                "receipt_id": f"rc_{request.stage_id}_{request.tool_call_id}",
                **values,
            }
        )


def _gated(name: str, base: int, result: int) -> CheckResult:
    worse = result != 0 and base == 0
    return CheckResult(id=name, base_exit=base, exit=result, ms=1, gate="worse" if worse else "pass")


def _diff(base: Mapping[str, str], result: Mapping[str, str]) -> tuple[str, tuple[ChangedPath, ...]]:
    patch, paths = "", list[ChangedPath]()
    for path in sorted({*base, *result}):
        before, after = base.get(path), result.get(path)
        if before == after:
            continue
        paths.append(
            ChangedPath(path=path, change="added" if before is None else "modified", digest=after or "")
        )
        lines = difflib.unified_diff(
            (before or "").splitlines(keepends=True), (after or "").splitlines(keepends=True), path, path
        )
        patch += "".join(lines)
    return patch, tuple(paths)
