"""Every limit of a run, each enforced for real: what it ends, what is kept, what was asked."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from remit.errors import InvalidRequest, PriceUnknown
from remit.requests import parse_request
from remit.testing import Reply, route_by_stage
from whole_kit import (
    MEND,
    NO_CHECKS,
    Ended,
    World,
    gone_within,
    judged,
    look_closely,
    nonce,
    planned,
    reviewed,
    shell,
    tool,
    use,
    worked,
)

LOOK = use("read_file", relative_path="calc/__init__.py")


@pytest.fixture(autouse=True)
def _without_checks(world: World) -> None:
    world.workspace = dict(NO_CHECKS)


def hit(ended: Ended) -> tuple[str, Any]:
    """The limit that ended a run, and its cap."""
    assert ended.view.terminal is not None
    assert ended.view.terminal.limit is not None
    return ended.view.terminal.limit.kind, ended.view.terminal.limit.cap


async def ends(world: World, replies: list[Reply], code: str, **limits: Any) -> Ended:
    """Do a run that ends by its budget, without a trace in the tree."""
    world.fake.script(*replies)
    before = look_closely(world.root)
    ended = await world.run(limits=limits)
    assert ended.ending == ("failed", "budget", code), ended.results
    ended.check_story()
    assert look_closely(world.root) == before
    return ended


# ---- time

WAITS = {
    "in a model call": lambda word: [Reply(text=planned().text, delay_ms=60_000)],
    "in a tool": lambda word: route_by_stage(
        plan=[planned()], work=[shell(f"trap '' TERM; exec -a {word} sleep 600"), worked()]
    ),
    "in the review": lambda word: reviewed(MEND, review=[replace(judged(), delay_ms=60_000)]),
}


@pytest.mark.parametrize("name", WAITS)
async def test_the_wall_clock(world: World, name: str) -> None:
    """R55, R53: the request's time ends whatever goes on, a tool that ignores TERM too, and is named."""
    word = nonce()
    began = time.monotonic()
    world.fake.script(*WAITS[name](word))
    before = look_closely(world.root)
    ended = await world.run(limits={"wall_clock_ms": 1_500, "tool_timeout_ms": 60_000})
    assert time.monotonic() - began < 15
    assert ended.ending == ("failed", "budget", "wall_clock")
    assert hit(ended) == ("wall_clock_ms", 1_500)
    assert gone_within(word, 0)
    assert look_closely(world.root) == before
    ended.check_story()
    view = ended.view
    assert view.ended_at is not None
    assert view.started_at is not None
    assert (view.ended_at - view.started_at).total_seconds() < 1.5 + 5


async def test_a_search_that_never_ends(world: World) -> None:
    """R55: a pattern that would be tried for ever is given up in time, and the run goes on."""
    fill = shell("head -c 40000 /dev/zero | tr '\\0' a > long.txt")
    world.fake.script(*reviewed(fill, use("search", pattern="(a+)+$b"), shell("rm long.txt"), MEND))
    began = time.monotonic()
    ended = await world.run(limits={"tool_timeout_ms": 1_500})
    assert time.monotonic() - began < 15
    assert ended.ending == ("completed", None, None)
    assert "took too long" in ended.results[1]["content"]


async def test_the_shortest_clock_still_asks_once(world: World) -> None:
    """S62, S63, S76: 10 ms for run and stage: one provider call, and it is the budget that ends it."""
    async with world.host() as host:
        for _ in range(5):
            asked = len(world.fake.requests)
            world.fake.script(Reply(text=planned().text, delay_ms=2_000))
            limits = {"wall_clock_ms": 10, "stage_timeout_ms": 10}
            ended = await Ended.of(host, await host.start(world.request(limits=limits)))
            assert ended.ending == ("failed", "budget", "wall_clock")
            assert len(ended.attempts) == 1
            assert len(world.fake.requests) - asked <= 1
            assert ended.types.count("run.failed") == 1
            assert host.node.service.opened_count == 0


