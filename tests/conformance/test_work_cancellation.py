"""The work registry: registering and cancelling."""

from __future__ import annotations

import asyncio
import time
from typing import Any, get_args

import pytest

from remit.contract import WorkKind
from remit.primitives import SystemClock
from remit.work import (
    CancelToken,
    CleanupScope,
    DeliveryHandle,
    DurableFlagHandle,
    Handle,
    InvocationHandle,
    NodeCallHandle,
    Observation,
    ObservedStage,
    ProbeHandle,
    ScopeHandle,
    ServiceCallHandle,
    SharedExecutionLink,
    SharedExecutionPermit,
    StreamHandle,
    WorkRegistry,
    WorkSpec,
)
from work_kit import Kit


async def _nothing() -> None:
    pass


def _every_handle() -> list[Handle]:
    return [
        ScopeHandle(lambda: None),
        StreamHandle(_nothing),
        NodeCallHandle(_nothing),
        InvocationHandle(CancelToken()),
        ServiceCallHandle(CancelToken()),
        DeliveryHandle(lambda: None),
        DurableFlagHandle(_nothing),
        ProbeHandle(_nothing),
    ]


@pytest.mark.parametrize("handle", _every_handle(), ids=lambda handle: handle.kind)
def test_first_registration_is_new_and_cancellable(handle: Handle) -> None:
    """B1: the first registration answers (true, true), whatever the handle.

    B56: neither does a cancel change that, nor does the answer tell that an item was born cancelled.
    """
    kit = Kit()
    assert kit.add("a", handle=handle) == (True, True)
    assert kit.registry.snapshot("s")[0].cancellable
    kit.registry.cancel("s", "a")
    assert kit.registry.snapshot("s")[0].cancellable
    assert kit.add("born", parent="a", handle=handle) == (True, True)
    assert kit.add("a", handle=handle) == (True, False)
    assert [found.cancellable for found in kit.registry.snapshot("s")] == [True, True]


def test_every_kind_of_handle_is_looked_at() -> None:
    """B1, B55: the union of handles is sealed, and the test above knows each of its kinds."""
    kinds = {kind.__dataclass_fields__["kind"].default for kind in get_args(Handle)}
    assert kinds == {handle.kind for handle in _every_handle()}
    assert len(kinds) == len(get_args(Handle))


def test_identity_is_session_and_work_id() -> None:
    """B2: the same work id in two sessions names two items."""
    kit = Kit()
    assert kit.add("a", session="s1") == (True, True)
    assert kit.add("a", session="s2") == (True, True)
    kit.registry.cancel("s1", "a")
    assert kit.cancelled(session="s1") == {"a"}
    assert kit.cancelled(session="s2") == set()
    assert kit.registry.is_cancelled("s1", "a")
    assert not kit.registry.is_cancelled("s2", "a")
    assert kit.registry.replace_cancellation("s2", "a", kit.fired.handle("new"))
    assert kit.registry.cancel("s2", "a") == [("s2", "a")]
    assert kit.registry.finish("s2", "a")
    assert kit.registry.active_ids_for_session("s1") == ("a",)
    assert kit.registry.active_ids_for_session("s2") == ()
    assert kit.registry.take("s2", "a") is None
    assert kit.registry.take("s1", "a") is not None


async def test_registering_again_replaces() -> None:
    """B3: newly is false; entry and handle are new, and stage, shared execution and owner start anew."""
    kit = Kit()
    link = SharedExecutionLink(
        session_id="s", parent_session_id="p", run_id="r", node_id="n", activation_id="x", attempt=1,
        workspace_snapshot="w",
    )  # fmt: skip
    work_id = link.dispatch_id
    kit.add(work_id, kind=WorkKind.WORKFLOW_NODE, parent="workflow:r")
    permit = SharedExecutionPermit(link)
    assert kit.registry.bind_shared_execution("s", work_id, permit)
    token = kit.registry.observation_token("s", work_id)
    assert token is not None
    token = kit.registry.observe(token, ObservedStage.DISPATCH)
    assert token is not None
    assert kit.registry.proves_shared_execution("s", work_id, link)
    owner, _ = token.unseal()  # held, so that it isn't gone by itself
    assert owner is not None

    spec = WorkSpec(
        work_id=work_id, kind=WorkKind.WORKFLOW_NODE, label="anew", handle=kit.fired.handle("new"),
        parent_work_id="workflow:r",
    )  # fmt: skip
    assert kit.registry.register("s", spec) == (True, False)
    assert kit.registry.find_spec("s", work_id) is spec
    assert kit.registry.snapshot("s")[0].label == "anew"
    assert kit.registry.snapshot("s")[0].observation is None
    assert kit.registry.observe(token, ObservedStage.CLEANUP) is None
    assert not kit.registry.proves_shared_execution("s", work_id, link)
    assert kit.registry.active_count() == 1
    kit.registry.cancel("s", work_id)
    await kit.cleanups.run_all()
    assert kit.fired.names == ["new"]


