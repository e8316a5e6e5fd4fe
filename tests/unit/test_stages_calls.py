"""The tool calls of one reply: order, bounds, refusals, repeats."""

from __future__ import annotations

import asyncio

import pytest

from remit.contract import ToolResponse
from remit.errors import LimitReached, NodeError
from remit.models import ToolCallBlock
from remit.stages import StageFailure, ToolUse
from remit.stages._calls import AT_ONCE, call_label
from remit.stages._repeats import ENDS_AT, TOLD_AT, FailingCalls
from remit.testing._fakes_stages import Handler, tool_response
from stage_kit import Bench, answer, calls, submit


def slow(seconds: float, log: list[str]) -> Handler:
    """A tool that notes its beginning and its end."""

    async def run(use: ToolUse) -> ToolResponse:
        log.append(f"+{use.tool_call_id}")
        await asyncio.sleep(seconds)
        log.append(f"-{use.tool_call_id}")
        return tool_response(use, use.tool_call_id)

    return run


async def test_results_come_in_call_order() -> None:
    """R26: each call has its own result, in the order of the calls, whichever ended first."""
    delays = {"c1": 0.02, "c2": 0.0, "c3": 0.01}

    async def run(use: ToolUse) -> ToolResponse:
        await asyncio.sleep(delays[use.tool_call_id])
        return tool_response(use, f"result of {use.tool_call_id}")

    asked = [(id_, "grep") for id_ in delays]
    async with Bench("work", calls(*asked), answer("work"), tools={"grep": run}) as bench:
        await bench.run()
        assert bench.last_results() == ["result of c1", "result of c2", "result of c3"]
        bench.check_record()


async def test_reading_calls_run_beside_each_other_up_to_a_bound() -> None:
    """S51: a slow one doesn't hold up its neighbours; at most eight at once."""
    log: list[str] = []
    asked = [(f"c{n}", "grep") for n in range(12)]
    async with Bench("work", calls(*asked), answer("work"), tools={"grep": slow(0.01, log)}) as bench:
        await bench.run()
        assert bench.tools.most_at_once == AT_ONCE
        assert log[:AT_ONCE] == [f"+c{n}" for n in range(AT_ONCE)]
        bench.check_record()


async def test_changing_calls_run_alone_and_in_order() -> None:
    """A call that changes files or runs a command has the checkout to itself: no result depends on luck."""
    log: list[str] = []
    asked = [
        ("r1", "grep"),
        ("r2", "grep"),
        ("w1", "write_file"),
        ("x1", "run_shell"),
        ("r3", "grep"),
        ("w2", "write_file"),
    ]
    tools = {name: slow(0.003, log) for name in ("grep", "write_file", "run_shell")}
    async with Bench("work", calls(*asked), answer("work"), tools=tools) as bench:
        await bench.run()
        assert set(log[:2]) == {"+r1", "+r2"}
        assert log[4:] == ["+w1", "-w1", "+x1", "-x1", "+r3", "-r3", "+w2", "-w2"]
        assert bench.last_results() == [id_ for id_, _ in asked]


async def test_a_failing_call_is_its_own_result_only() -> None:
    """R33, R51: a tool-level failure or timeout neither stops its siblings nor the stage."""
    tools = {
        "run_shell": lambda use: (
            tool_response(use, "partial", status="timed_out")
            if use.tool_call_id == "c1"
            else tool_response(use, exit_code=1)
        )
    }
    asked = [("c1", "run_shell"), ("c2", "run_shell"), ("c3", "grep")]
    async with Bench("work", calls(*asked), answer("work"), tools=tools) as bench:
        await bench.run()
        assert bench.last_results() == ["partial", "ok", "ok"]
        statuses = [done.status for done in bench.journal.of_type("tool.completed")]
        assert statuses == ["timed_out", "success", "success"]
        bench.check_record()


async def test_an_empty_result_is_a_full_one() -> None:
    """S78: success without content goes back under its call id, in words that no provider refuses."""
    tools = {
        "write_file": lambda use: tool_response(use, ""),
        "run_shell": lambda use: tool_response(use, "", exit_code=0),
    }
    async with Bench(
        "work", calls(("c1", "write_file"), ("c2", "run_shell")), answer("work"), tools=tools
    ) as bench:
        await bench.run()
        assert bench.last_results() == ["(done, no output)", "(no output, exit code 0)"]
        assert [done.status for done in bench.journal.of_type("tool.completed")] == ["success", "success"]