@pytest.mark.parametrize("stage", ["plan", "work", "review"])
async def test_a_stages_own_time(world: World, stage: str) -> None:
    """S64, R55: a stage's own time ends the run as `timeout` under the stage's name."""
    replies = {
        "plan": route_by_stage(plan=[replace(planned(), delay_ms=60_000)]),
        "work": route_by_stage(plan=[planned()], work=[replace(worked(), delay_ms=60_000)]),
        "review": reviewed(MEND, review=[replace(judged(), delay_ms=60_000)]),
    }
    world.fake.script(*replies[stage])
    before = look_closely(world.root)
    ended = await world.run(limits={"stage_timeout_ms": 1_500})
    assert ended.ending == ("failed", "timeout", stage)
    assert hit(ended) == ("stage_timeout_ms", 1_500)
    assert ended.types.count("stage.failed") == 1
    assert look_closely(world.root) == before
    ended.check_story()


async def test_time_in_the_queue(world: World) -> None:
    """A run that waits for its place longer than it may fails as `queue`, at no cost, never started."""
    world.settings = {"host": {"max_running": 1}}
    world.fake.script(*route_by_stage(plan=[planned()], work=[shell("sleep 2"), worked()], review=[judged()]))
    async with world.host() as host:
        first = await host.start(world.request())
        second = await host.start(world.request(limits={"max_queue_ms": 300}))
        ended = await Ended.of(host, second)
        assert (await first.view()).terminal is None
        await first.ended()
    assert ended.ending == ("failed", "budget", "queue")
    assert ended.view.started_at is None
    assert ended.view.cost_usd == 0
    assert ended.bill.coverage.attempts == 0


async def test_waits_are_not_working_time(world: World) -> None:
    """R54: a wait that a rate limit asks for counts as wall time, not as working time."""
    world.fake.script(Reply(status=429, headers={"retry-after": "3"}), *reviewed(MEND))
    ended = await world.run(limits={"working_limit_ms": 2_500})
    assert ended.ending == ("completed", None, None)


async def test_working_time(world: World) -> None:
    """R54, R55: work beyond the working limit ends the run, also in the middle of a tool."""
    word = nonce()
    replies = route_by_stage(plan=[planned()], work=[shell(f"exec -a {word} sleep 600"), worked()])
    ended = await ends(world, replies, "working_time", working_limit_ms=1_000)
    assert hit(ended) == ("working_limit_ms", 1_000)
    assert gone_within(word, 0)


# ---- rounds and calls


async def test_the_last_allowed_round_may_answer(world: World) -> None:
    """R13: an answer in the last allowed step is an answer, also where only one round is allowed."""
    world.fake.script(*reviewed(MEND))
    ended = await world.run(limits={"max_tool_rounds": 1})
    assert ended.ending == ("completed", None, None)
    last = [request for request in world.fake.requests if request.stage == "work"][-1]
    assert last.tool_names == ("submit_work",), "tools are withheld from the last request"


async def test_rounds_without_an_answer(world: World) -> None:
    """R13, S54: a stage that never answers makes exactly the allowed rounds, and its work stays readable."""
    replies = route_by_stage(plan=[planned()], work=[MEND, replace(LOOK, repeat=True)])
    ended = await ends(world, replies, "tool_rounds", max_tool_rounds=3)
    assert hit(ended) == ("max_tool_rounds", 3)
    assert len([request for request in world.fake.requests if request.stage == "work"]) == 4
    *carried_out, withheld = ended.results
    assert {result["status"] for result in carried_out} == {"success"}
    assert withheld["content"].startswith("Not carried out")
    assert ended.view.patch is not None
    assert ended.view.patch.files == 1
    assert not ended.view.patch.reviewed


