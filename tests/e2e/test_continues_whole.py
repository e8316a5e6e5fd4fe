"""A run that goes on where another one failed: host, store, node, sandbox and checks are real."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from git_repository import git, look
from host_kit import make_config, request
from remit.config import Config
from remit.contract import RunView
from remit.errors import InvalidRequest, NotFound, SessionBusy
from remit.host import Host
from remit.runs import Submission, Submitted

FINISH = "Now finish it."
WHOLE = '[ "$(cat a.txt)" = old ] || [ -f b.txt ]'
"""A check that the base passes, and half the work doesn't."""


def _used(path: str, content: str) -> dict[str, Any]:
    return {"name": "write_file", "arguments": {"relative_path": path, "content": content}}


def _replies() -> list[dict[str, Any]]:
    """What a run that is to finish does, then what any other does."""
    done = {"json": {"completion": "Done.", "verification": "Looked."}}
    passed = {"json": {"decision": "pass", "output": "It is there.", "summary": "Fine."}}
    look_first = [{"name": "run_shell", "arguments": {"command": "cat a.txt"}}]
    plan = {"json": {"plan": "Do it.", "verification": "Look."}}
    when = {"when": {"contains": FINISH}}
    return [
        {"stage": "plan", **plan},
        {"stage": "work", **when, "tool_calls": [*look_first, _used("b.txt", "rest\n")]},
        {"stage": "work", **when, **done},
        {"stage": "work", "tool_calls": [_used("a.txt", "new\n")]},
        {"stage": "work", **done},
        {"stage": "review", **passed},
    ]


def configure(folder: Path, isolation: str) -> Config:
    """The scripted host's settings over a repository with that check."""
    root = folder / "app"
    if not root.exists():
        root.mkdir()
        git(root, "init", "-q", "-b", "main")
        (root / "a.txt").write_text("old\n")
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", "first")
    workspace = {
        "ref": "app",
        "root": str(root),
        "shell": True,
        "isolation": isolation,
        "commands": [{"id": "whole", "executable": "sh", "args": ["-c", WHOLE]}],
        "checks": ["whole"],
    }
    kept = (root / "a.txt").read_text()
    config = make_config(folder, nodes={"local": {"workspaces": [workspace]}})
    (root / "a.txt").write_text(kept)
    (folder / "script.json").write_text(json.dumps({"replies": _replies()}))
    return config


async def run(host: Host, text: str, **fields: Any) -> RunView:
    async with asyncio.timeout(60):
        return await (await host.start(request(text, delivery="apply", **fields))).ended()


@pytest.mark.parametrize("isolation", ["overlay", "copy"])
@pytest.mark.parametrize("restart", [False, True])
async def test_what_a_broken_check_stopped_is_finished(tmp_path: Path, isolation: str, restart: bool) -> None:
    """A failed run changes nothing and loses nothing; the one that continues it delivers all of it."""
    config = configure(tmp_path, isolation)
    root = tmp_path / "app"
    before = look(root)
    async with Host(config) as host:
        first = await run(host, "Begin it.", limits={"max_revisions": 0})
        assert first.terminal is not None
        assert (first.terminal.class_, first.terminal.code) == ("rejected", "checks_failed")
        assert look(root) == before
        second = None if restart else await run(host, FINISH, continues=first.id)
    if second is None:
        async with Host(configure(tmp_path, isolation)) as host:
            second = await run(host, FINISH, continues=first.id)
    assert second.status == "completed", second.terminal
    assert (second.continues, second.session_id) == (first.id, first.session_id)
    assert second.workspace is not None
    assert first.workspace is not None
    assert second.workspace.base == first.workspace.base
    assert second.workspace.isolation == isolation
    assert second.delivery is not None
    assert second.delivery.status == "delivered"
    assert second.patch is not None
    assert second.patch.files == 2
    assert [(check.base_exit, check.exit, check.gate) for check in second.checks] == [(0, 0, "pass")]
    assert ((root / "a.txt").read_text(), (root / "b.txt").read_text()) == ("new\n", "rest\n")
    assert git(root, "status", "--porcelain").split() == ["M", "a.txt", "??", "b.txt"]


async def test_what_cannot_be_continued_says_so(tmp_path: Path) -> None:
    """R11: at the call where the host knows, else before the run costs anything."""
    async with Host(configure(tmp_path, "auto")) as host:
        with pytest.raises(NotFound) as missing:
            await host.start(request(FINISH, continues="run_never"))
        assert missing.value.fields["param"] == "continues"
        first = await run(host, "Begin it.", limits={"max_revisions": 0}, preserve="never")
        with pytest.raises(InvalidRequest) as other:
            await host.start(request(FINISH, continues=first.id, session_id="another"))
        assert other.value.fields["param"] == "continues"
        second = await run(host, FINISH, continues=first.id)
        assert second.terminal is not None
        assert (second.terminal.class_, second.terminal.code) == ("workspace", "refused")
        assert second.usage is not None
        assert second.usage.total_tokens == 0
        assert second.started_at is None
        third = await run(host, FINISH, session_id=first.session_id)
        assert third.status == "completed"


async def test_a_session_is_taken_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One active root run per session, also where one request names the session and another a run of it."""
    async with Host(configure(tmp_path, "auto")) as host:
        root = await run(host, "Begin it.", limits={"max_revisions": 0})
        second = await run(host, "Begin it.", session_id=root.session_id, limits={"max_revisions": 0})
        submit = host.store.submit

        async def submit_slowly(submission: Submission) -> Submitted:
            await asyncio.sleep(0.3)  # whoever may look at the session by now finds it free
            return await submit(submission)

        monkeypatch.setattr(host.store, "submit", submit_slowly)
        bodies = [{"session_id": root.session_id}, {"continues": second.id}]
        answers = await asyncio.wait_for(_start_together(host, bodies), 60)
        assert sorted(answers) == ["busy", "started"]


async def _start_together(host: Host, bodies: list[dict[str, Any]]) -> list[str]:
    async def start(body: dict[str, Any]) -> str:
        try:
            started = await host.start(request(FINISH, delivery="patch", **body))
        except SessionBusy:
            return "busy"
        await started.ended()
        return "started"

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(start(body)) for body in bodies]
    return [task.result() for task in tasks]
