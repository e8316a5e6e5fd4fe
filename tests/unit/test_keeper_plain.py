"""An unconfined command that can't be started leaves nothing open."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remit.workspaces.keeper._confinement import Streams
from remit.workspaces.keeper._loop import Loop
from remit.workspaces.keeper._plain import PlainOrder, PlainProcesses
from remit.workspaces.keeper._plan import Limits


def _refused() -> int:
    raise BlockingIOError(11, "no more processes")


def test_a_start_without_room_for_a_process_leaves_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R59: where no process can be made the caller is told, and its pipes are closed again."""
    order = PlainOrder(
        argv=("true",),
        folder=str(tmp_path),
        environment={},
        limits=Limits(),
        cpu_seconds=1,
        tree=str(tmp_path),
        root=str(tmp_path),
        bound=False,
    )
    processes = PlainProcesses(Loop(), order, lambda ending: None, own_children=tuple)
    monkeypatch.setattr(os, "fork", _refused)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="no more processes"):
        processes.start(Streams(stdin=0, stdout=1, stderr=2))
    assert os.listdir("/proc/self/fd") == before