async def test_unknown_tools_are_refused_without_asking_the_node() -> None:
    """S48: a name that isn't offered is an error result. Planning can't write, even if it asks."""
    asked = [("c1", "delete_world"), ("c2", "grep"), ("c3", "write_file")]
    async with Bench("plan", calls(*asked), answer("plan")) as bench:
        await bench.run()
        assert [use.tool_call_id for use in bench.tools.uses] == ["c2"]
        refused = bench.last_results()
        assert 'no tool "delete_world"' in refused[0]
        assert "read_file, grep, submit_plan" in refused[2]
        assert bench.requests[1].messages[-1].results[0].status == "not_found"  # type: ignore[union-attr] - a message of results
        bench.check_record()


async def test_calls_beyond_the_round_s_bound_get_an_error_result() -> None:
    """Of one round `max_tool_calls_per_round` calls are done; the rest is told to ask again."""
    asked = [(f"c{n}", "grep") for n in range(5)]
    limits = {"max_tool_calls_per_round": 3}
    async with Bench("work", calls(*asked), answer("work"), limits=limits) as bench:
        await bench.run()
        assert len(bench.tools.uses) == 3
        assert ["at most 3" in text for text in bench.last_results()] == [False] * 3 + [True] * 2
        bench.check_record()


async def test_ids_that_come_twice_or_not_at_all_are_made_unique() -> None:
    """R26: every call of a stage has an id of its own; arguments stay as they are, calls aren't merged."""
    first = calls(("call", "grep", '{"n":1}'), ("call", "grep", '{"n":2}'), ("", "grep", '{"n":3}'))
    replies = (first, calls(("call", "grep", '{"n":1}')), answer("work"))
    tools = {"grep": lambda use: tool_response(use, use.arguments)}
    async with Bench("work", *replies, tools=tools) as bench:
        await bench.run()
        ids = [use.tool_call_id for use in bench.tools.uses]
        assert ids == ["call", "call_1", "call_2", "call_3"]
        assert bench.last_results(1) == ['{"n":1}', '{"n":2}', '{"n":3}']
        assert bench.last_results(2) == ['{"n":1}']
        bench.check_record()


@pytest.mark.parametrize("arguments", ["", "  ", "null", "[]", '"x"', "{", '{"a":1}{"b":2}', "{" * 100_000])
async def test_arguments_go_to_the_node_as_they_came(arguments: str) -> None:
    """R31: the node judges them; here nothing is repaired, and an error result lets the stage go on."""
    tools = {"grep": lambda use: tool_response(use, "bad", status="invalid_arguments")}
    replies = (calls(("c1", "grep", arguments)), calls(("c2", "read_file")), answer("work"))
    async with Bench("work", *replies, tools=tools) as bench:
        await bench.run()
        assert bench.tools.uses[0].arguments == arguments
        assert bench.requests[1].messages[2].tool_calls[0].arguments == arguments  # type: ignore[union-attr] - the model's own message


async def test_what_a_model_is_shown_is_bounded_and_storable() -> None:
    """R44, R43: NUL and surrogates are replaced; a node that doesn't keep to the bound is cut here."""
    tools = {"grep": lambda use: tool_response(use, "a\0b\ud800" + "x" * 1_000_000)}
    limits = {"max_tool_output_bytes": 1_000}
    async with Bench("work", calls(("c1", "grep")), answer("work"), tools=tools, limits=limits) as bench:
        await bench.run()
        (text,) = bench.last_results()
        assert text.startswith("a\ufffdb\ufffdx")
        assert len(text) < 5_000
        assert "left out" in text
        assert bench.tools.shown_bytes == [1_000]


# ---- submit beside others


async def test_a_submit_beside_other_calls_is_not_taken() -> None:
    """The others are done; the answer has to come alone, after their results. It counts as a correction."""
    mixed = calls(("c1", "grep"), ("s1", "submit_work", '{"completion":"x","verification":"y"}'))
    async with Bench("work", mixed, answer("work")) as bench:
        await bench.run()
        assert [use.name for use in bench.tools.uses] == ["grep"]
        assert bench.last_results()[0] == "ok"
        assert "alone and once" in bench.last_results()[1]
        bench.check_record()
    async with Bench("work", mixed, limits={"max_corrections": 0}) as bench:
        with pytest.raises(StageFailure):
            await bench.run()
        assert bench.tools.uses == []
        bench.check_record()


