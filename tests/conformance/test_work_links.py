"""The work registry: who hangs below whom, what is fired when, and what ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from remit.contract import WorkKind
from remit.errors import MisuseError
from remit.primitives import SystemClock
from remit.work import (
    CancelToken,
    CleanupScope,
    ObservationToken,
    ObservedStage,
    ProbeHandle,
    ScopeHandle,
    ServiceCallHandle,
    SharedExecutionLink,
    SharedExecutionPermit,
    WorkRegistry,
    WorkSpec,
)
from work_kit import Kit


def test_registering_again_drops_the_old_guard_and_fires_nothing() -> None:
    """B62: the old spec goes, with its guard; the old handle stays silent."""
    import gc
    import weakref

    class Guard:
        pass

    kit = Kit()
    guard = Guard()
    alive = weakref.ref(guard)
    kit.add("a", guard=guard, handle=kit.fired.handle("old"))
    del guard
    kit.add("a", handle=kit.fired.handle("new"))
    gc.collect()
    assert alive() is None
    assert kit.cleanups.held == []


def test_children_registered_before_their_parent_are_reached() -> None:
    """B63: links are read when the cancel comes."""
    kit = Kit()
    kit.add("grandchild", parent="child")
    kit.add("child", parent="parent")
    kit.add("parent")
    assert set(kit.registry.cancel("s", "parent")) == {("s", "parent"), ("s", "child"), ("s", "grandchild")}


def test_what_hangs_below_a_finished_item_is_reached() -> None:
    """B63, as decided: children of a finished item move to its parent."""
    kit = Kit()
    kit.add("a")
    kit.add("b", parent="a")
    kit.add("c", parent="b")
    kit.add("d", parent="c")
    kit.registry.finish("s", "b")
    kit.registry.take("s", "c")
    assert set(kit.registry.cancel("s", "a")) == {("s", "a"), ("s", "d")}


def test_child_of_a_finished_root_hangs_below_nothing() -> None:
    """B63, as decided: without a grandparent it goes on alone."""
    kit = Kit()
    kit.add("root")
    kit.add("child", parent="root")
    kit.registry.finish("s", "root")
    kit.add("root")
    assert kit.registry.cancel("s", "root") == [("s", "root")]
    assert kit.registry.cancel("s", "child") == [("s", "child")]


def test_loop_of_parents_ends() -> None:
    """B63: items that name one another as parent are flagged once each, and can finish in any order."""
    kit = Kit()
    kit.add("a", parent="c")
    kit.add("b", parent="a")
    kit.add("c", parent="b")
    kit.add("self", parent="self")
    assert kit.registry.cancel("s", "self") == [("s", "self")]
    assert set(kit.registry.cancel("s", "b")) == {("s", "a"), ("s", "b"), ("s", "c")}
    for work_id in ("a", "b", "c", "self"):
        assert kit.registry.finish("s", work_id)
    assert kit.registry.active_count() == 0


def test_loop_that_was_cut_by_an_end_holds_nothing() -> None:
    """B63, as decided: children handed up within a loop don't hang on an id that is gone."""
    kit = Kit()
    kit.add("a", parent="b")
    kit.add("b", parent="a")
    kit.add("c", parent="a")
    kit.add("self", parent="self")
    kit.add("d", parent="self")
    for work_id in ("b", "a", "self"):
        kit.registry.finish("s", work_id)
    for work_id in ("a", "self"):
        kit.add(work_id)
        assert kit.registry.cancel("s", work_id) == [("s", work_id)]
    assert kit.cancelled() == {"a", "self"}


async def test_item_born_cancelled_flags_what_already_hangs_below_it() -> None:
    """B64, as decided: an item that comes late, under a cancelled parent, takes its children along."""
    kit = Kit()
    kit.add("top")
    kit.registry.cancel("s", "top")
    kit.add("grandchild", parent="child")
    kit.add("child", parent="middle")
    assert kit.cancelled() == {"top"}
    kit.cleanups.held.clear()
    kit.add("middle", parent="top")
    assert kit.cancelled() == {"top", "middle", "child", "grandchild"}
    await kit.cleanups.run_all()
    assert sorted(kit.fired.names) == ["child", "grandchild", "middle"]


async def test_blocked_or_failing_handle_holds_up_no_other() -> None:
    """B65: each is fired in a task of its own."""
    async with CleanupScope(grace_s=0.05) as scope:
        registry = WorkRegistry(clock=SystemClock(), cleanups=scope)
        reached = asyncio.Event()

        async def block() -> None:
            await asyncio.Event().wait()

        async def fail() -> None:
            raise OSError("no")

        async def reach() -> None:
            reached.set()

        registry.register("s", WorkSpec(work_id="a", kind=WorkKind.RUN, label="", handle=ProbeHandle(block)))
        for name, handle in (("b", fail), ("c", block), ("d", reach)):
            spec = WorkSpec(
                work_id=name, kind=WorkKind.TOOL, label="", handle=ProbeHandle(handle), parent_work_id="a"
            )
            registry.register("s", spec)
        registry.cancel("s", "a")
        await asyncio.wait_for(reached.wait(), 5)


