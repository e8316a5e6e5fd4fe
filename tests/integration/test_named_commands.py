"""Commands by name alone: what a model may run is decided on arguments, never on text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from git_repository import make_repository
from service_kit import FILES, node_of

COMMANDS = [
    {"id": "echo", "executable": "echo", "extra_args": True},
    {"id": "status", "executable": "git", "args": ["status", "--short"]},
    {"id": "ls", "executable": "ls", "extra_args": True},
]
ATTEMPTS: list[tuple[str, dict[str, Any]]] = [
    *(
        ("echo", {"args": [text]})
        for text in ("hi\nrm x", "x > f", "hi & touch f", "$(touch f)", "`touch f`")
    ),
    ("echo", {"args": ["hi", ";", "touch", "f"]}),
    ("echo", {"args": ["hi", "&&", "touch", "f"]}),
    ("ls", {"args": ["<(touch f)"]}),
    ("ls", {"args": ["--", ">f"]}),
    ("status", {"args": ["&&", "touch", "f"]}),
    ("status", {"args": ["-c", "alias.s=!touch f", "s"]}),
    *((text, {}) for text in ("env touch f", "git -c alias.s='!touch f' s", "git status && touch f")),
    *((text, {}) for text in ("GIT_EXTERNAL_DIFF=./e git diff", "find . -exec touch f +", "echo hi\nrm x")),
    *((text, {}) for text in ("echo ", " echo", "echo;touch f", "../echo", "/bin/sh", "sh", "")),
    ("echo", {"args": "hi; touch f"}),
    ("echo", {"args": ["a"], "env": {"PATH": "."}}),
    ("echo", {"args": [["nested"]]}),
    ("echo", {"args": ["a\0b"]}),
]


async def test_operators_wrappers_and_assignments_do_nothing(tmp_path: Path) -> None:
    """R37: each attempt is text that is printed, or is refused; no file appears or goes."""
    root = make_repository(tmp_path / "repo", {**FILES, "x": "here\n"})
    async with node_of(tmp_path, root, shell=False, commands=COMMANDS, checks=[]) as node:
        prepared = await node.prepare()
        assert "run_shell" not in {tool.name for tool in prepared.tools}
        await node.ask_open(prepared.base)
        for command, more in ATTEMPTS:
            answer = await node.tool("run_command", id=command, **more)
            if command not in ("echo", "ls") or "env" in more or not isinstance(more.get("args"), list):
                assert answer.status != "success", (command, more, answer.content)
        shell = await node.tool("run_shell", command="touch f")
        assert shell.status != "success"
        control = await node.tool("run_command", id="echo", args=["a|b;c"])
        assert control.content.startswith("a|b;c\n")
        assert (await node.tool("run_command", id="status")).content.startswith("[exit code 0")
        listed = await node.tool("run_command", id="ls", args=["-A"])
        assert " f" not in listed.content.replace("\n", " ")
        assert "x" in listed.content.split()
        await node.cleanup()