async def test_two_submits_in_one_reply_are_no_answer() -> None:
    """R82: two objects are invalid, also as two calls, even when both say the same."""
    one = '{"plan":"x","verification":"y"}'
    async with Bench(
        "plan", calls(("s1", "submit_plan", one), ("s2", "submit_plan", one)), answer("plan")
    ) as bench:
        await bench.run()
        assert all("called 2 times" in text for text in bench.last_results())
        bench.check_record()


# ---- repeats


async def test_the_same_failing_call_is_told_and_then_ends_the_stage() -> None:
    """R56: a small cap on repeats of a call that can't get better; then the tools go."""
    tools = {"write_file": lambda use: tool_response(use, "no such text", status="conflict")}
    same = [
        calls((f"c{n}", "write_file", '{"b": 1,  "a":2}' if n % 2 else '{"a":2,"b":1}')) for n in range(9)
    ]
    async with Bench("work", *same, tools=tools) as bench:
        with pytest.raises(StageFailure) as failed:
            await bench.run()
        assert (failed.value.class_, failed.value.code) == ("invalid_output", "work")
        assert len(bench.requests) - 1 == len(bench.tools.uses) == ENDS_AT
        told = [bool(bench.last_note(n)) for n in range(1, ENDS_AT + 1)]
        assert told == [n >= TOLD_AT for n in range(1, ENDS_AT + 1)]
        assert f"failed {TOLD_AT} times" in bench.last_note(TOLD_AT)
        assert "next reply must be the answer" in bench.last_note(ENDS_AT)
        assert [tool.name for tool in bench.requests[ENDS_AT].tools] == ["submit_work"]
        bench.check_record()


async def test_a_stage_that_is_stuck_may_still_answer() -> None:
    """R56: what was done before isn't lost: told to answer, the model can hand in what there is."""
    tools = {"write_file": lambda use: tool_response(use, "no such text", status="conflict")}
    same = [calls((f"c{n}", "write_file")) for n in range(ENDS_AT)]
    async with Bench("work", *same, submit("work"), tools=tools) as bench:
        done = await bench.run()
        assert done.rounds == ENDS_AT + 1
        bench.check_record()


async def test_other_calls_between_do_not_hide_a_repeat() -> None:
    """R56: going round between a failing edit and a look at the file is the same failing edit."""
    tools = {"write_file": lambda use: tool_response(use, "no", status="conflict")}
    asked = [calls((f"r{n}", "read_file"), (f"w{n}", "write_file")) for n in range(9)]
    async with Bench("work", *asked, tools=tools) as bench:
        with pytest.raises(StageFailure):
            await bench.run()
        assert len(bench.requests) == ENDS_AT + 1


async def test_a_changed_file_starts_the_count_anew() -> None:
    """After a change of files the same call may succeed, so it isn't the same failure."""
    tools: dict[str, Handler] = {
        "run_shell": lambda use: tool_response(use, "no", status="failed"),
        "write_file": lambda use: tool_response(use, changed=["a"]),
    }
    asked = [calls((f"x{n}", "run_shell"), (f"w{n}", "write_file", f'{{"n":{n}}}')) for n in range(7)]
    async with Bench("work", *asked, answer("work"), tools=tools) as bench:
        assert (await bench.run()).rounds == 8


async def test_a_command_that_exits_non_zero_is_no_failing_call() -> None:
    """A failing test run is a result; repeating it is how work goes on."""
    tools = {"run_shell": lambda use: tool_response(use, "1 failed", exit_code=1, command="pytest")}
    asked = [calls((f"x{n}", "run_shell", '{"command":"pytest"}')) for n in range(8)]
    async with Bench("work", *asked, answer("work"), tools=tools) as bench:
        done = await bench.run()
        assert [(c.command, c.exit_code, c.tail) for c in done.commands] == [("pytest", 1, "1 failed")] * 8


def test_a_call_that_fails_again_after_a_success_of_its_round() -> None:
    """R33, R56: the count begins anew, in the same round, too; nothing of it ends the stage."""
    failing = FailingCalls()
    read, write = (ToolCallBlock(tool_call_id=name, name=name, arguments="{}") for name in ("read", "write"))
    for _ in range(2):
        failing.start_round()
        assert failing.failed(read) == 1
        failing.succeeded(write, changed_files=True)
        assert failing.failed(read) == 1
        failing.succeeded(read, changed_files=False)
        assert failing.failed(read) == 1
        failing.succeeded(read, changed_files=False)
    failing.start_round()
    assert [failing.failed(read), failing.failed(read)] == [1, 1]
    failing.start_round()
    assert failing.failed(read) == 2