async def test_calls_of_one_round(world: World) -> None:
    """Of more calls than a round may have the first are carried out, the others told that they weren't."""
    many = Reply(tool_calls=tuple(tool("run_shell", command=f"echo n{number}") for number in range(5)))
    world.fake.script(*reviewed(many, MEND))
    ended = await world.run(limits={"max_tool_calls_per_round": 3})
    assert ended.ending == ("completed", None, None)
    statuses = [result["status"] for result in ended.results[:5]]
    assert statuses == ["success"] * 3 + ["denied"] * 2


@pytest.mark.parametrize("corrections", [0, 1, 3])
async def test_corrections(world: World, corrections: int) -> None:
    """A stage is told so often what was wrong, then it has given no valid answer."""
    world.fake.script(Reply(text="no object", repeat=True))
    ended = await world.run(limits={"max_corrections": corrections})
    assert ended.ending == ("failed", "invalid_output", "plan")
    assert len(world.fake.requests) == corrections + 1


@pytest.mark.parametrize("revisions", [0, 2])
async def test_revisions(world: World, revisions: int) -> None:
    """A review may send work back so often; each goes to a work stage of its own, with the remarks."""
    back = judged("revise", summary="It lacks a proof.")
    world.fake.script(
        *route_by_stage(
            plan=[planned()],
            work=[MEND, worked(), *[LOOK, worked()] * revisions],
            review=[replace(back, repeat=True)],
        )
    )
    before = look_closely(world.root)
    ended = await world.run(limits={"max_revisions": revisions})
    assert ended.ending == ("failed", "rejected", "revisions_exhausted")
    started = [data["stage_id"] for data in ended.of_type("stage.started")]
    assert [name for name in started if name.startswith("work")] == [
        f"work-{number + 1}" for number in range(revisions + 1)
    ]
    again = [r for r in world.fake.requests if r.stage == "work" and "It lacks a proof." in r.text]
    assert bool(again) == bool(revisions)
    assert look_closely(world.root) == before


# ---- tokens and money


@pytest.mark.parametrize("kind", ["max_input_tokens", "max_output_tokens", "max_total_tokens"])
async def test_tokens(world: World, kind: str) -> None:
    """Tokens are reserved before a call is sent: what doesn't fit isn't sent; the run says which limit."""
    usage = {"prompt_tokens": 3_000, "completion_tokens": 500, "total_tokens": 3_500}
    world.fake.script(
        *route_by_stage(
            plan=[replace(planned(), usage=usage)], work=[replace(LOOK, usage=usage, repeat=True)]
        )
    )
    cap = {"max_input_tokens": 10_000, "max_output_tokens": 2_700, "max_total_tokens": 12_000}[kind]
    before = look_closely(world.root)
    ended = await world.run(limits={kind: cap})
    assert ended.ending == ("failed", "budget", "tokens")
    assert hit(ended) == (kind, cap)
    field = kind.removeprefix("max_")
    assert getattr(ended.bill, field) <= cap
    assert 2 <= len(world.fake.requests) <= 4
    assert look_closely(world.root) == before
    ended.check_story()


async def test_money(world: World) -> None:
    """R24: money is reserved before a call is sent; the run never spends more than its cap."""
    world.price = {"input_usd_per_mtok": "100.0", "output_usd_per_mtok": "100.0"}
    usage = {"prompt_tokens": 3_000, "completion_tokens": 100, "total_tokens": 3_100}
    world.fake.script(
        *route_by_stage(
            plan=[replace(planned(), usage=usage)], work=[replace(LOOK, usage=usage, repeat=True)]
        )
    )
    ended = await world.run(limits={"max_cost_usd": "1.0"})
    assert ended.ending == ("failed", "budget", "cost")
    assert hit(ended)[0] == "max_cost_usd"
    assert ended.view.cost_usd is not None
    assert 0.3 < ended.view.cost_usd <= 1.0
    ended.check_story()


