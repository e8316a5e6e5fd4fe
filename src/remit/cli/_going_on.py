"""What `remit continue` does: finds out what of an ended run can be taken up, and starts the next one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from remit.cli._finding import find_run, open_reader
from remit.cli._printing import story_of
from remit.cli._run import RunOptions
from remit.cli._running import execute
from remit.cli._words import say
from remit.config import data_folder
from remit.contract import RunView
from remit.errors import PreconditionFailed
from remit.node_agent import node_folder
from remit.runs import StoredRun, newest_delivery
from remit.workspaces import keeps_checkout


def go_on(options: RunOptions) -> int:
    """Start the run that continues `options.continues`; returns the exit code.

    Raises:
        PreconditionFailed: It hasn't ended, or its work lies nowhere that the new run could start from.
    """
    with open_reader() as reader:
        stored = find_run(reader, options.continues)
        assert reader is not None, "a run was found in it"
        root = story_of(reader, stored.view.id).root
        newest = newest_delivery(stored.view, reader.read_history(stored.view.id))
    view = stored.view
    if view.terminal is None:
        raise PreconditionFailed(f"run {view.id} hasn't ended; `remit show {view.id}`")
    applied = newest is not None and (newest.mode, newest.status) == ("apply", "delivered")
    kept = keeps_checkout(node_folder(data_folder(os.environ)).resolve(), stored.outside_id)
    options = _in_place(options, stored, root)
    if kept and not applied:
        return execute(replace(options, continues=view.id))
    if not applied and view.patch is not None and view.patch.files:
        raise PreconditionFailed(_lost(view))
    why = "its work was applied" if applied else "it changed nothing"
    say(f"{why}: the new run starts from your files, in the session of run {view.id}")
    return execute(replace(options, continues=None, session_id=view.session_id))


def _lost(view: RunView) -> str:
    return (
        f"run {view.id} kept no checkout, and its patch isn't applied: apply it first "
        f"(`remit patch {view.id} --apply`), or let runs keep theirs (`--preserve always`)"
    )


def _in_place(options: RunOptions, stored: StoredRun, root: str | None) -> RunOptions:
    """The same workspace, working folder and binding as before, where nothing else was typed."""
    asked = stored.request.workspace
    workspace = options.workspace
    if workspace is None and root is not None:
        workspace = str(Path(root) / ((asked.subdir if asked is not None else None) or ""))
    profile = options.profile or (None if options.binding else stored.view.profile)
    binding = options.binding or stored.request.binding
    return replace(options, workspace=workspace, binding=binding, profile=profile)
