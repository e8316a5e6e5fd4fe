"""A node with one workspace for tests of its requests: keeper, sandbox, git, receipts, all real."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from remit.contract import (
    CleanedUp,
    CleanupRequest,
    Delivered,
    DeliverRequest,
    NodeRequest,
    Opened,
    OpenRequest,
    Prepared,
    PrepareRequest,
    Snapshot,
    SnapshotRequest,
    ToolRequest,
    ToolResponse,
)
from remit.primitives import SystemClock, SystemIds
from remit.workspaces._service import NodeService
from remit.workspaces._settings import WorkspaceSettings

FILES: dict[str, str | bytes] = {
    "app.py": "def add(a, b):\n    return a - b\n",
    "test_app.py": "import unittest\nfrom app import add\n\n\nclass T(unittest.TestCase):\n"
    "    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n",
    "AGENTS.md": "Be brief.\n",
    "sub/inner.txt": "inner\n",
}
_Answer = TypeVar("_Answer")


class Node:
    """A node with one workspace, and the requests of one run at a time."""

    def __init__(self, service: NodeService, root: Path) -> None:
        self.service = service
        self.root = root
        self.calls = 0

    async def ask(self, request: NodeRequest, shape: type[_Answer]) -> _Answer:
        answer = await self.service.handle(request)
        assert isinstance(answer, shape), answer
        return answer

    async def prepare(self, run_id: str = "run_1", **fields: Any) -> Prepared:
        return await self.ask(PrepareRequest(run_id=run_id, workspace_ref="app", **fields), Prepared)

    async def open(self, run_id: str = "run_1", **fields: Any) -> Opened:
        prepared = await self.prepare(run_id, **fields)
        return await self.ask(OpenRequest(run_id=run_id, workspace_ref="app", base=prepared.base), Opened)

    async def ask_open(self, base: str, run_id: str = "run_1") -> Opened:
        return await self.ask(OpenRequest(run_id=run_id, workspace_ref="app", base=base), Opened)

    def tool_request(
        self, name: str, run_id: str = "run_1", call_id: str = "", **arguments: Any
    ) -> ToolRequest:
        self.calls += 1
        return ToolRequest(
            run_id=run_id,
            stage_id="work-1",
            tool_call_id=call_id or f"call_{self.calls}",
            name=name,
            arguments=json.dumps(arguments),
            timeout_ms=60_000,
            remaining_ms=60_000,
        )

    async def tool(
        self, name: str, run_id: str = "run_1", call_id: str = "", **arguments: Any
    ) -> ToolResponse:
        return await self.ask(self.tool_request(name, run_id, call_id, **arguments), ToolResponse)

    async def snapshot(self, run_id: str = "run_1", **fields: Any) -> Snapshot:
        return await self.ask(SnapshotRequest(run_id=run_id, **fields), Snapshot)

    async def deliver(self, snapshot: Snapshot, run_id: str = "run_1", **fields: Any) -> Delivered:
        request = DeliverRequest(
            run_id=run_id,
            workspace_ref="app",
            patch_sha256=snapshot.patch_sha256,
            content_hash=snapshot.content_hash,
            **fields,
        )
        return await self.ask(request, Delivered)

    async def cleanup(self, run_id: str = "run_1", **fields: Any) -> CleanedUp:
        return await self.ask(CleanupRequest(run_id=run_id, **fields), CleanedUp)


@asynccontextmanager
async def node_of(
    folder: Path, root: Path, *, variables: Mapping[str, str] | None = None, **settings: Any
) -> AsyncGenerator[Node]:
    home = folder / "home"
    home.mkdir(exist_ok=True)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), **(variables or {})}
    workspace = WorkspaceSettings.model_validate({"ref": "app", "root": root, "shell": True, **settings})
    service = await NodeService.start(
        [workspace], data=folder / "data", clock=SystemClock(), ids=SystemIds(), environment=environment
    )
    try:
        yield Node(service, root)
    finally:
        await service.aclose()


async def until(condition: Any, timeout_s: float = 20) -> None:
    """Wait for something that another process does."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.02)
