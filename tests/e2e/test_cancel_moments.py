"""A cancel at every kind of moment of a run: one terminal, a whole receipt, nothing left or changed."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from remit.host import Host, Run
from remit.testing import Reply, route_by_stage
from whole_kit import (
    MEND,
    NO_CHECKS,
    Ended,
    World,
    differing,
    judged,
    look_closely,
    nonce,
    planned,
    processes_with,
    reviewed,
    shell,
    tool,
    use,
    worked,
)

SLOW_MS = 60_000
Ready = Callable[[World, str, Run], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A run that stands still at one place until it is cancelled."""

    replies: Callable[[str], list[Reply]]
    """Given the nonce."""
    ready: Ready
    """Awaited: returns when the run is there."""
    workspace: Callable[[str], dict[str, Any]] = lambda _: NO_CHECKS
    fields: dict[str, Any]
    opened: bool
    """Whether a checkout is open at that moment."""


def checking(script: str) -> dict[str, Any]:
    """A workspace whose one check is a shell script."""
    command = {"id": "slow", "executable": "bash", "args": ["-c", script]}
    return {"commands": [command], "checks": ["slow"]}


async def until_process(world: World, word: str, run: Run) -> None:
    while not processes_with(word):
        await asyncio.sleep(0.01)


def until_request(count: int) -> Ready:
    async def wait(world: World, word: str, run: Run) -> None:
        while len(world.fake.requests) < count:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)

    return wait


def until_event(type_: str) -> Ready:
    async def wait(world: World, word: str, run: Run) -> None:
        async for event in run.events():
            if event.type == type_:
                return

    return wait


async def at_once(world: World, word: str, run: Run) -> None:
    return


def slow(reply: Reply) -> Reply:
    return replace(reply, delay_ms=SLOW_MS)


BATCH = Reply(
    tool_calls=(
        tool("read_file", relative_path="calc/__init__.py"),
        tool("list_files"),
        tool("run_shell", command="exec -a {nonce} sleep 600"),
        tool("run_shell", command="touch never"),
        tool("write_file", relative_path="never", content="x"),
    )
)


def batch(word: str) -> Reply:
    """Several calls of one round, the third of which takes long."""
    calls = [
        replace(call, arguments=call.argument_text.replace("{nonce}", word)) for call in BATCH.tool_calls
    ]
    return Reply(tool_calls=tuple(calls))


MOMENTS = {
    "right after admission": Moment(replies=lambda _: reviewed(MEND), ready=at_once, fields={}, opened=False),
    "in a check on the base": Moment(
        replies=lambda _: reviewed(MEND),
        ready=until_process,
        workspace=lambda word: checking(f"exec -a {word} sleep 600"),
        fields={},
        opened=False,
    ),
    "in the plan's model call": Moment(
        replies=lambda _: route_by_stage(plan=[slow(planned())]),
        ready=until_request(1),
        fields={},
        opened=False,
    ),
    "in a stream": Moment(
        replies=lambda _: route_by_stage(
            plan=[replace(planned("x" * 500), chunk_count=100, piece_delay_ms=200)]
        ),
        ready=until_request(1),
        fields={},
        opened=False,
    ),
    "in the wait after a refusal": Moment(
        replies=lambda _: [Reply(status=429, headers={"retry-after": "30"})],
        ready=until_request(1),
        fields={},
        opened=False,
    ),
    "in the wait after a failure": Moment(
        replies=lambda _: [Reply(status=500, repeat=True)], ready=until_request(2), fields={}, opened=False
    ),
    "in work's model call": Moment(
        replies=lambda _: route_by_stage(plan=[planned()], work=[MEND, slow(worked())]),
        ready=until_request(3),
        fields={},
        opened=True,
    ),
    "in one tool of several": Moment(
        replies=lambda word: route_by_stage(plan=[planned()], work=[MEND, batch(word)]),
        ready=until_process,
        fields={},
        opened=True,
    ),
    "in review's model call": Moment(
        replies=lambda _: reviewed(MEND, review=[slow(judged())]),
        ready=until_request(4),
        fields={},
        opened=True,
    ),
    "in a tool of the review": Moment(
        replies=lambda word: reviewed(MEND, review=[shell(f"exec -a {word} sleep 600"), judged()]),
        ready=until_process,
        fields={},
        opened=True,
    ),
    "in a check on the result": Moment(
        replies=lambda word: reviewed(use("write_file", relative_path="slow", content=word), MEND),
        ready=until_process,
        workspace=lambda _: checking("[ ! -e slow ] || exec -a $(cat slow) sleep 600"),
        fields={},
        opened=True,
    ),
    "in the wait for an acknowledgement": Moment(
        replies=lambda _: reviewed(MEND),
        ready=until_event("run.finalizing"),
        fields={"acknowledge": "required"},
        opened=True,
    ),
}