def test_spec_carries_all_its_fields() -> None:
    """B4, B57: ten fields and a parent's session; all but work id, kind, label and handle start as none."""
    bare = WorkSpec(work_id="a", kind=WorkKind.TOOL, label="l", handle=ScopeHandle(lambda: None))
    assert (bare.tool_call_id, bare.plugin_id, bare.service_interface, bare.operation) == (None,) * 4
    assert (bare.parent_work_id, bare.parent_session_id, bare.guard) == (None,) * 3
    guard = object()
    whole = WorkSpec(
        work_id="a", kind=WorkKind.PLUGIN_INVOCATION, label="l", handle=ScopeHandle(lambda: None),
        tool_call_id="t", plugin_id="p", service_interface="i", operation="o", parent_work_id="b",
        guard=guard,
    )  # fmt: skip
    kit = Kit()
    kit.registry.register("s", whole)
    assert kit.registry.take("s", "a") is whole
    assert whole.guard is guard
    handle = ScopeHandle(lambda: None)
    needed: dict[str, Any] = {"work_id": "a", "kind": WorkKind.TOOL, "label": "l", "handle": handle}
    for name in needed:
        with pytest.raises(TypeError, match=name):
            WorkSpec(**{key: value for key, value in needed.items() if key != name})
    none = WorkSpec(**needed, tool_call_id=None, parent_work_id=None)
    assert (none.tool_call_id, none.parent_work_id) == (None, None)


async def test_child_of_a_cancelled_parent_is_born_cancelled() -> None:
    """B5, R3: its handle is fired once, though nobody cancels it; under a live parent nothing is fired."""
    kit = Kit()
    kit.add("parent")
    kit.add("early", parent="parent")
    assert kit.cleanups.held == []
    kit.registry.cancel("s", "parent")
    await kit.cleanups.run_all()
    kit.fired.names.clear()
    assert kit.add("late", parent="parent") == (True, True)
    assert kit.cancelled() == {"parent", "early", "late"}
    await kit.cleanups.run_all()
    assert kit.fired.names == ["late"]
    assert kit.registry.cancel("s", "late") == []
    await kit.cleanups.run_all()
    assert kit.fired.names == ["late"]


def test_unknown_or_finished_parent_passes_nothing_on() -> None:
    """B5: naming a parent that isn't registered, or isn't any more, is no error and flags nothing."""
    kit = Kit()
    kit.add("orphan", parent="nobody")
    kit.add("parent")
    kit.registry.cancel("s", "parent")
    kit.registry.finish("s", "parent")
    kit.add("late", parent="parent")
    assert kit.cancelled() == set()


async def test_id_that_was_cancelled_stays_cancelled_while_it_is_registered() -> None:
    """B6: registering it again keeps the flag and fires the new handle; after finish the id starts clean."""
    kit = Kit()
    kit.add("parent")
    kit.add("a", parent="parent")
    kit.registry.cancel("s", "a")
    kit.cleanups.held.clear()
    assert kit.add("a", handle=kit.fired.handle("again")) == (True, False)
    assert kit.cancelled() == {"a"}
    await kit.cleanups.run_all()
    assert kit.fired.names == ["again"]
    for remove in (kit.registry.finish, kit.registry.take):
        assert remove("s", "a")
        assert kit.add("a") == (True, True)
        assert kit.cancelled() == set()
        kit.registry.cancel("s", "a")


async def test_service_call_is_tripped_before_register_returns() -> None:
    """B7: at such a start its token is tripped at once; other handles fire later, on a cancel this too."""
    kit = Kit()
    kit.add("parent")
    kit.registry.cancel("s", "parent")
    kit.cleanups.held.clear()
    born, invoked, live = CancelToken(), CancelToken(), CancelToken()
    kit.add("service", parent="parent", handle=ServiceCallHandle(born))
    assert born.tripped
    kit.add("invocation", parent="parent", handle=InvocationHandle(invoked))
    assert not invoked.tripped
    kit.add("running", handle=ServiceCallHandle(live))
    kit.registry.cancel("s", "running")
    assert not live.tripped
    await kit.cleanups.run_all()
    assert invoked.tripped
    assert live.tripped


