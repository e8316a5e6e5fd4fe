"""What `remit patch` and `remit undo` do with a patch that is to be delivered, discarded or taken back."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

from remit.cli._deciding import NAME_TAKEN
from remit.cli._finding import find_run, open_reader
from remit.cli._formats import count
from remit.cli._printing import require_known, story_of
from remit.cli._signals import held
from remit.cli._words import one_line, recovered_words, say
from remit.config import data_folder, find_repository_root, load_config
from remit.contract import RunView
from remit.errors import NodeError, NotFound, PreconditionFailed
from remit.host import ByHand, PatchPlace, branches_of, check_discardable, deliver_by_hand
from remit.node_agent import node_folder
from remit.primitives import SystemClock, format_time
from remit.runs import StoredRun, newest_delivery
from remit.storage import SqliteStore
from remit.workspaces import Deliveries, Outcome, WorkspaceSettings, has_branches, settle_died

_NAMED_PATHS = 10


def deliver_there(wanted: str, by_hand: ByHand, *, host: str) -> int:
    """Have a host deliver a run's patch, or approve a delivery that waits there; returns the exit code."""
    from remit.cli._remote import secret_for_host  # noqa: PLC0415 - most patches need no client
    from remit.client import Client  # noqa: PLC0415

    with Client(host, api_key=secret_for_host()) as client:
        told = client.deliver(
            wanted,
            unreviewed=by_hand.unreviewed,
            allow_protected=by_hand.allow_protected,
            branch=by_hand.branch,
        )
    return _tell_there(wanted, told["delivery"])


def _tell_there(wanted: str, delivery: dict[str, Any]) -> int:
    mode, status = delivery["mode"], delivery["status"]
    if status == "conflict":
        if mode == "branch":
            say(f"there is a branch {one_line(delivery['ref'] or '')} already, or one in its way")
            return NAME_TAKEN
        say("nothing was applied: the workspace's files were changed meanwhile")
        return 1
    match mode, status:
        case "branch", "delivered":
            say(f"the patch of run {wanted} is on the branch {one_line(delivery['ref'])} on the host")
        case "apply", "delivered":
            say(f"the patch of run {wanted} is applied to its workspace on the host")
        case _:
            say(f"run {wanted}: {status}")
    return 0


def discard_there(wanted: str, *, host: str) -> int:
    """Have a host never apply a run's patch; returns the exit code."""
    from remit.cli._remote import secret_for_host  # noqa: PLC0415 - most patches need no client
    from remit.client import Client  # noqa: PLC0415

    with Client(host, api_key=secret_for_host()) as client:
        client.discard(wanted)
    say(f"the patch of run {wanted} is discarded; `remit patch {wanted}` still shows it")
    return 0


def discard_here(wanted: str) -> int:
    """Let a run's patch never be applied.

    Raises:
        PreconditionFailed: It was, or there is none.
    """
    stored, _ = _ended_run(wanted)
    with open_reader() as reader:
        assert reader is not None, "a run was found in it"
        history = reader.read_history(stored.view.id)
    check_discardable(stored, history)
    log_by_hand(stored.view, "delivery.discarded", {"by": "hand"})
    say(f"the patch of run {stored.view.id} is discarded; `remit patch {stored.view.id}` still shows it")
    return 0


@held()
def deliver_here(wanted: str, by_hand: ByHand, *, settings: WorkspaceSettings | None = None) -> int:
    """Deliver a run's patch to the tree that it was made from, or to a branch there.

    Args:
        wanted: The run.
        by_hand: How.
        settings: Of its workspace; None: what is configured for its folder.

    Returns:
        The exit code: 0 delivered, 1 not, `NAME_TAKEN` where only the branch's name was in the way.

    Raises:
        PreconditionFailed: It can't be delivered as it is; the message says what would let it.
        NodeError: What is kept of it can't be used.
    """
    found = deliverable(wanted, unreviewed=by_hand.unreviewed)
    if found is None:
        return 0
    stored, root = found
    view = stored.view
    settings = settings or _settings_at(root)
    place = PatchPlace(
        node_data=node_data(),
        root=root,
        protected=settings.protected if settings is not None else None,
        frozen=settings.freeze if settings is not None else (),
        environment=os.environ,
    )

    async def deliver() -> Outcome:
        async with SqliteStore.open(data_folder(os.environ), clock=SystemClock()) as store:
            now = SystemClock().now()
            return await deliver_by_hand(stored, by_hand, place=place, log=store, now=now)

    return _tell(view, root, asyncio.run(deliver()))