async def test_a_stage_goes_on_after_a_failure_between_two_successes() -> None:
    """R33, R56: one reply whose call fails, changes files by another, and fails again, ends nothing."""
    replies = (
        calls(("a", "run_shell"), ("b", "write_file"), ("c", "run_shell")),
        answer("work"),
    )
    tools = {
        "run_shell": lambda use: tool_response(use, status="failed"),
        "write_file": lambda use: tool_response(use, changed=["a.txt"]),
    }
    async with Bench("work", *replies, tools=tools) as bench:
        assert (await bench.run()).rounds == 2
        bench.check_record()


async def test_repeats_within_one_reply_count_once() -> None:
    """R56: five copies of a call in one reply are one mistake, not five warnings ignored."""
    tools = {"grep": lambda use: tool_response(use, "bad pattern", status="invalid_arguments")}
    asked = calls(*[(f"c{n}", "grep") for n in range(6)])
    async with Bench("work", asked, calls(("z", "read_file")), answer("work"), tools=tools) as bench:
        await bench.run()
        assert bench.last_note(1) == ""


async def test_a_tool_that_does_not_exist_is_a_failing_call_too() -> None:
    """R56: asking for it for ever ends the stage."""
    async with Bench("work", *[calls((f"c{n}", "nope")) for n in range(9)]) as bench:
        with pytest.raises(StageFailure):
            await bench.run()
        assert len(bench.requests) == ENDS_AT + 1
        bench.check_record()


async def test_rounds_of_refused_calls_count_as_tool_rounds() -> None:
    """R13, R55: a model that asks only for what it can't have is bounded too."""
    asked = [calls((f"c{n}", f"nope_{n}")) for n in range(9)]
    async with Bench("work", *asked, limits={"max_tool_rounds": 3}) as bench:
        with pytest.raises(LimitReached):
            await bench.run()
        assert len(bench.requests) == 4


# ---- the node


@pytest.mark.parametrize("reason", ["lost", "unavailable", "storage_full", "refused"])
async def test_a_lost_node_ends_the_stage_and_stops_the_siblings(reason: str) -> None:
    """R33, S72: what the node said goes through; the other calls are stopped, and every call has an end."""
    begun = asyncio.Event()

    async def run(use: ToolUse) -> ToolResponse:
        if use.tool_call_id == "c1":
            begun.set()
            await asyncio.Event().wait()
        await begun.wait()
        raise NodeError("gone", reason=reason)

    asked = [("c1", "grep"), ("c2", "grep"), ("c3", "write_file")]
    async with Bench("work", calls(*asked), tools={"grep": run}) as bench:
        with pytest.raises(NodeError) as failed:
            await bench.run()
        assert failed.value.reason == reason
        assert bench.tools.stopped == ["c1"]
        ends = {done.tool_call_id: done.status for done in bench.journal.of_type("tool.completed")}
        assert ends == {"c1": "cancelled", "c2": "outcome_unknown", "c3": "cancelled"}
        bench.check_record()


async def test_a_call_cancelled_by_hand_is_that_call_s_result() -> None:
    """A cancelled tool call, told by the node or raised from below, is a result; the stage goes on."""

    async def run(use: ToolUse) -> ToolResponse:
        if use.tool_call_id == "c1":
            raise asyncio.CancelledError
        return tool_response(use, "stopped", status="cancelled")

    replies = (calls(("c1", "run_shell"), ("c2", "grep")), calls(("c3", "read_file")), answer("work"))
    async with Bench("work", *replies, tools={"run_shell": run, "grep": run}) as bench:
        await bench.run()
        assert "Interrupted" in bench.last_results(1)[0]
        bench.check_record()


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        ('{"command":"make test"}', "make test"),
        ('{"content":"x","relative_path":"src/a.py"}', "src/a.py"),
        ('{"pattern":"TODO"}', "TODO"),
        ('{"prompt":"Write b.txt."}', "Write b.txt."),
        ('{"command":["a"],"path":"p"}', "p"),
        ('{"command":"a\\n\\u001b[31mb"}', "a  [31mb"),
        ('{"command":"' + "x" * 500 + '"}', "x" * 119 + "…"),
        ("", ""),
        ("[]", ""),
        ('{"a":1,"a":2}', ""),
    ],
)
def test_labels_are_one_short_printable_line(arguments: str, label: str) -> None:
    """R49: what a call is about, for people; never control codes, never long."""
    assert call_label(arguments) == label
