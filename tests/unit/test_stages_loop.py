"""The rounds of a stage, to its answer or to its failure."""

from __future__ import annotations

import asyncio
import json

import pytest

from remit.contract import StageKind
from remit.errors import LimitReached, ProviderError
from remit.models import AssistantMessage, SystemMessage, ThinkingBlock, ToolResultsMessage, UserMessage
from remit.stages import StageFailure
from remit.testing._fakes_stages import FakePool, PoolReply, tool_response
from stage_kit import ANSWERS, SPECS, Bench, answer, calls, submit

KINDS: tuple[StageKind, ...] = ("plan", "work", "review")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_text_answer_ends_the_stage_in_one_request(kind: StageKind) -> None:
    """S18, S19, S22: one dispatch per round; plan and review need no tool."""
    async with Bench(kind, answer(kind), require_evidence=False) as bench:
        done = await bench.run()
        assert done.fields == ANSWERS[kind]
        assert (done.rounds, done.used_tools, len(bench.requests)) == (1, False, 1)
        bench.check_record()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_submitted_answer_ends_the_stage(kind: StageKind) -> None:
    """S20: the arguments of the submit tool are the answer, and its call is answered on record."""
    async with Bench(kind, submit(kind), require_evidence=False) as bench:
        done = await bench.run()
        assert done.fields == ANSWERS[kind]
        assert bench.tools.uses == []
        bench.check_record()
        assert bench.journal.transcript(bench.stage.stage_id)[-1].body["results"][0]["content"] == "Accepted."


async def test_output_comes_out_verbatim() -> None:
    """S20, S30: the reviewer's output as written; reasoning and its signature are no part of it."""
    output = "  Done.\n\n```py\nx = 1\n```\n\u2028 "
    reply = PoolReply(text=json.dumps(ANSWERS["review"] | {"output": output}), thinking="Hmm.")
    async with Bench("review", reply) as bench:
        assert (await bench.run()).fields["output"] == output


async def test_work_uses_a_tool_and_then_reports() -> None:
    """S19, S25, S33, S34, S44, S48, S79: two dispatches; plan and instruction in both, then the result."""
    replies = (calls(("call_a", "read_file", '{"path":"a.py"}')), answer("work"))
    tools = {"read_file": lambda use: tool_response(use, "CONTENT OF A")}
    async with Bench("work", *replies, tools=tools) as bench:
        done = await bench.run()
        assert (done.rounds, done.used_tools) == (2, True)
        assert [(use.stage_id, use.tool_call_id, use.arguments) for use in bench.tools.uses] == [
            ("work-1", "call_a", '{"path":"a.py"}')
        ]
        assert bench.last_results() == ["CONTENT OF A"]
        first, second = bench.requests
        assert second.messages[: len(first.messages)] == first.messages
        assert "THE PLAN" in bench_text(second.messages[1])
        assert isinstance(second.messages[0], SystemMessage)
        assert second.messages[3].results[0].tool_call_id == "call_a"  # type: ignore[union-attr] - a message of results
        bench.check_record()


def bench_text(message: object) -> str:
    assert isinstance(message, UserMessage)
    return message.text


async def test_review_may_look_and_repair_before_it_decides() -> None:
    """S23, S24, S80: it has the tools of work, and what it changed is told."""
    tools = {"write_file": lambda use: tool_response(use, changed=["a.py"], effect="write")}
    replies = (calls(("c1", "read_file")), calls(("c2", "write_file")), answer("review"))
    async with Bench("review", *replies, tools=tools) as bench:
        done = await bench.run()
        assert done.changed == ("a.py",)
        assert [use.name for use in bench.tools.uses] == ["read_file", "write_file"]


async def test_planning_gets_the_reading_tools_only() -> None:
    """S80: plan can't change anything; its submit tool is there all the same."""
    offered: dict[StageKind, list[str]] = {}
    for kind in KINDS:
        async with Bench(kind, answer(kind), require_evidence=False) as bench:
            await bench.run()
            offered[kind] = [tool.name for tool in bench.requests[0].tools]
    names = [spec.name for spec in SPECS]
    assert offered == {
        "plan": ["read_file", "grep", "submit_plan"],
        "work": [*names, "submit_work"],
        "review": [*names, "submit_review"],
    }


