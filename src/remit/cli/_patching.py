"""What `remit patch` and `remit undo` do."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from remit.cli._diff import coloured, files_of, stat_lines
from remit.cli._finding import RunReader, find_run, open_reader
from remit.cli._formats import count
from remit.cli._screen import Results, console_on, is_a_terminal
from remit.cli._story import Story
from remit.cli._words import one_line, recovered_words, say
from remit.config import data_folder, find_repository_root, load_config
from remit.contract import RunView
from remit.errors import NotFound, PreconditionFailed
from remit.node_agent import node_folder
from remit.primitives import SystemClock
from remit.storage import SqliteStore
from remit.workspaces import Deliveries, DeliveryOrder, WorkspaceSettings

_NAMED_PATHS = 10


def print_patch(wanted: str | None, *, stat: bool, host: str | None = None) -> int:
    """Print a run's patch: in colour for a person, byte for byte for a program."""
    with open_reader(host) as reader:
        stored = find_run(reader, wanted)
        assert reader is not None, "a run was found in it"
        artifact = reader.read_artifact(stored.view.id, "patch")
        story = _story_of(reader, stored.view.id)
    if artifact is None:
        _require_known(stored.view, opened=story.root is not None)
    if artifact is None or not artifact.text:
        say(f"run {stored.view.id} changed nothing")
        return 0
    if stat:
        console = console_on(sys.stdout)
        for line in stat_lines(files_of(artifact.text), width=console.width):
            console.print(line)
    elif is_a_terminal(sys.stdout):
        console_on(sys.stdout).print(coloured(artifact.text), soft_wrap=True)
    else:
        results = Results()
        results.write_bytes(artifact.text.encode("utf-8", "surrogateescape"))
        results.require_written()
    return 0


def deliver_there(wanted: str, *, host: str, unreviewed: bool, allow_protected: bool) -> int:
    """Have a host apply a run's patch to the workspace there; returns the exit code."""
    from remit.cli._remote import secret_for_host  # noqa: PLC0415 - most patches need no client
    from remit.client import Client  # noqa: PLC0415

    with Client(host, api_key=secret_for_host()) as client:
        told = client.deliver(wanted, unreviewed=unreviewed, allow_protected=allow_protected)
    if told["delivery"]["status"] == "conflict":
        say("nothing was applied: the workspace's files were changed meanwhile")
        return 1
    say(f"the patch of run {wanted} is applied to its workspace on the host")
    return 0


def apply_patch(wanted: str, *, unreviewed: bool, allow_protected: bool) -> int:
    """Apply a run's patch to the tree that it was made from.

    Raises:
        PreconditionFailed: It can't be applied as it is; the message says what would let it.
        NodeError: What is kept of it can't be used.
    """
    view, root = _ended_run(wanted)
    _require_known(view, opened=True)
    if view.patch is None or not view.patch.files:
        say(f"run {view.id} changed nothing: there is nothing to apply")
        return 0
    if not view.patch.reviewed and not unreviewed:
        raise PreconditionFailed(
            f"no review has passed the patch of run {view.id}; look at it with `remit patch {view.id}`, "
            "then add --unreviewed"
        )
    deliveries = Deliveries(_node_data())
    content_hash = deliveries.find_changes(view.id, view.patch.sha256)
    if content_hash is None:
        raise PreconditionFailed(
            f"the files of run {view.id} aren't kept any more; `remit patch {view.id} | git apply` may do"
        )
    settings = _settings_at(root)
    order = DeliveryOrder(
        run_id=view.id,
        root=root,
        content_hash=content_hash,
        patch_sha256=view.patch.sha256,
        allow_protected=allow_protected,
        **({"protected": settings.protected, "frozen": settings.freeze} if settings is not None else {}),
    )
    outcome = deliveries.deliver(order)
    match outcome.status:
        case "conflict":
            say(f"nothing was applied: changed meanwhile: {_named(outcome.paths)}")
            return 1
        case "refused":
            say(
                f"nothing was applied: it touches protected paths: {_named(outcome.paths)}; "
                "look at them, then add --allow-protected"
            )
            return 1
        case _:
            _log(view, "delivery.completed", {"mode": "apply", "by": "hand", "unreviewed": unreviewed})
            word = "was applied already" if outcome.repeated else "applied"
            say(f"{count(len(outcome.paths), 'file')} {word} to {root}; `remit undo {view.id}` takes it back")
            return 0