async def test_handle_put_in_place_on_a_cancelled_item_is_fired() -> None:
    """B66, as decided: now, once; a service call's token at once. No later cancel fires it."""
    kit = Kit()
    kit.add("a")
    kit.registry.cancel("s", "a")
    await kit.cleanups.run_all()
    kit.fired.names.clear()
    assert kit.registry.replace_cancellation("s", "a", kit.fired.handle("new"))
    await kit.cleanups.run_all()
    assert kit.fired.names == ["new"]
    token = CancelToken()
    assert kit.registry.replace_cancellation("s", "a", ServiceCallHandle(token))
    assert token.tripped
    assert kit.registry.cancel("s", "a") == []
    assert kit.cleanups.held == []


def test_take_and_finish_go_by_id() -> None:
    """B67: they remove whatever is registered, fire nothing, and leave children registered."""
    kit = Kit()
    kit.add("a")
    token = kit.registry.observation_token("s", "a")
    assert token is not None
    owner, _ = token.unseal()
    assert owner is not None, "held, so that it isn't gone by itself"
    kit.add("a")
    kit.add("child", parent="a")
    assert kit.registry.take("s", "a") is not None
    assert kit.registry.active_ids_for_session("s") == ("child",)
    kit.add("a")
    assert kit.registry.take_observed(token) is None
    assert kit.registry.active_ids_for_session("s") == ("a", "child")
    assert kit.registry.finish("s", "a")
    assert kit.cleanups.held == []


def _every_call(kit: Kit, token: ObservationToken) -> dict[str, Callable[[], object]]:
    """Each public method of the registry -> a call of it."""
    link = SharedExecutionLink(
        session_id="s", parent_session_id="p", run_id="r", node_id="n", activation_id="x", attempt=1,
        workspace_snapshot="w",
    )  # fmt: skip
    registry, spec = (
        kit.registry,
        WorkSpec(work_id="b", kind=WorkKind.TOOL, label="", handle=kit.fired.handle()),
    )
    return {
        "register": lambda: registry.register("s", spec),
        "replace_cancellation": lambda: registry.replace_cancellation("s", "a", kit.fired.handle()),
        "cancel": lambda: registry.cancel("s", "a"),
        "cancel_everywhere": lambda: registry.cancel_everywhere("a"),
        "is_cancelled": lambda: registry.is_cancelled("s", "a"),
        "finish": lambda: registry.finish("s", "a"),
        "take": lambda: registry.take("s", "a"),
        "find_spec": lambda: registry.find_spec("s", "a"),
        "wait_closed": lambda: asyncio.run(registry.wait_closed("s", "a")),
        "wait_children_closed": lambda: asyncio.run(registry.wait_children_closed("s", "a")),
        "keep_account": lambda: registry.keep_account("s", "a"),
        "closed_items": lambda: registry.closed_items("s", "a"),
        "open_items": lambda: registry.open_items("s", "a"),
        "observation_token": lambda: registry.observation_token("s", "a"),
        "observe": lambda: registry.observe(token, ObservedStage.DISPATCH),
        "take_observed": lambda: registry.take_observed(token),
        "observation_page": lambda: registry.observation_page("s"),
        "snapshot": lambda: registry.snapshot("s"),
        "active_all": registry.active_all,
        "active_ids_for_session": lambda: registry.active_ids_for_session("s"),
        "active_count": registry.active_count,
        "activity_count": lambda: registry.activity_count("s", budget=1),
        "bind_shared_execution": lambda: registry.bind_shared_execution(
            "s", "a", SharedExecutionPermit(link)
        ),
        "proves_shared_execution": lambda: registry.proves_shared_execution("s", "a", link),
        "find_shared_execution": lambda: registry.find_shared_execution("s", "a"),
        "shared_executions": lambda: registry.shared_executions("s", "r"),
    }


def test_registry_belongs_to_one_thread() -> None:
    """Each call from another thread than the first is refused, whichever it is, and changes nothing."""
    kit = Kit()
    kit.add("a")
    token = kit.registry.observation_token("s", "a")
    assert token is not None
    calls, answered = _every_call(kit, token), list[str]()
    methods = [name for name, one in vars(WorkRegistry).items() if callable(one) and name[0] != "_"]
    assert list(calls) == methods

    def meddle() -> None:
        for name, call in calls.items():
            try:
                call()
            except MisuseError:
                continue
            answered.append(name)

    thread = threading.Thread(target=meddle)
    thread.start()
    thread.join(30)
    assert answered == []
    assert [(found.work_id, found.status) for found in kit.registry.snapshot("s")] == [("a", "running")]
    assert kit.registry.observe(token, ObservedStage.DISPATCH) is not None


async def test_cancel_outside_its_scope_is_misuse() -> None:
    """Handles are fired in tasks that somebody waits for; without an open scope there is nobody."""
    scope = CleanupScope()
    registry = WorkRegistry(clock=SystemClock(), cleanups=scope)
    registry.register(
        "s", WorkSpec(work_id="a", kind=WorkKind.TOOL, label="", handle=ScopeHandle(lambda: None))
    )
    with pytest.raises(MisuseError):
        registry.cancel("s", "a")