async def test_a_model_without_a_price(world: World) -> None:
    """R23: under a money cap a model without a price is refused up front; a token cap will do instead."""
    world.price = {}
    async with world.host() as host:
        with pytest.raises(PriceUnknown):
            await host.start(world.request())
        assert await host.store.list_runs() == ((), None)
    assert not world.fake.requests


# ---- single calls


async def test_the_time_of_a_call(world: World) -> None:
    """R51: a call that asks for no time gets the request's; it may ask for what the workspace allows."""
    world.workspace = {**NO_CHECKS, "max_command_timeout_ms": 700}
    batch = Reply(
        tool_calls=(
            tool("run_shell", command="sleep 600"),
            tool("run_shell", command="sleep 600", timeout_ms=700),
            tool("run_shell", command="sleep 600", timeout_ms=701),
        )
    )
    world.fake.script(*reviewed(batch, MEND))
    ended = await world.run(limits={"tool_timeout_ms": 400})
    assert ended.ending == ("completed", None, None)
    first, second, third = ended.results[:3]
    assert "timed out after 400 ms" in first["content"]
    assert "timed out after 700 ms" in second["content"]
    assert third["status"] == "invalid_arguments"


async def test_what_the_model_is_shown(world: World) -> None:
    """Of a long result the model is shown head and tail within its bound; the rest can be read."""
    world.fake.script(*reviewed(shell("seq 10000"), use("read_file", relative_path="big.txt"), MEND))
    (world.root / "big.txt").write_text("line\n" * 10_000)
    ended = await world.run(limits={"max_tool_output_bytes": 2_000})
    assert ended.ending == ("completed", None, None)
    assert len(ended.results[0]["content"].encode()) <= 2_000
    assert ended.results[0]["content"].startswith("1\n2\n")
    assert "9999\n10000\n" in ended.results[0]["content"]
    assert len(ended.results[1]["content"].encode()) <= 2_000


# ---- warnings, and what isn't a limit


async def test_a_limit_that_is_near_is_said(world: World) -> None:
    """At 80 % of a limit the model is told, and a warning goes out, once for each limit."""
    world.fake.script(*reviewed(LOOK, LOOK, LOOK, LOOK, MEND))
    ended = await world.run(limits={"max_tool_rounds": 5})
    assert ended.ending == ("completed", None, None)
    (warning,) = [data for data in ended.of_type("limit.warning") if data["stage_id"] == "work-1"]
    assert (warning["kind"], warning["value"], warning["cap"]) == ("max_tool_rounds", 4, 5)
    told = [request for request in world.fake.requests if request.stage == "work"][4]
    assert "max_tool_rounds" in told.text


@pytest.mark.parametrize(
    "limits",
    [
        {"wall_clock_ms": 0},
        {"wall_clock_ms": -1},
        {"wall_clock_ms": 1.5},
        {"wall_clock_ms": True},
        {"wall_clock_ms": "10"},
        {"max_cost_usd": float("nan")},
        {"max_cost_usd": float("inf")},
        {"max_cost_usd": 0},
        {"max_cost_usd": -1},
        {"max_tool_rounds": 0},
        {"no_such_limit": 1},
    ],
    ids=str,
)
def test_what_is_not_a_limit_is_refused(limits: dict[str, Any]) -> None:
    """R55: a limit that is out of range or unknown is refused with its name, never ignored."""
    with pytest.raises(InvalidRequest) as refused:
        parse_request({"prompt": "x", "limits": limits})
    assert next(iter(limits)) in f"{refused.value.fields} {refused.value.message}"


async def test_limits_that_were_changed_later(world: World) -> None:
    """S4: the limits at the start of a run are the ones that hold, and stand in its view."""
    world.fake.script(*reviewed(MEND))
    async with world.host() as host:
        run = await host.start(world.request(limits={"max_tool_rounds": 7}))
        view = await run.view()
        assert view.limits.max_tool_rounds == 7
        await asyncio.sleep(0)
        ended = await Ended.of(host, run)
    assert ended.view.limits == view.limits