def undo_patch(wanted: str) -> int:
    """Take back what a run applied.

    Raises:
        PreconditionFailed: It applied nothing, or its files were changed since.
    """
    deliveries = Deliveries(_node_data())
    if _take_back_what_died(deliveries, wanted):
        return 0
    view, root = _ended_run(wanted)
    delivered = deliveries.find_delivered(view.id)
    if not delivered:
        raise PreconditionFailed(f"run {view.id} has nothing applied that could be taken back")
    for content_hash in reversed(delivered):
        outcome = deliveries.undo(view.id, content_hash)
        if outcome.status == "conflict":
            raise PreconditionFailed(
                f"nothing was taken back: changed since run {view.id} applied it: {_named(outcome.paths)}"
            )
        _log(view, "delivery.undone", {"paths": len(outcome.paths)})
        say(f"{count(len(outcome.paths), 'file')} in {root} as before run {view.id}")
    return 0


def _take_back_what_died(deliveries: Deliveries, wanted: str) -> bool:
    """Put right what dead processes left half applied; whether the wanted run's was taken back by that."""
    with open_reader() as reader:
        run_id = find_run(reader, wanted).view.id
    recovered = deliveries.recover()
    for found in recovered:
        say(recovered_words(found.run_id, found.root, found.how, found.left))
    return any(found.run_id == run_id and found.how == "back" for found in recovered)


def _require_known(view: RunView, *, opened: bool) -> None:
    """Raise where a run worked on a copy, and died before what it changed there was stored.

    Raises:
        PreconditionFailed: It did.
    """
    unproven = view.terminal is None or view.terminal.kind == "indeterminate"
    if opened and unproven and view.patch is None:
        raise PreconditionFailed(f"what run {view.id} changed isn't known: no patch of it was stored")


def _story_of(reader: RunReader, run_id: str) -> Story:
    story = Story()
    for event in reader.read_events(run_id):
        story.add(event)
    return story


def _ended_run(wanted: str) -> tuple[RunView, Path]:
    """The run, and the folder that its patch belongs to."""
    with open_reader() as reader:
        stored = find_run(reader, wanted)
        assert reader is not None, "a run was found in it"
        if stored.view.terminal is None:
            raise PreconditionFailed(f"run {stored.view.id} hasn't ended; `remit show {stored.view.id}`")
        story = _story_of(reader, stored.view.id)
    if story.root is None:
        raise PreconditionFailed(
            f"run {stored.view.id} never opened a copy of the workspace: it has no patch"
        )
    root = Path(story.root)
    if not root.is_dir():
        raise NotFound(f"the folder of run {stored.view.id} is gone: {root}")
    return stored.view, root


def _node_data() -> Path:
    return node_folder(data_folder(os.environ)).resolve()


def _settings_at(root: Path) -> WorkspaceSettings | None:
    """What is configured for the folder; None: nothing, so the defaults hold."""
    config = load_config(environment=os.environ, folder=root, repository=find_repository_root(root))
    return config.find_workspace_at(root)


def _log(view: RunView, what: str, data: dict[str, Any]) -> None:
    async def log() -> None:
        async with SqliteStore.open(data_folder(os.environ), clock=SystemClock()) as store:
            await store.log(view.id, what, data)

    asyncio.run(log())


def _named(paths: tuple[str, ...]) -> str:
    shown = ", ".join(one_line(path, width=200) for path in paths[:_NAMED_PATHS])
    more = len(paths) - _NAMED_PATHS
    return f"{shown} and {more} more" if more > 0 else shown