async def test_requests_name_run_stage_round_and_options() -> None:
    """S38, S5: the run's id goes along, never empty, and the stage's own options."""
    async with Bench("plan", calls(("c1", "grep")), answer("plan")) as bench:
        await bench.run()
        assert [(r.run_id, r.stage_id, r.round) for r in bench.requests] == [
            ("run_1", "plan", 1),
            ("run_1", "plan", 2),
        ]
        assert all(request.options == {"temperature": 0.5} for request in bench.requests)


# ---- answers that aren't


@pytest.mark.parametrize("kind", KINDS)
async def test_an_invalid_answer_is_told_why_and_may_be_mended(kind: StageKind) -> None:
    """R82, R87, S29: the next request says what was wrong; a valid answer then counts."""
    replies = (PoolReply(text="Here is my answer: done."), calls(("s1", f"submit_{kind}", "{")), answer(kind))
    async with Bench(kind, *replies, require_evidence=False) as bench:
        done = await bench.run()
        assert done.rounds == 3
        assert "no words before or after" in bench.last_told(1)
        assert "isn't one valid JSON object" in bench.last_results(2)[0]
        bench.check_record()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("allowed", [0, 1, 2])
async def test_after_the_allowed_corrections_it_is_invalid_output(kind: StageKind, allowed: int) -> None:
    """S69, S70, S71, R83: bounded; never accepted, never a request more."""
    replies = [PoolReply(text=f"No {n}.") for n in range(5)]
    async with Bench(kind, *replies, limits={"max_corrections": allowed}) as bench:
        with pytest.raises(StageFailure) as failed:
            await bench.run()
        assert (failed.value.class_, failed.value.code) == ("invalid_output", kind)
        assert len(bench.requests) == allowed + 1
        assert bench.partial.text == f"No {allowed}."
        assert "stage.completed" not in bench.journal.types
        bench.check_record()


async def test_invalid_after_a_tool_call_fails_too() -> None:
    """S70: before or after a tool call, an invalid report fails the stage."""
    replies = (calls(("c1", "read_file")), PoolReply(text="Did it."))
    async with Bench("work", *replies, limits={"max_corrections": 0}) as bench:
        with pytest.raises(StageFailure):
            await bench.run()
        bench.check_record()


async def test_a_report_without_evidence_is_told_and_counted() -> None:
    """S26: work has to use a workspace tool before it may report."""
    async with Bench("work", answer("work"), calls(("c1", "grep")), submit("work")) as bench:
        done = await bench.run()
        assert done.used_tools
        assert "haven't used a single workspace tool" in bench.last_told(1)
    async with Bench("work", answer("work"), submit("work"), limits={"max_corrections": 1}) as bench:
        with pytest.raises(StageFailure) as failed:
            await bench.run()
        assert failed.value.code == "work"
        bench.check_record()


@pytest.mark.parametrize("status", ["denied", "invalid_arguments"])
async def test_a_call_that_never_reached_the_workspace_is_no_evidence(status: str) -> None:
    """S26: a refused call isn't a use."""
    tools = {"grep": lambda use: tool_response(use, status=status)}
    replies = (calls(("c1", "grep")), answer("work"))
    async with Bench("work", *replies, tools=tools, limits={"max_corrections": 0}) as bench:
        with pytest.raises(StageFailure):
            await bench.run()


async def test_evidence_is_not_asked_for_without_tools() -> None:
    """A run without workspace can't use one, and isn't offered any."""
    async with Bench("work", answer("work"), specs=(), plan=None) as bench:
        assert (await bench.run()).fields == ANSWERS["work"]
        assert [tool.name for tool in bench.requests[0].tools] == ["submit_work"]


# ---- nothing, cut, withheld


@pytest.mark.parametrize(
    "empty",
    [PoolReply(), PoolReply(text="  \n"), PoolReply(thinking="Only thoughts."), PoolReply(text="\u200b")],
)
async def test_an_empty_reply_is_nudged_once(empty: PoolReply) -> None:
    """R86: one nudge, a correction; then `empty_result`. The empty message itself isn't sent back."""
    async with Bench("plan", calls(("c1", "grep")), empty, answer("plan")) as bench:
        await bench.run()
        assert "empty" in bench.last_told()
        kinds = [type(message).__name__ for message in bench.requests[2].messages]
        assert kinds == [
            "SystemMessage",
            "UserMessage",
            "AssistantMessage",
            "ToolResultsMessage",
            "UserMessage",
        ]
        bench.check_record()
    async with Bench("plan", empty, empty) as bench:
        with pytest.raises(ProviderError) as failed:
            await bench.run()
        assert failed.value.reason == "empty_result"
        assert len(bench.requests) == 2
        bench.check_record()


