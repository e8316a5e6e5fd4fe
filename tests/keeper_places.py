"""A workspace, a data folder and a keeper for tests that open checkouts."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from remit.workspaces import Checkout, CheckoutRequest, CommandResult, CommandSpec, Keeper

_call_numbers = itertools.count(1)


@dataclass(slots=True)
class Place:
    """Where a test's checkouts are: the user's tree, the data folder, the keeper."""

    base: Path
    keeper: Keeper
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def root(self) -> Path:
        """The user's tree."""
        return self.base / "repo"

    @property
    def data(self) -> Path:
        """The node's data folder."""
        return self.base / "data"

    def request(self, name: str = "c1", **options: Any) -> CheckoutRequest:
        """A checkout of the user's tree."""
        request = CheckoutRequest(
            checkout_id=name, root=self.root, storage=self.data / "checkouts" / name, data=self.data
        )
        return replace(request, **{**self.options, **options})

    async def open(self, name: str = "c1", **options: Any) -> Checkout:
        """Opens it."""
        return await self.keeper.open(self.request(name, **options))


@asynccontextmanager
async def place(base: Path, **options: Any) -> AsyncGenerator[Place]:
    """A small tree and a keeper that ends with the test."""
    base = base.resolve()
    root = base / "repo"
    root.mkdir(parents=True, exist_ok=True)
    (root / "tracked.txt").write_text("original\n")
    (root / "folder").mkdir(exist_ok=True)
    (root / "folder" / "inner.txt").write_text("inner\n")
    keeper = await Keeper.start(data=base / "data")
    try:
        yield Place(base, keeper, options)
    finally:
        await keeper.aclose()


def shell(text: str, **options: Any) -> CommandSpec:
    """A command in a shell, with generous limits and a call id of its own."""
    given: dict[str, Any] = {"call_id": f"call-{next(_call_numbers)}", "timeout_ms": 60_000, **options}
    return CommandSpec(argv=("/bin/sh", "-c", text), **given)


async def run(
    checkout: Checkout, text: str, on_output: Callable[[bytes], None] | None = None, **options: Any
) -> CommandResult:
    """Runs a shell text."""
    return await checkout.run(shell(text, **options), on_output=on_output)


def fingerprint(folder: Path) -> list[tuple[str, int, bytes]]:
    """Every path below a folder with its mode and content, `.git` too."""
    found: list[tuple[str, int, bytes]] = []
    for parent, folders, files in os.walk(folder):
        for name in sorted([*folders, *files]):
            path = Path(parent) / name
            info = path.lstat()
            if path.is_symlink():
                content = os.fsencode(os.readlink(path))
            else:
                content = path.read_bytes() if path.is_file() else b""
            found.append((str(path.relative_to(folder)), info.st_mode, content))
    return sorted(found)


def processes_with(word: str) -> list[int]:
    """Numbers of the processes that have this word among their arguments, our own left out."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if word.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found