def deliverable(wanted: str, *, unreviewed: bool) -> tuple[StoredRun, Path] | None:
    """The run whose patch may be delivered, and where to; None: it changed nothing, which was said.

    Raises:
        PreconditionFailed: It may not; the message says what would let it.
    """
    stored, root = _ended_run(wanted)
    view = stored.view
    require_known(view, opened=True)
    if view.patch is None or not view.patch.files:
        say(f"run {view.id} changed nothing: there is nothing to apply")
        return None
    with open_reader() as reader:
        assert reader is not None, "a run was found in it"
        newest = newest_delivery(view, reader.read_history(view.id))
    if newest is not None and newest.status == "discarded":
        raise PreconditionFailed(f"the patch of run {view.id} was discarded")
    if not view.patch.reviewed and not unreviewed:
        raise PreconditionFailed(
            f"no review has passed the patch of run {view.id}; look at it with `remit patch {view.id}`, "
            "then add --unreviewed"
        )
    return stored, root


def _tell(view: RunView, root: Path, outcome: Outcome) -> int:
    match outcome.status:
        case "conflict" if outcome.why is not None:
            say(f"nothing was delivered: {one_line(outcome.why)}")
            return NAME_TAKEN
        case "conflict":
            say(f"nothing was applied: changed meanwhile: {named(outcome.paths)}")
            say(f"`remit patch {view.id} --apply --3way` merges what you did and what the run did")
            return 1
        case "refused":
            why = outcome.why or "they are protected; look at them, then add --allow-protected"
            say(f"nothing was delivered: {named(outcome.paths)}: {why}")
            return 1
        case _:
            again = "was delivered already: " if outcome.repeated else ""
            files = count(len(outcome.paths), "file")
            where = f"on the new branch {outcome.ref}" if outcome.ref is not None else f"applied to {root}"
            say(f"{again}{files} {where}; `remit undo {view.id}` takes it back")
            return 0


@held()
def undo_patch(wanted: str) -> int:
    """Take back what a run delivered: what it applied, and the branches that it made.

    Raises:
        PreconditionFailed: It delivered nothing, or what it did was changed since.
    """
    deliveries = Deliveries(node_data())
    if _take_back_what_died(deliveries, wanted):
        return 0
    with open_reader() as reader:
        stored = find_run(reader, wanted)
    died = asyncio.run(_settle_in_place(stored))
    stored, root = (stored, died) if died is not None else _ended_run(wanted)
    view = stored.view
    delivered = deliveries.find_delivered(stored.outside_id)
    for content_hash in reversed(delivered):
        outcome = deliveries.undo(stored.outside_id, content_hash)
        if outcome.status == "conflict":
            raise PreconditionFailed(
                f"nothing was taken back: changed since run {view.id} applied it: {named(outcome.paths)}"
            )
        if view.terminal is not None:  # of one that died nothing is recorded until a host has ended it
            log_by_hand(view, "delivery.undone", {"mode": "apply", "paths": len(outcome.paths)})
        say(f"{count(len(outcome.paths), 'file')} in {root} as before run {view.id}")
    removed = asyncio.run(_remove_branches(stored))
    if not delivered and not removed:
        if died is not None:
            say(f"nothing in {root} differs from before run {view.id}")
            return 0
        raise PreconditionFailed(f"run {view.id} {_why_nothing_is_left(view.id)}")
    return 0


def _why_nothing_is_left(run_id: str) -> str:
    with open_reader() as reader:
        history = reader.read_history(run_id) if reader is not None else ()
    acts = [entry.at for entry in history if entry.type == "delivery.undone"]
    if acts:
        again = f"`remit patch {run_id} --apply` applies it again"
        return f"was taken back already, at {format_time(acts[-1])}; {again}"
    return "has nothing delivered that could be taken back"


