"""A real host over a scripted model and a small folder, for tests of hosted execution and of embedding."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from remit.config import Config, load_config
from remit.host import Host

MODEL = "demo:model"
COMPLETES = "Make a.txt new."
WAITS = "Wait until somebody stops you."
FAILS = "Fail at once."
THINKS = "Think for ever."
USAGE = {
    "input_tokens": 11,
    "output_tokens": 7,
    "cache_read_tokens": 3,
    "cache_write_tokens": 2,
    "reasoning_tokens": 1,
}


def _reply(stage: str, *, when: str | None = None, **more: Any) -> dict[str, Any]:
    reply: dict[str, Any] = {"stage": stage, "usage": USAGE, **more}
    if when is not None:
        reply["when"] = {"contains": when}
    return reply


SCRIPT = {
    "replies": [
        {"stage": "plan", "when": {"contains": FAILS}, "error": {"status": 401}},
        _reply("plan", when=THINKS, text="never", delay_ms=600_000),
        _reply("plan", json={"plan": "Do it.", "verification": "Look."}),
        _reply(
            "work",
            when=WAITS,
            tool_calls=[{"name": "run_shell", "arguments": {"command": "exec sleep 300"}}],
        ),
        _reply(
            "work",
            tool_calls=[{"name": "write_file", "arguments": {"relative_path": "a.txt", "content": "new\n"}}],
        ),
        _reply("work", json={"completion": "Done.", "verification": "Looked."}),
        _reply("review", json={"decision": "pass", "output": "a.txt is new.", "summary": "Fine."}),
    ]
}


def make_config(folder: Path, **settings: Any) -> Config:
    """Settings for a scripted model and one workspace `app` in this folder.

    Args:
        folder: Where the workspace, the home and the script are made.
        settings: Further tables, as in a file.
    """
    root, home, script = folder / "app", folder / "home", folder / "script.json"
    for made in (root, home):
        made.mkdir(exist_ok=True)
    (root / "a.txt").write_text("old\n")
    script.write_text(json.dumps(SCRIPT))
    workspace = {"ref": "app", "root": str(root), "shell": True, "checks": []}
    tables: dict[str, Any] = {
        "providers": {"demo": {"kind": "scripted", "script": str(script)}},
        "nodes": {"local": {"workspaces": [workspace]}},
        "bindings": {
            "reviewed": {"workspace": "app", "profile": "reviewed", "allow_models": ["*"]},
        },
        **settings,
    }
    return load_config(
        environment={"HOME": str(home), "PATH": os.environ["PATH"]}, folder=folder, overrides=tables
    ).as_owner()


@asynccontextmanager
async def open_host(folder: Path, **arguments: Any) -> AsyncGenerator[Host]:
    """A host over it; nothing of it is left at the end."""
    async with Host(make_config(folder), **arguments) as host:
        yield host


def request(text: str = COMPLETES, **fields: Any) -> dict[str, Any]:
    """The body of a request for the workspace."""
    return {"prompt": text, "model": MODEL, **fields}
