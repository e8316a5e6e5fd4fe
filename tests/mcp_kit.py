"""MCP servers for tests: programs that are put into the tree that is worked on."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remit.workspaces import McpServer

PROGRAMS = Path(__file__).parent / "integration" / "data" / "mcp"
PROGRAM = f"manners-{os.getpid()}.py"
"""What `manners.py` is called in a tree: a name of this process alone, by which its servers are found."""
LOG = "mcp-log.jsonl"
"""Where `manners.py` writes what it gets, in its working folder."""


def put_programs(root: Path) -> None:
    """Copy the servers into a tree."""
    for program in PROGRAMS.glob("*.py"):
        shutil.copy(program, root / (PROGRAM if program.name == "manners.py" else program.name))


def manners(*words: str, **options: Any) -> McpServer:
    """The server by hand, with these manners."""
    return McpServer(command="python3", args=(PROGRAM, *words), **options)


def by_the_sdk(**options: Any) -> McpServer:
    """The server by the SDK, run by the interpreter that has it."""
    return McpServer(command=sys.executable, args=("by_the_sdk.py",), **options)


def cancel_notices(log: str) -> list[Mapping[str, Any]]:
    """The parameters of each cancel notice in a server's log."""
    messages = [json.loads(line) for line in log.splitlines()]
    return [message["params"] for message in messages if message.get("method") == "notifications/cancelled"]


def call_ids(log: str, tool: str) -> list[Any]:
    """The ids of the requests that used a tool."""
    messages = [json.loads(line) for line in log.splitlines()]
    return [
        message["id"]
        for message in messages
        if message.get("method") == "tools/call" and message["params"]["name"] == tool
    ]