async def reached(run: Run, there: Coroutine[Any, Any, None]) -> None:
    """Wait until the run is there; it is a failure when it ends before."""

    async def ended() -> None:
        view = await run.ended()
        await asyncio.sleep(0.2)  # it may have been there and gone on
        pytest.fail(f"the run ended before: {view.terminal}")

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        watcher = group.create_task(ended())
        await there
        watcher.cancel()


@pytest.mark.parametrize("name", MOMENTS)
async def test_a_cancel_stops_everything(world: World, name: str) -> None:
    """R1, R3, R6, R11, S65, S67: between admission and intent a cancel ends the run, whole and alone."""
    moment, word = MOMENTS[name], nonce()
    world.workspace = moment.workspace(word)
    world.fake.script(*moment.replies(word))
    before = look_closely(world.root)
    async with world.host() as host:
        run = await host.start(world.request(**moment.fields))
        await reached(run, moment.ready(world, word, run))
        asked = len(world.fake.requests)
        began = time.monotonic()
        outcome = await run.cancel(reason="enough")
        took_s = time.monotonic() - began
        assert not processes_with(word)
        ended = await Ended.of(host, run)
        assert outcome.changed
        check_cancelled(host, ended)
        assert len(world.fake.requests) == asked, "nothing is asked after a cancel"
        assert host.node.service.opened_count == (1 if moment.opened else 0)
        again = await run.cancel()
        assert not again.changed
        assert again.run == ended.view
    assert took_s < 5
    assert all(request.wait(5) for request in world.fake.requests), "calls on the wire are hung up"
    assert look_closely(world.root) == before


def check_cancelled(host: Host, ended: Ended) -> None:
    """What holds for every run that was cancelled, and for its host after it."""
    assert ended.ending == ("cancelled", "cancelled", "caller")
    receipt = ended.view.cancel
    assert receipt is not None
    assert receipt.complete
    assert receipt.by == "caller"
    assert ended.types.count("run.cancel_requested") == 1
    assert ended.view.cancel_requested
    assert ended.view.output is None
    check_quiet(host, ended)


def check_quiet(host: Host, ended: Ended) -> None:
    """Nothing of the run goes on, and its record is whole."""
    ended.check_story()
    assert not ended.view.abandoned
    assert ended.view.usage is not None
    assert host.link.pending_count() == 0
    assert host.registry.activity_count(ended.view.session_id, budget=10).count == 0
    assert host.node.service.opened_count == host.node.service.cleaned_up_count
    assert all(row.ended is not None for row in ended.attempts)


async def test_a_cancel_after_the_intent_changes_nothing(world: World) -> None:
    """R5: from the delivery intent on the run ends by its own result, and a cancel says so."""
    world.workspace = dict(NO_CHECKS)
    world.fake.script(*reviewed(MEND))
    before = look_closely(world.root)
    async with world.host() as host:
        run = await host.start(world.request())
        await reached(run, until_event("delivery.intent")(world, "", run))
        outcome = await run.cancel()
        ended = await Ended.of(host, run)
        assert not outcome.changed
        assert outcome.run.status == "completed"
        assert outcome.receipt is None
        check_quiet(host, ended)
    assert ended.view.output == "It is mended."
    assert differing(before, look_closely(world.root)) == {"calc/__init__.py"}


