"""A run from request to delivered patch, over real HTTP to a provider, and the story of its log."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from remit.errors import InvalidRequest, RunFailed
from remit.host import Host
from remit.runs import RunTimes
from remit.testing import Reply, route_by_stage
from whole_kit import (
    MEND,
    MODEL,
    NO_CHECKS,
    Ended,
    World,
    differing,
    judged,
    look_closely,
    planned,
    reviewed,
    shell,
    tool,
    use,
    worked,
)

CHECK: dict[str, Any] = {
    "commands": [{"id": "tests", "executable": "python3", "args": ["-m", "unittest", "-q"]}],
    "checks": ["tests"],
}
TOLD: Mapping[str, tuple[str, ...]] = {
    "run.started": (),
    "stage.started": ("stage_id", "status"),
    "attempt.started": ("stage_id", "round", "ordinal"),
    "attempt.completed": ("stage_id", "round", "status"),
    "stage.completed": ("stage_id",),
    "tool.started": ("stage_id", "name", "label"),
    "tool.completed": ("stage_id", "name", "status", "exit_code"),
    "work.registered": ("kind", "label"),
    "work.finished": ("kind", "label", "how"),
    "checkout.opened": ("isolation", "sandbox"),
    "run.settling": ("kind", "code", "output"),
    "delivery.completed": ("paths",),
}
"""What of an event's data is told in the story."""

STORY = """\
run.queued
work.registered node_call prepare
work.finished node_call prepare closed
run.started
stage.started plan planning
attempt.started plan 1 1
attempt.completed plan 1 completed
stage.completed plan
plan.ready
work.registered node_call open
checkout.opened overlay bubblewrap
work.finished node_call open closed
work.registered node_call artifact plan
work.finished node_call artifact plan closed
stage.started work-1 working
attempt.started work-1 1 1
attempt.completed work-1 1 completed
tool.started work-1 edit_file calc/__init__.py
tool.completed work-1 edit_file success None
attempt.started work-1 2 1
attempt.completed work-1 2 completed
tool.started work-1 run_shell python3 -m unittest -q
tool.completed work-1 run_shell success 0
attempt.started work-1 3 1
attempt.completed work-1 3 completed
stage.completed work-1
work.registered node_call snapshot
work.finished node_call snapshot closed
stage.started review-1 reviewing
attempt.started review-1 1 1
attempt.completed review-1 1 completed
stage.completed review-1
work.registered node_call snapshot
work.finished node_call snapshot closed
review.decided
work.registered node_call snapshot
work.finished node_call snapshot closed
run.finalizing
work.registered node_call checks
work.finished node_call checks closed
check.completed
delivery.intent
work.registered node_call deliver
work.finished node_call deliver closed
delivery.completed ['calc/__init__.py']
run.settling completed None It is mended.
work.registered node_call cleanup
work.finished node_call cleanup closed
usage.updated
run.completed"""


def story(ended: Ended) -> str:
    """The log as text."""
    lines = [
        " ".join([event.type, *(str(event.data[key]) for key in TOLD.get(event.type, ()))])
        for event in ended.events
    ]
    return "\n".join(lines)


async def test_a_reviewed_run_mends_the_repository(world: World) -> None:
    """S12, S13, S18-S20, S25: the reviewer's output is the result, and the reviewed bytes alone change."""
    world.workspace = CHECK
    world.fake.script(*reviewed(MEND, shell("python3 -m unittest -q")))
    before = look_closely(world.root)
    ended = await world.run()
    assert ended.ending == ("completed", None, None)
    assert ended.view.output == "It is mended."
    assert (world.root / "calc/__init__.py").read_text() == "def add(a, b):\n    return a + b\n"
    assert differing(before, look_closely(world.root)) == {"calc/__init__.py"}
    assert story(ended) == STORY
    ended.check_story()
    assert not world.fake.unused
    assert [request.stage for request in world.fake.requests] == ["plan", "work", "work", "work", "review"]