def test_cancel_reaches_every_descendant_of_the_same_session() -> None:
    """B8, R3: transitively, in one step; another session's item with the same parent id isn't touched."""
    kit = Kit()
    kit.add("a")
    kit.add("b", parent="a")
    kit.add("c", parent="b")
    kit.add("d")
    kit.add("a", session="other")
    kit.add("b", session="other", parent="a")
    flagged = kit.registry.cancel("s", "a")
    assert {work_id for _, work_id in flagged} == {"a", "b", "c"}
    assert kit.cancelled() == {"a", "b", "c"}
    assert kit.cancelled(session="other") == set()


def test_parent_may_be_in_another_session_when_it_is_named() -> None:
    """B8, as decided: an explicit link across sessions is followed, and the pairs say whose is whose."""
    kit = Kit()
    kit.add("parent", session="s1")
    kit.add("child", session="s2", parent="parent", parent_session="s1")
    kit.add("bystander", session="s2", parent="parent")
    assert kit.registry.cancel("s1", "parent") == [("s1", "parent"), ("s2", "child")]
    assert kit.cancelled(session="s2") == {"child"}
    kit.add("late", session="s3", parent="parent", parent_session="s1")
    assert kit.cancelled(session="s3") == {"late"}


def test_cancel_returns_what_is_newly_flagged() -> None:
    """B9: the target first; alone it is the whole list; an unknown id gives an empty one."""
    kit = Kit()
    kit.add("alone")
    assert kit.registry.cancel("s", "alone") == [("s", "alone")]
    kit.add("parent")
    kit.add("child", parent="parent")
    flagged = kit.registry.cancel("s", "parent")
    assert flagged[0] == ("s", "parent")
    assert ("s", "child") in flagged
    assert kit.registry.cancel("s", "unknown") == []
    assert kit.registry.cancel("unknown", "parent") == []


async def test_second_cancel_is_empty_and_signals_nobody() -> None:
    """B10: it returns nothing and fires nothing."""
    kit = Kit()
    kit.add("a")
    kit.add("b", parent="a")
    kit.registry.cancel("s", "a")
    await kit.cleanups.run_all()
    assert sorted(kit.fired.names) == ["a", "b"]
    assert kit.registry.cancel("s", "a") == []
    await kit.cleanups.run_all()
    assert sorted(kit.fired.names) == ["a", "b"]


async def test_cancel_awaits_no_handle() -> None:
    """B11: a handle that never returns can't delay it."""
    async with CleanupScope(grace_s=0.05) as scope:
        registry = WorkRegistry(clock=SystemClock(), cleanups=scope)
        begun = asyncio.Event()

        async def never() -> None:
            begun.set()
            await asyncio.Event().wait()

        registry.register("s", WorkSpec(work_id="a", kind=WorkKind.TOOL, label="", handle=ProbeHandle(never)))
        started = time.perf_counter()
        assert registry.cancel("s", "a") == [("s", "a")]
        assert time.perf_counter() - started < 0.1
        await asyncio.wait_for(begun.wait(), 5)
        assert registry.is_cancelled("s", "a")


async def test_service_call_token_is_tripped_by_its_parents_cancel() -> None:
    """B12: untouched while the parent lives, tripped within a second of its cancel, listed until finished."""
    async with CleanupScope() as scope:
        registry = WorkRegistry(clock=SystemClock(), cleanups=scope)
        token = CancelToken()
        registry.register(
            "s", WorkSpec(work_id="p", kind=WorkKind.RUN, label="", handle=ScopeHandle(lambda: None))
        )
        spec = WorkSpec(
            work_id="c", kind=WorkKind.PLUGIN_INVOCATION, label="", handle=ServiceCallHandle(token),
            parent_work_id="p",
        )  # fmt: skip
        registry.register("s", spec)
        await asyncio.sleep(0.01)
        assert not token.tripped
        registry.cancel("s", "p")
        assert not token.tripped
        await asyncio.wait_for(token.wait(), 1)
        assert "c" in registry.active_ids_for_session("s")
        assert registry.finish("s", "c")
        assert registry.active_ids_for_session("s") == ("p",)


async def test_failing_handle_reverts_nothing() -> None:
    """B13: the flag stands, and the failure is told."""
    kit = Kit()
    kit.add("a", handle=kit.fired.handle("a", error=OSError("no route")))
    kit.registry.cancel("s", "a")
    await kit.cleanups.run_all()
    assert kit.cancelled() == {"a"}
    assert [failure.message for failure in kit.failures] == ["no route"]