async def test_a_nudge_counts_as_a_correction() -> None:
    """R86: with no corrections left, nothing is nudged."""
    async with Bench("plan", PoolReply(), limits={"max_corrections": 0}) as bench:
        with pytest.raises(ProviderError) as failed:
            await bench.run()
        assert failed.value.reason == "empty_result"
    async with Bench("plan", PoolReply(), PoolReply(text="x"), limits={"max_corrections": 1}) as bench:
        with pytest.raises(StageFailure):
            await bench.run()


@pytest.mark.parametrize("finish", ["content_filter", "refusal"])
async def test_a_withheld_reply_has_its_own_code(finish: str) -> None:
    """R86: filter and refusal end the stage with their codes, even beside a whole answer."""
    reply = PoolReply(text=json.dumps(ANSWERS["plan"]), finish=finish)  # type: ignore[arg-type] - one of the finishes
    async with Bench("plan", reply) as bench:
        with pytest.raises(ProviderError) as failed:
            await bench.run()
        assert failed.value.reason == finish
        assert len(bench.requests) == 1
        bench.check_record()


async def test_a_cut_reply_never_counts_and_its_calls_never_run() -> None:
    """R32: whole JSON or whole arguments make no difference; the model is told that it was cut."""
    whole = json.dumps(ANSWERS["plan"])
    replies = (
        PoolReply(text=whole, finish="length"),
        calls(("c1", "read_file", '{"path":"a"}'), ("c2", "grep", '{"pat'), finish="length"),
        calls(("s1", "submit_plan", whole), finish="length"),
        answer("plan"),
    )
    async with Bench("plan", *replies) as bench:
        done = await bench.run()
        assert done.rounds == 4
        assert bench.tools.uses == []
        assert "cut off" in bench.last_told(1)
        assert all("cut off" in text for text in bench.last_results(2))
        assert bench.requests[2].messages[-2].tool_calls[1].arguments == '{"pat'  # type: ignore[union-attr] - the model's own message
        bench.check_record()


async def test_cut_replies_end_the_stage_soon() -> None:
    """R32: the limit on such rounds is small; then the provider is to blame."""
    async with Bench("plan", *[PoolReply(text="{", finish="length")] * 9) as bench:
        with pytest.raises(ProviderError) as failed:
            await bench.run()
        assert failed.value.reason == "cut"
        assert len(bench.requests) == 4
        bench.check_record()


@pytest.mark.parametrize(
    "reason", ["context_length", "auth", "unavailable", "rate_limited", "cut", "protocol"]
)
async def test_provider_errors_go_through(reason: str) -> None:
    """S40, R56: the pool's verdict is the stage's; nothing is asked again here."""
    replies = (calls(("c1", "grep")), ProviderError("no", reason=reason))
    async with Bench("plan", *replies) as bench:
        with pytest.raises(ProviderError) as failed:
            await bench.run()
        assert failed.value.reason == reason
        assert len(bench.requests) == 2
        bench.check_record()


# ---- rounds


@pytest.mark.parametrize("cap", [1, 2, 5])
async def test_an_answer_in_the_last_allowed_request_counts(cap: int) -> None:
    """R13, S54: after the tool rounds one more request, with tools withheld, may answer."""
    replies = [calls((f"c{n}", "grep")) for n in range(cap)]
    async with Bench("work", *replies, submit("work"), limits={"max_tool_rounds": cap}) as bench:
        done = await bench.run()
        assert done.rounds == cap + 1
        offered = [[tool.name for tool in request.tools] for request in bench.requests]
        assert all("grep" in names for names in offered[:-1])
        assert offered[-1] == ["submit_work"]
        assert "your next reply must be the answer" in bench.last_note()
        bench.check_record()