async def test_the_record_hangs_together(world: World) -> None:
    """R16: each event's parent is known before it; the last event is the run as everybody reads it."""
    world.workspace = CHECK
    world.fake.script(*reviewed(MEND))
    async with world.host() as host:
        run = await host.start(world.request())
        ended = await Ended.of(host, run)
        assert await run.view() == ended.view
        assert ended.events[-1].data == ended.view.to_json()
    known = {ended.view.id}
    for event in ended.events:
        assert event.parent_work_id is None or event.parent_work_id in known, event
        known |= {event.work_id} if event.work_id else set()
    (check,) = ended.view.checks
    assert (check.id, check.base_exit, check.exit, check.gate) == ("tests", 1, 0, "pass")
    patch = ended.view.patch
    assert patch is not None
    assert (patch.files, patch.insertions, patch.deletions, patch.reviewed) == (1, 1, 1, True)
    review = ended.view.review
    assert review is not None
    assert (review.decision, review.repairs) == ("pass", ())
    assert ended.view.cost_usd == ended.view.estimated_max_cost_usd
    assert ended.bill.coverage.attempts == ended.bill.coverage.priced == 4
    assert set(ended.bill.by_model) == {MODEL}
    assert set(ended.bill.by_stage) == {"plan", "work", "review"}


async def test_what_each_stage_is_sent(world: World) -> None:
    """S31-S37, S79, S80: plan to work, completion and patch to review; tools by what a stage may do."""
    world.workspace = CHECK
    world.fake.script(
        *route_by_stage(
            plan=[planned("Turn the sign PLANMARK.")],
            work=[MEND, worked("Turned COMPLETIONMARK.")],
            review=[use("read_file", relative_path="calc/__init__.py"), judged()],
        )
    )
    ended = await world.run(instructions="Be INSTRUCTIONMARK.")
    plan, first, second, review, last = world.fake.requests
    assert "write_file" not in plan.tool_names
    assert "run_shell" not in plan.tool_names
    assert {"read_file", "write_file", "run_shell"} <= set(first.tool_names)
    assert {"read_file", "write_file", "run_shell"} <= set(review.tool_names)
    assert "PLANMARK" not in plan.text
    assert "PLANMARK" in first.text
    assert "PLANMARK" in second.text
    assert "edited calc/__init__.py" in second.text
    assert "COMPLETIONMARK" in review.text
    assert "+    return a + b" in review.text
    assert "COMPLETIONMARK" in last.text
    for request in (plan, first, review):
        assert "Make the failing test pass" in request.text
        assert "INSTRUCTIONMARK" in request.text
    for earlier, later in ((first, second), (review, last)):
        kept = len(earlier.json["messages"])
        assert later.json["messages"][:kept] == earlier.json["messages"], "prompts only grow"
        assert later.json["tools"] == earlier.json["tools"]
    assert ended.view.output == "It is mended."


async def test_each_stage_asks_its_own_model(world: World) -> None:
    """S5: model and options of a stage are on its own requests, in each of its rounds, and on no other's."""
    world.workspace = dict(NO_CHECKS)
    world.fake.script(*reviewed(MEND))
    prices = {
        name: {"input_usd_per_mtok": "1", "output_usd_per_mtok": "1"}
        for name in ("fake:gpt-5.2", "fake:gpt-5.1")
    }
    world.settings = {"prices": {**prices, MODEL: world.price}}
    stages = {
        "plan": {"model": "fake:gpt-5.2", "options": {"reasoning_effort": "high"}},
        "work": {"options": {"temperature": 0.25}},
        "review": {"model": "fake:gpt-5.1", "options": {"reasoning_effort": "low"}},
    }
    ended = await world.run(stages=stages)
    assert ended.ending == ("completed", None, None)
    sent = [
        (one.stage, one.json["model"], one.json.get("reasoning_effort"), one.json.get("temperature"))
        for one in world.fake.requests
    ]
    work = ("work", MODEL.partition(":")[2], None, 0.25)
    assert sent == [("plan", "gpt-5.2", "high", None), work, work, ("review", "gpt-5.1", "low", None)]
    assert set(ended.bill.by_model) == {"fake:gpt-5.2", MODEL, "fake:gpt-5.1"}


async def test_the_review_repairs(world: World) -> None:
    """S23, S24: the review may look and repair; what it repaired is named, and is what is delivered."""
    world.workspace = CHECK
    half = use("edit_file", relative_path="calc/__init__.py", old="a - b", new="b + a")
    repair = use("edit_file", relative_path="calc/__init__.py", old="b + a", new="a + b")
    world.fake.script(*reviewed(half, review=[repair, judged()]))
    ended = await world.run()
    assert ended.ending == ("completed", None, None)
    assert ended.view.review is not None
    assert ended.view.review.repairs == ("calc/__init__.py",)
    assert "a + b" in (world.root / "calc/__init__.py").read_text()