async def _settle_in_place(stored: StoredRun) -> Path | None:
    """Note what a run in place did whose process died; the folder where it did. None: it's not such a run.

    Raises:
        PreconditionFailed: It is still at work, or what the tree was like before can't be read.
    """
    with tempfile.TemporaryDirectory(prefix="remit-undo-") as scratch:
        try:
            died = await settle_died(node_data(), stored.outside_id, os.environ, scratch=Path(scratch))
        except NodeError as error:
            raise PreconditionFailed(f"run {stored.view.id} can't be undone: {error.message}") from error
    if died is None:
        return None
    say(f"run {stored.view.id} died at work in {died.root}; what differs from before it goes, whoever did it")
    if died.files:
        say(f"it is kept as a patch: {died.patch}")
    return died.root


async def _remove_branches(stored: StoredRun) -> int:
    """Remove the branches that a run made; how many there were.

    Raises:
        PreconditionFailed: One is checked out, or has moved on.
    """
    if not has_branches(node_data(), stored.outside_id):
        return 0  # and needs no git
    branches = await branches_of(node_data(), os.environ)
    made = branches.find_made(stored.outside_id)
    for content_hash, receipt in made:
        outcome = await branches.undo(stored.outside_id, content_hash, receipt.branch)
        if outcome.status == "conflict":
            raise PreconditionFailed(f"the branch stays: {outcome.why}")
        await _log_async(stored.view, "delivery.undone", {"mode": "branch", "ref": receipt.branch})
        say(f"the branch {one_line(receipt.branch)} of run {stored.view.id} is removed")
    return len(made)


def _take_back_what_died(deliveries: Deliveries, wanted: str) -> bool:
    """Put right what dead processes left half applied; whether the wanted run's was taken back by that."""
    with open_reader() as reader:
        run_id = find_run(reader, wanted).view.id
    recovered = deliveries.recover()
    for found in recovered:
        say(recovered_words(found.run_id, found.root, found.how, found.left))
    return any(found.run_id == run_id and found.how == "back" for found in recovered)


def _ended_run(wanted: str) -> tuple[StoredRun, Path]:
    """The run, and the folder that its patch belongs to."""
    with open_reader() as reader:
        stored = find_run(reader, wanted)
        assert reader is not None, "a run was found in it"
        if stored.view.terminal is None:
            raise PreconditionFailed(f"run {stored.view.id} hasn't ended; `remit show {stored.view.id}`")
        story = story_of(reader, stored.view.id)
    if story.root is None:
        raise PreconditionFailed(
            f"run {stored.view.id} never opened a copy of the workspace: it has no patch"
        )
    root = Path(story.root)
    if not root.is_dir():
        raise NotFound(f"the folder of run {stored.view.id} is gone: {root}")
    return stored, root


def node_data() -> Path:
    """Where this machine's node keeps its own things."""
    return node_folder(data_folder(os.environ)).resolve()


def _settings_at(root: Path) -> WorkspaceSettings | None:
    """What is configured for the folder; None: nothing, so the defaults hold."""
    config = load_config(environment=os.environ, folder=root, repository=find_repository_root(root))
    return config.find_workspace_at(root)


def log_by_hand(view: RunView, what: str, data: dict[str, Any]) -> None:
    """Put on record what was done with a run's patch."""
    asyncio.run(_log_async(view, what, data))


async def _log_async(view: RunView, what: str, data: dict[str, Any]) -> None:
    async with SqliteStore.open(data_folder(os.environ), clock=SystemClock()) as store:
        await store.log(view.id, what, data)


def named(paths: tuple[str, ...]) -> str:
    """The first of some paths, and how many more there are."""
    shown = ", ".join(one_line(path, width=200) for path in paths[:_NAMED_PATHS])
    more = len(paths) - _NAMED_PATHS
    return f"{shown} and {more} more" if more > 0 else shown
