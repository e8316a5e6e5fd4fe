"""What a live tool call is called, for whoever watches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remit.primitives import Redactor
from remit.runs._work import RunWork
from remit.stages import ToolUse
from remit.work import CancelToken, Residencies, WorkRegistry
from work_kit import HeldCleanups, StillClock

KEY = "sk-test-0123456789abcdef01234567"


def work(*secrets: str) -> RunWork:
    clock = StillClock()
    registry = WorkRegistry(clock=clock, cleanups=HeldCleanups(), mask=Redactor(secrets).mask)
    return RunWork(registry, session_id="s", run_id="run_1", residencies=Residencies(), clock=clock)


def use(name: str, **arguments: Any) -> ToolUse:
    return ToolUse(stage_id="work-1", tool_call_id="c1", name=name, arguments=json.dumps(arguments))


def label_of(mine: RunWork) -> str:
    (row,) = mine.registry.snapshot("s")
    return row.label


async def _stop() -> None:
    """Never called."""


@pytest.mark.parametrize(
    ("asked", "label"),
    [
        (use("run_shell", command="make test"), "run_shell: make test"),
        (use("run_command", id="test"), "run_command: test"),
        (use("read_file", relative_path="a.py"), "read_file: a.py"),
        (use("list_files"), "list_files"),
        (use("run_shell", command="a\n\x1b]0;b\x07\u202ec"), "run_shell: a  ]0;b  c"),
        (use("run_shell", command="x" * 500), f"run_shell: {'x' * 119}…"),
        (ToolUse(stage_id="work-1", tool_call_id="c1", name="run_shell", arguments="{"), "run_shell"),
    ],
)
def test_a_call_says_what_it_does(asked: ToolUse, label: str) -> None:
    """R49: name and command, on one short printable line, live and on the receipt."""
    mine = work()
    with mine.tool(asked, stop=_stop) as item:
        assert label_of(mine) == label
        assert item.label == label


def test_a_plugins_call_says_what_it_does() -> None:
    """R49: of an MCP server's tool too."""
    mine = work()
    asked = use("mcp__notes__find", query="owls")
    with mine.invocation(asked, plugin_id="notes", token=CancelToken()):
        assert label_of(mine) == "mcp__notes__find: owls"


def test_no_known_secret_is_in_a_label() -> None:
    """R79: masked before it is cut, so that no beginning of one stays at the edge."""
    mine = work(KEY)
    command = "x" * 100 + f" KEY={KEY} make all"
    with mine.tool(use("run_shell", command=command), stop=_stop):
        assert label_of(mine).endswith(" KEY=[redacted] mak…")