def test_cancel_everywhere_finds_the_exact_id_in_every_session() -> None:
    """B14: descendants included, other ids left alone; an unknown id gives an empty list."""
    kit = Kit()
    for session in ("s1", "s2"):
        kit.add("job", session=session)
        kit.add("part", session=session, parent="job")
        kit.add("job-2", session=session)
    flagged = kit.registry.cancel_everywhere("job")
    assert set(flagged) == {("s1", "job"), ("s1", "part"), ("s2", "job"), ("s2", "part")}
    assert kit.cancelled(session="s1") == {"job", "part"}
    assert kit.registry.cancel_everywhere("job") == []
    assert kit.registry.cancel_everywhere("unknown") == []


async def test_replacing_the_handle_changes_who_is_signalled() -> None:
    """B15: the old one isn't called; flag, stage, tokens and permit stay; a missing id answers false."""
    kit = Kit()
    link = SharedExecutionLink(
        session_id="s", parent_session_id="p", run_id="r", node_id="n", activation_id="x", attempt=1,
        workspace_snapshot="w",
    )  # fmt: skip
    kit.add(
        link.dispatch_id, kind=WorkKind.WORKFLOW_NODE, parent="workflow:r", handle=kit.fired.handle("old")
    )
    permit = SharedExecutionPermit(link)
    kit.registry.bind_shared_execution("s", link.dispatch_id, permit)
    token = kit.registry.observation_token("s", link.dispatch_id)
    assert token is not None
    token = kit.registry.observe(token, ObservedStage.DISPATCH)
    assert token is not None
    kit.clock.pass_ms(5)
    assert kit.registry.replace_cancellation("s", link.dispatch_id, kit.fired.handle("new"))
    assert kit.registry.snapshot("s")[0].status == "running"
    assert kit.registry.snapshot("s")[0].observation == Observation(
        stage=ObservedStage.DISPATCH, elapsed_ms=5
    )
    assert kit.registry.proves_shared_execution("s", link.dispatch_id, link)
    assert kit.registry.observe(token, ObservedStage.CLEANUP) is not None
    kit.registry.cancel("s", link.dispatch_id)
    await kit.cleanups.run_all()
    assert kit.fired.names == ["new"]
    assert kit.registry.replace_cancellation("s", link.dispatch_id, kit.fired.handle("newest"))
    assert kit.registry.is_cancelled("s", link.dispatch_id)
    assert not kit.registry.replace_cancellation("s", "unknown", kit.fired.handle())


def test_flagged_item_is_skipped_with_its_subtree() -> None:
    """B16: a later cancel from above reports only what is new; children that come later inherit."""
    kit = Kit()
    kit.add("a")
    kit.add("b", parent="a")
    kit.add("c", parent="b")
    kit.add("d", parent="a")
    kit.registry.cancel("s", "b")
    kit.cleanups.held.clear()
    flagged = kit.registry.cancel("s", "a")
    assert set(flagged) == {("s", "a"), ("s", "d")}
    assert set(kit.cleanups.launched()) == {("s", "a"), ("s", "d")}
    kit.add("e", parent="b")
    assert kit.cancelled() == {"a", "b", "c", "d", "e"}


def test_finish_is_true_once() -> None:
    """B17: then false, and the id is gone."""
    kit = Kit()
    kit.add("a")
    assert kit.registry.finish("s", "a")
    assert not kit.registry.finish("s", "a")
    assert not kit.registry.finish("unknown", "a")
    assert kit.registry.active_ids_for_session("s") == ()
    assert kit.registry.active_count() == 0


def test_cancelled_items_stay_listed_until_they_finish() -> None:
    """B18: a cancel changes neither the list nor the count."""
    kit = Kit()
    kit.add("a")
    kit.add("b")
    kit.registry.cancel("s", "a")
    assert kit.registry.active_ids_for_session("s") == ("a", "b")
    assert kit.registry.active_count() == 2
    kit.registry.finish("s", "a")
    assert kit.registry.active_ids_for_session("s") == ("b",)


def test_take_hands_the_guard_over() -> None:
    """B19: the spec goes to the caller alone, so that dropping it ends the ownership."""
    import gc
    import weakref

    class Guard:
        pass

    kit = Kit()
    guard = Guard()
    alive = weakref.ref(guard)
    kit.add("a", guard=guard)
    del guard
    assert alive() is not None
    spec = kit.registry.take("s", "a")
    assert spec is not None
    assert isinstance(spec.guard, Guard)
    assert spec.guard is alive()
    del spec
    gc.collect()
    assert alive() is None
    assert kit.registry.take("s", "a") is None
