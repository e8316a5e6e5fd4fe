"""The work registry: proof of shared execution."""

from __future__ import annotations

import dataclasses
import gc

import pytest

from remit.contract import WorkKind
from remit.work import SharedExecutionLink, SharedExecutionPermit, WorkSpec
from remit.work._entry import Entry
from remit.work._permits import Binding
from work_kit import Kit

LINK = SharedExecutionLink(
    session_id="child",
    parent_session_id="parent",
    run_id="run_1",
    node_id="build",
    activation_id="act_1",
    attempt=1,
    workspace_snapshot="sha256:aa",
)


def _bound(kit: Kit, link: SharedExecutionLink = LINK) -> SharedExecutionPermit:
    kit.add(
        link.dispatch_id, session=link.session_id, kind=WorkKind.WORKFLOW_NODE, parent=link.parent_work_id
    )
    permit = SharedExecutionPermit(link)
    assert kit.registry.bind_shared_execution(link.session_id, link.dispatch_id, permit)
    return permit


def _proves(kit: Kit, link: SharedExecutionLink = LINK, *, work_id: str = LINK.dispatch_id) -> bool:
    return kit.registry.proves_shared_execution("child", work_id, link)


def test_nothing_is_proven_without_a_bound_permit() -> None:
    """B45: neither for an item without one, nor for no item at all."""
    kit = Kit()
    assert not _proves(kit)
    kit.add(LINK.dispatch_id, session="child", kind=WorkKind.WORKFLOW_NODE, parent=LINK.parent_work_id)
    assert not _proves(kit)
    assert kit.registry.find_shared_execution("child", LINK.dispatch_id) is None


def test_binding_needs_session_item_and_kind() -> None:
    """B46: each is refused when missing or released; a cancelled item may be bound; again replaces."""
    kit = Kit()
    permit = SharedExecutionPermit(LINK)
    assert not kit.registry.bind_shared_execution("child", LINK.dispatch_id, permit)
    kit.add(LINK.dispatch_id, session="child", kind=WorkKind.TOOL, parent=LINK.parent_work_id)
    assert not kit.registry.bind_shared_execution("child", LINK.dispatch_id, permit)
    kit.add(LINK.dispatch_id, session="child", kind=WorkKind.WORKFLOW_NODE, parent=LINK.parent_work_id)
    kit.add(LINK.dispatch_id, session="other", kind=WorkKind.WORKFLOW_NODE, parent=LINK.parent_work_id)
    assert not kit.registry.bind_shared_execution("other", LINK.dispatch_id, permit)
    released = SharedExecutionPermit(LINK)
    released.release()
    assert not kit.registry.bind_shared_execution("child", LINK.dispatch_id, released)
    kit.registry.cancel("child", LINK.dispatch_id)
    assert kit.registry.bind_shared_execution("child", LINK.dispatch_id, permit)
    assert _proves(kit)
    seen = kit.registry.find_shared_execution("child", LINK.dispatch_id)
    second = SharedExecutionPermit(LINK)
    assert kit.registry.bind_shared_execution("child", LINK.dispatch_id, second)
    assert seen is not None
    assert seen.provenance is None
    permit.release()
    assert _proves(kit)


@pytest.mark.parametrize(
    "change",
    [
        {"run_id": "run_2"},
        {"node_id": "test"},
        {"activation_id": "act_2"},
        {"activation_id": None},
        {"attempt": 2},
        {"workspace_snapshot": "sha256:bb"},
        {"workspace_snapshot": None},
        {"parent_session_id": "child"},
        {"session_id": "parent"},
        {"mode": "isolated"},
    ],
    ids=str,
)
def test_proof_needs_every_detail(change: dict[str, object]) -> None:
    """B47, B48: any other run, node, activation, attempt, snapshot, session or mode proves nothing."""
    kit = Kit()
    permit = _bound(kit)
    assert _proves(kit)
    assert not _proves(kit, dataclasses.replace(LINK, **change))
    assert permit.link == LINK


