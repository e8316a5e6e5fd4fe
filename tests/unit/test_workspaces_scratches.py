"""A scratch checkout whose opening is cut: nothing of it stays."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from remit.primitives import SystemIds
from remit.workspaces import _scratches
from remit.workspaces._keeper import Keeper
from remit.workspaces._owner import note_owner
from remit.workspaces._prepared import PreparedWorkspace


async def test_a_cancel_while_its_folder_is_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R58: the thread that makes the folder is waited for, so that it makes none after the clean-up."""
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slowly(folder: Path, owner: str) -> None:
        loop.call_soon_threadsafe(begun.set)
        time.sleep(0.2)
        note_owner(folder, owner)

    async def keeper() -> Keeper:
        return cast("Keeper", None)

    monkeypatch.setattr(_scratches, "note_owner", slowly)
    scratches = _scratches.Scratches(
        tmp_path, keeper=keeper, ids=SystemIds(), environment={}, allow_unconfined=False, owner="node_1"
    )
    workspace = cast("PreparedWorkspace", cast("Any", SimpleNamespace(isolation="overlay")))
    async with asyncio.TaskGroup() as group:
        opening = group.create_task(scratches.open(workspace))
        await begun.wait()
        opening.cancel()
    assert opening.cancelled()
    await asyncio.sleep(0.4)
    assert list((tmp_path / "checkouts").iterdir()) == []