@pytest.mark.parametrize(
    "last",
    [
        calls(("z", "grep"), text="Still looking."),
        PoolReply(text="Still looking."),
        PoolReply(text="Still looking.", finish="length"),
        calls(("z", "submit_work", "{}"), text="Still looking."),
    ],
)
async def test_no_answer_in_the_last_request_is_the_limit(last: PoolReply) -> None:
    """R13, S54: class budget, the limit named, partial text kept, exactly the allowed number of requests."""
    async with Bench("work", calls(("c1", "grep")), last, limits={"max_tool_rounds": 1}) as bench:
        with pytest.raises(LimitReached) as reached:
            await bench.run()
        assert reached.value.limit_code == "tool_rounds"
        assert reached.value.fields["kind"] == "max_tool_rounds"
        assert (reached.value.fields["value"], reached.value.fields["cap"]) == (1, 1)
        assert bench.partial.text == "Still looking."
        assert len(bench.requests) == 2
        assert len(bench.tools.uses) == 1
        bench.check_record()


async def test_one_round_is_enough_for_who_answers_at_once() -> None:
    """R13: where one step is allowed, an answer in it is completed."""
    async with Bench("plan", answer("plan"), limits={"max_tool_rounds": 1}) as bench:
        assert (await bench.run()).rounds == 1


# ---- what is kept


async def test_replies_are_sent_back_as_they_came() -> None:
    """R30: thinking with its signature, text with odd spaces and separators: kept block by block."""
    reply = PoolReply(text=" a \u2028b  ", thinking="t", calls=(("c1", "grep", '{"x" :  1}'),))
    async with Bench("plan", reply, answer("plan")) as bench:
        await bench.run()
        message = bench.requests[1].messages[2]
        assert isinstance(message, AssistantMessage)
        assert message.blocks == reply.blocks()
        assert isinstance(message.blocks[0], ThinkingBlock)


async def test_two_stages_at_once_share_nothing() -> None:
    """S36, S45: same ids of calls in parallel stages; each gets its own results and its own plan."""
    benches = [
        Bench(
            "work",
            calls(("call_1", "grep")),
            answer("work", completion=f"done {n}"),
            plan=f"PLAN {n}",
            run_id=f"run_{n}",
            tools={"grep": lambda use, n=n: tool_response(use, f"RESULT {n}")},
        )
        for n in range(2)
    ]
    async with benches[0], benches[1], asyncio.TaskGroup() as group:
        runs = [group.create_task(bench.run()) for bench in benches]
    for n, (bench, run) in enumerate(zip(benches, runs, strict=True)):
        assert run.result().fields["completion"] == f"done {n}"
        body = repr(bench.requests[1].messages)
        assert f"PLAN {n}" in body
        assert f"RESULT {n}" in body
        assert f"PLAN {1 - n}" not in body
        assert f"RESULT {1 - n}" not in body


async def test_viewers_see_text_and_reasoning_while_it_comes() -> None:
    """R15: deltas are for viewers only; they carry stage and round, and nothing is stored of them."""
    async with Bench("plan", PoolReply(text=json.dumps(ANSWERS["plan"]), thinking="Hmm.")) as bench:
        await bench.run()
        shown = [
            (e.type, e.data["stage_id"], e.data["round"], e.data["text"]) for e in bench.journal.ephemeral
        ]
        assert shown == [
            ("reasoning.delta", "plan", 1, "Hmm."),
            ("message.delta", "plan", 1, json.dumps(ANSWERS["plan"])),
        ]


async def test_a_pool_that_runs_out_is_loud() -> None:
    """The stand-in itself: a request too many is a failure, not a hang."""
    async with Bench("plan", pool=FakePool(PoolReply(text="x"))) as bench:
        with pytest.raises(AssertionError, match="no reply is left"):
            await bench.run()


@pytest.mark.parametrize(
    "status", ["denied", "not_found", "too_large", "conflict", "timed_out", "failed", "outcome_unknown"]
)
async def test_a_status_beside_the_content_is_the_calls_result(status: str) -> None:
    """S86, R33: what isn't a success is told as what it is, and its content is never the stage's answer."""
    replies = (calls(("call_a", "read_file")), answer("work", completion="Reported."))
    tools = {"read_file": lambda use: tool_response(use, json.dumps(ANSWERS["work"]), status=status)}
    async with Bench("work", *replies, tools=tools, require_evidence=False) as bench:
        done = await bench.run()
        assert done.fields["completion"] == "Reported."
        assert len(bench.requests) == 2
        message = bench.requests[1].messages[-1]
        assert isinstance(message, ToolResultsMessage)
        (result,) = message.results
        assert (result.tool_call_id, result.status, result.content) == (
            "call_a",
            status,
            json.dumps(ANSWERS["work"]),
        )
        assert [ended.status for ended in bench.journal.of_type("tool.completed")] == [status]
        bench.check_record()