@pytest.mark.parametrize(
    "change", [{"activation_id": None}, {"workspace_snapshot": None}, {"mode": "isolated"}], ids=str
)
def test_permit_that_lacks_a_detail_proves_nothing(change: dict[str, object]) -> None:
    """B47: not even the very link that it was made for."""
    kit = Kit()
    link = dataclasses.replace(LINK, **change)
    permit = _bound(kit, link)
    assert not _proves(kit, link, work_id=link.dispatch_id)
    assert permit.link == link


def test_proof_needs_the_work_ids_of_the_execution() -> None:
    """B47: the item's own id is the dispatch identity, and its parent is `workflow:RUN`."""
    kit = Kit()
    permit = SharedExecutionPermit(LINK)
    kit.add("anything", session="child", kind=WorkKind.WORKFLOW_NODE, parent=LINK.parent_work_id)
    assert kit.registry.bind_shared_execution("child", "anything", permit)
    assert not _proves(kit, work_id="anything")
    kit.add(LINK.dispatch_id, session="child", kind=WorkKind.WORKFLOW_NODE, parent="workflow:run_2")
    assert kit.registry.bind_shared_execution("child", LINK.dispatch_id, permit)
    assert not _proves(kit)
    kit.add(LINK.dispatch_id, session="child", kind=WorkKind.WORKFLOW_NODE)
    assert kit.registry.bind_shared_execution("child", LINK.dispatch_id, permit)
    assert not _proves(kit)


@pytest.mark.parametrize(
    ("session", "kind"), [("child", WorkKind.TOOL), ("other", WorkKind.WORKFLOW_NODE)], ids=str
)
def test_proof_looks_at_kind_and_session_again(session: str, kind: WorkKind) -> None:
    """B47: what the binding has refused proves nothing either, however it came to be bound."""
    kit = Kit()
    permit = SharedExecutionPermit(LINK)
    for bound_session, bound_kind, proved in ((session, kind, None), ("child", WorkKind.WORKFLOW_NODE, LINK)):
        spec = WorkSpec(
            work_id=LINK.dispatch_id, kind=bound_kind, label="", handle=kit.fired.handle(),
            parent_work_id=LINK.parent_work_id,
        )  # fmt: skip
        entry = Entry(bound_session, spec)
        assert Binding(entry, permit).proved() == proved


@pytest.mark.parametrize("ending", ["release", "drop", "finish", "take", "again"])
def test_proof_ends_with_the_permit_or_the_registration(ending: str) -> None:
    """B49: at once, and an observation that somebody kept has no provenance any more."""
    kit = Kit()
    permits = [_bound(kit)]
    token = kit.registry.observation_token("child", LINK.dispatch_id)
    assert token is not None
    owner, _ = token.unseal()  # held, so that it isn't gone by itself
    assert owner is not None
    seen = kit.registry.find_shared_execution("child", LINK.dispatch_id)
    assert seen is not None
    assert seen.provenance == LINK
    match ending:
        case "release":
            permits[0].release()
        case "drop":
            permits.clear()
            gc.collect()
        case "finish":
            kit.registry.finish("child", LINK.dispatch_id)
        case "take":
            kit.registry.take("child", LINK.dispatch_id)
        case _:
            kit.add(
                LINK.dispatch_id, session="child", kind=WorkKind.WORKFLOW_NODE, parent=LINK.parent_work_id
            )
    assert not _proves(kit)
    assert seen.provenance is None


def test_cancel_alone_ends_no_proof() -> None:
    """B49: what is asked to stop still executes."""
    kit = Kit()
    permit = _bound(kit)
    kit.registry.cancel("child", LINK.dispatch_id)
    assert _proves(kit)
    permit.release()
    assert not _proves(kit)


def test_parents_summary_shows_what_executes_now() -> None:
    """B50: nothing after the release."""
    kit = Kit()
    other = dataclasses.replace(LINK, node_id="test")
    with _bound(kit) as first, _bound(kit, other) as second:
        assert kit.registry.shared_executions("child", "run_1") == (LINK, other)
        assert kit.registry.shared_executions("child", "run_2") == ()
        assert kit.registry.shared_executions("other", "run_1") == ()
        first.release()
        assert kit.registry.shared_executions("child", "run_1") == (other,)
        assert second.link == other
    assert kit.registry.shared_executions("child", "run_1") == ()