async def test_a_cancelled_run_in_the_queue_never_starts(world: World) -> None:
    """R7: a run that is cancelled while it waits for its place ends at once, costs nothing, asks nothing."""
    world.workspace, world.settings = dict(NO_CHECKS), {"host": {"max_running": 1}}
    world.fake.script(
        *route_by_stage(plan=[planned()], work=[shell("sleep 1.5"), worked()], review=[judged()])
    )
    async with world.host() as host:
        first = await host.start(world.request())
        second = await host.start(world.request())
        outcome = await second.cancel()
        assert (await first.view()).terminal is None
        assert (await first.ended()).status == "completed"
        ended = await Ended.of(host, second)
    assert outcome.changed
    check = ended.view
    assert check.status == "cancelled"
    assert check.started_at is None
    assert check.cost_usd == 0
    assert check.usage is not None
    assert check.usage.coverage.attempts == 0
    assert len(world.fake.requests) == 4
    assert check.patch is None


async def test_closing_the_host_cancels_what_runs(world: World) -> None:
    """R11, R62: a host that closes stops its runs as `drain`, and returns once their ends are stored."""
    world.workspace, word = dict(NO_CHECKS), nonce()
    world.fake.script(*route_by_stage(plan=[planned()], work=[shell(f"exec -a {word} sleep 600")]))
    before = look_closely(world.root)
    async with world.host() as host:
        run = await host.start(world.request())
        await reached(run, until_process(world, word, run))
    assert not processes_with(word)
    async with world.host() as host:
        assert host.swept == ()
        view = await host.open_run(run.id).view()
    assert view.terminal is not None
    assert (view.terminal.kind, view.terminal.code) == ("cancelled", "drain")
    assert look_closely(world.root) == before


@asynccontextmanager
async def bare_host(world: World) -> AsyncGenerator[Host]:
    """A host whose first run has been, so that imports and preparation are behind it."""
    world.workspace = dict(NO_CHECKS)
    world.fake.script(*reviewed(shell("true")))
    async with world.host() as host:
        run = await host.start(world.request(delivery="patch"))
        assert (await run.ended()).status == "completed"
        yield host


@pytest.mark.slow
async def test_a_cancel_at_any_moment(world: World) -> None:
    """R1, R3, R5, R11: at 40 random moments a run is either cancelled without a trace or done whole."""
    chance = random.Random(20_261_130)
    mended = (world.root / "calc/__init__.py").read_bytes().replace(b"a - b", b"a + b")
    kinds: list[str] = []
    async with bare_host(world) as host:
        before = look_closely(world.root)
        source = (world.root / "calc/__init__.py").read_bytes()
        for number in range(40):
            word = nonce()
            world.fake.script(
                *reviewed(
                    shell(f"bash -c 'exec -a {word} sleep 0.1' & exec -a {word} sleep 0.05"),
                    MEND,
                    review=[shell(f"exec -a {word} sleep 0.02"), judged()],
                )
            )
            run = await host.start(world.request())
            await asyncio.sleep(chance.uniform(0, 0.7))
            outcome = await run.cancel()
            assert not processes_with(word), number
            ended = await Ended.of(host, run)
            check_quiet(host, ended)
            kinds.append(ended.ending[0] or "")
            world.fake._replies.clear()
            if ended.ending[0] == "completed":
                assert not outcome.changed
                assert (world.root / "calc/__init__.py").read_bytes() == mended
                assert differing(before, look_closely(world.root)) == {"calc/__init__.py"}
                (world.root / "calc/__init__.py").write_bytes(source)
                before = look_closely(world.root)
            else:
                check_cancelled(host, ended)
                assert look_closely(world.root) == before
    assert kinds.count("cancelled") >= 10