async def test_sent_back_and_then_passed(world: World) -> None:
    """A revise goes back to work on the same checkout, with the remarks; the second review passes it."""
    world.workspace = CHECK
    again = use("write_file", relative_path="NOTES.md", content="why\n")
    world.fake.script(
        *route_by_stage(
            plan=[planned()],
            work=[MEND, worked(), again, worked("Noted.")],
            review=[judged("revise", summary="Say why REMARK."), judged()],
        )
    )
    before = look_closely(world.root)
    ended = await world.run()
    assert ended.ending == ("completed", None, None)
    assert [data["stage_id"] for data in ended.of_type("stage.completed")] == [
        "plan",
        "work-1",
        "review-1",
        "work-2",
        "review-2",
    ]
    assert "REMARK" in world.fake.requests[4].text
    assert differing(before, look_closely(world.root)) == {"calc/__init__.py", "NOTES.md"}


async def test_rejected(world: World) -> None:
    """S27: a reject delivers nothing, ends as rejected, and keeps the work readable."""
    world.workspace = CHECK
    world.fake.script(*reviewed(MEND, review=[judged("reject", summary="No.")]))
    before = look_closely(world.root)
    async with world.host() as host:
        run = await host.start(world.request())
        ended = await Ended.of(host, run)
        kept = await host.store.read_artifact(run.id, "patch")
        with pytest.raises(RunFailed):
            await run.wait()
    assert ended.ending == ("failed", "rejected", "rejected")
    assert ended.view.output is None
    assert look_closely(world.root) == before
    assert kept is not None
    assert "+    return a + b" in kept.text


async def test_a_check_that_is_worse(world: World) -> None:
    """Nothing lands untested: a broken check goes back to work once, then ends the run."""
    (world.root / "calc/__init__.py").write_text("def add(a, b):\n    return a + b\n")
    world.workspace = CHECK
    spoil = use("edit_file", relative_path="calc/__init__.py", old="a + b", new="a * b")
    look = use("read_file", relative_path="calc/__init__.py")
    world.fake.script(
        *route_by_stage(plan=[planned()], work=[spoil, worked(), look, worked()], review=[judged(), judged()])
    )
    before = look_closely(world.root)
    ended = await world.run()
    assert ended.ending == ("failed", "rejected", "checks_failed")
    assert [data["check"]["gate"] for data in ended.of_type("check.completed")] == ["worse", "worse"]
    assert "AssertionError" in world.fake.requests[4].text, "the work stage is told how it failed"
    assert look_closely(world.root) == before
    assert ended.types.count("run.finalizing") == 2


async def test_work_needs_evidence(world: World) -> None:
    """S26: work that has used no tool is told so, and fails when it never does."""
    world.workspace = dict(NO_CHECKS)
    world.fake.script(*route_by_stage(plan=[planned()], work=[worked()], repeat=True))
    ended = await world.run(limits={"max_corrections": 1})
    assert ended.ending == ("failed", "invalid_output", "work")


# ---- delivery


async def test_a_patch_is_kept_and_not_applied(world: World) -> None:
    """Mode `patch`: the tree stays as it is, and the reviewed patch can be read."""
    world.workspace = dict(NO_CHECKS)
    world.fake.script(*reviewed(MEND))
    before = look_closely(world.root)
    async with world.host(delivery="patch") as host:
        run = await host.start(world.request())
        view = await run.wait()
        patch = await host.store.read_artifact(run.id, "patch")
    assert view.delivery is not None
    assert (view.delivery.mode, view.delivery.status) == ("patch", "delivered")
    assert look_closely(world.root) == before
    assert patch is not None
    assert patch.text.count("\n+") >= 1


async def test_nothing_to_deliver(world: World) -> None:
    """An answer without a change is a whole run: delivery is skipped, the tree is untouched."""
    world.workspace = dict(NO_CHECKS)
    world.fake.script(*reviewed(use("read_file", relative_path="README.md")))
    before = look_closely(world.root)
    ended = await world.run()
    assert ended.ending == ("completed", None, None)
    assert ended.view.delivery is not None
    assert ended.view.delivery.status == "skipped"
    assert look_closely(world.root) == before


