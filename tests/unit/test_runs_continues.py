"""A run that goes on from the checkout of an earlier one, on fakes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from remit.contract import OpenRequest, PrepareRequest, RunStatus, RunView
from remit.errors import NotFound
from remit.runs import StoreSessions
from remit.testing._fake_node import FakeNode
from remit.testing._fakes_stages import FakePool, PoolReply
from remit.testing._run_world import PASS, PLAN, WORK, RunWorld, good_replies, run_world

WRITE_MORE = ("c1", "write_file", '{"relative_path": "b.txt", "content": "more\\n"}')


def is_whole(tree: Mapping[str, str]) -> int:
    """A check that wants both files; half the work alone breaks it."""
    return 0 if ("b.txt" in tree) == (tree["a.txt"] == "new\n") else 1


async def go_on(world: RunWorld, earlier: str, **request: Any) -> RunView:
    facts = await StoreSessions(world.store).look(session_id=None, continues=earlier, tenant="local")
    return await world.supervise(await world.admit(facts=facts, continues=earlier, **request))


def finishing() -> FakePool:
    return FakePool(
        PoolReply(text=PLAN),
        PoolReply(calls=[WRITE_MORE], finish="tool_calls"),
        PoolReply(text=WORK),
        PoolReply(text=PASS),
    )


async def test_work_that_was_stopped_is_finished_and_delivered_whole() -> None:
    """A broken check ends a run; the next one has its work, its base and its session, and delivers both."""
    node = FakeNode({"a.txt": "old\n"}, checks={"whole": is_whole})
    async with run_world(*good_replies(), node=node) as world:
        first = await world.drive(limits={"max_revisions": 0})
        assert first.terminal is not None
        assert first.terminal.code == "checks_failed"
        assert node.tree == {"a.txt": "old\n"}
        pool = world.pool = finishing()
        second = await go_on(world, first.id, prompt="Finish it.")
        assert second.status is RunStatus.COMPLETED
        assert (second.continues, second.session_id) == (first.id, first.session_id)
        assert first.workspace is not None
        assert second.workspace is not None
        assert second.workspace.base == first.workspace.base
        assert second.patch is not None
        assert second.patch.files == 2
        assert node.tree == {"a.txt": "new\n", "b.txt": "more\n"}
        told = str(pool.requests[0].messages)
        assert "Make a.txt new." in told
        assert f"starts with all that run {first.id} left" in told
        asked = [request for request in node.requests if request.run_id == second.id]
        starts = [one.continues for one in asked if isinstance(one, PrepareRequest | OpenRequest)]
        assert starts == [first.id, first.id]
        assert node.opened == node.cleaned == 2


async def test_nothing_kept_ends_the_run_before_it_costs() -> None:
    """What wasn't kept can't be gone on with: no checkout, no model, and the record says why."""
    async with run_world(*good_replies()) as world:
        first = await world.drive()
        pool = world.pool = finishing()
        second = await go_on(world, first.id)
        assert second.terminal is not None
        assert (second.terminal.class_, second.terminal.code) == ("workspace", "refused")
        assert pool.requests == []
        assert world.node.opened == 1
        assert second.usage is not None
        assert second.usage.total_tokens == 0


async def test_only_runs_of_the_same_tenant_are_continued() -> None:
    """R38: another tenant's run is answered like one that isn't there."""
    async with run_world(*good_replies()) as world:
        first = await world.drive(preserve="always")
        facts = await StoreSessions(world.store).look(session_id=None, continues=first.id, tenant="other")
        with pytest.raises(NotFound):
            await world.admit(facts=facts, continues=first.id)


async def test_nodes_know_the_continued_run_by_the_name_it_had_there() -> None:
    """R38: two tenants' runs of one id are two runs on a node, and are continued as two."""
    async with run_world(*good_replies()) as world:
        first = await world.drive(preserve="always")
        await go_on(world, first.id, id="later")
        stored = await world.store.find_run(first.id), await world.store.find_run("later")
        for tenant in ("local", "acme"):
            earlier, later = (replace(run, tenant=tenant) for run in stored if run is not None)
            assert later.outside_continues == earlier.outside_id
            assert earlier.outside_continues is None