async def test_a_protected_path(world: World) -> None:
    """A change that may act outside the sandbox is refused unless it was allowed, and flagged in any case."""
    world.workspace = dict(NO_CHECKS)
    hook = use("write_file", relative_path=".github/workflows/ci.yml", content="on: push\n")
    world.fake.script(*reviewed(hook), *reviewed(hook))
    before = look_closely(world.root)
    async with world.host() as host:
        refused = await Ended.of(host, await host.start(world.request()))
        assert refused.ending == ("failed", "workspace", "delivery_refused")
        assert look_closely(world.root) == before
        allowed = await Ended.of(host, await host.start(world.request(allow_protected=True)))
    assert allowed.ending == ("completed", None, None)
    assert (world.root / ".github/workflows/ci.yml").read_text() == "on: push\n"
    for ended in (refused, allowed):
        assert ended.view.review is not None
        assert "protected:.github/workflows/ci.yml" in ended.view.review.flags


async def test_work_alone(world: World) -> None:
    """Profile `direct`: work alone, its patch kept; to apply what nobody reviewed has to be asked for."""
    world.workspace = CHECK
    replies = route_by_stage(work=[MEND, worked("Done directly.")])
    world.fake.script(*replies, *replies)
    before = look_closely(world.root)
    async with world.host() as host:
        kept = await Ended.of(host, await host.start(world.request(profile="direct")))
        assert kept.ending == ("completed", None, None)
        assert kept.view.output == "Done directly."
        assert kept.view.review is None
        assert kept.view.patch is not None
        assert not kept.view.patch.reviewed
        assert kept.view.delivery is not None
        assert kept.view.delivery.mode == "patch"
        assert look_closely(world.root) == before
        with pytest.raises(InvalidRequest):
            await host.start(world.request(profile="direct", delivery="apply"))
        applied = await Ended.of(
            host, await host.start(world.request(profile="direct", delivery="apply", unreviewed=True))
        )
    assert applied.ending == ("completed", None, None)
    assert differing(before, look_closely(world.root)) == {"calc/__init__.py"}


@pytest.mark.parametrize("answer", [True, False, None])
async def test_an_acknowledgement(world: World, answer: bool | None) -> None:
    """S77: delivery waits for the answer that was asked for; refused or never given, nothing is applied."""
    world.workspace = dict(NO_CHECKS)
    world.fake.script(*reviewed(MEND))
    before = look_closely(world.root)
    times = RunTimes(link_grace_ms=0, acknowledge_ms=700)
    async with Host(world.config()[0], door_delivery="apply", times=times) as host:
        run = await host.start(world.request(acknowledge="required"))
        assert not run.acknowledge()
        async for event in run.events():
            if event.type == "run.finalizing" and answer is not None:
                async with asyncio.timeout(10):
                    while not run.acknowledge(answer):
                        await asyncio.sleep(0.01)
                assert not run.acknowledge(), "a second answer changes nothing"
        ended = await Ended.of(host, run)
        assert not run.acknowledge()
    if answer:
        assert ended.ending == ("completed", None, None)
        assert differing(before, look_closely(world.root)) == {"calc/__init__.py"}
    else:
        assert ended.ending == ("failed", "workspace", "delivery_refused")
        assert ended.view.patch is not None
        assert look_closely(world.root) == before


# ---- viewers, and asking twice


async def test_viewers_come_and_go(world: World) -> None:
    """R15, R66, S11, S16, S17: a run's life is its own; who looks, late or in parts, reads the same log."""
    world.workspace = dict(NO_CHECKS)
    world.fake.script(*reviewed(MEND, Reply(tool_calls=(tool("run_shell", command="sleep 0.3"),))))
    async with world.host() as host:
        run = await host.start(world.request())
        seen = 0
        async for event in run.events():
            seen = event.seq or seen
            if seen >= 2:
                break
        rest = [event async for event in run.events(after=seen) if event.seq is not None]
        late = [event async for event in run.events() if event.seq is not None]
        assert (await run.ended()).status == "completed"
    assert [event.seq for event in late] == list(range(1, len(late) + 1))
    assert late[seen:] == rest
    assert late[-1].type == "run.completed"


async def test_asking_twice_is_one_run(world: World) -> None:
    """R63: a request under one key is one run, while it runs, after that, and after a restart."""
    world.workspace = dict(NO_CHECKS)
    world.fake.script(*reviewed(MEND))
    async with world.host() as host:
        first, second = [await host.start(world.request(), idempotency_key="k1") for _ in range(2)]
        assert first.id == second.id
        await first.ended()
        assert (await host.start(world.request(), idempotency_key="k1")).id == first.id
    async with world.host() as host:
        again = await host.start(world.request(), idempotency_key="k1")
        assert again.id == first.id
        assert (await again.ended()).status == "completed"
    assert len(world.fake.requests) == 4
