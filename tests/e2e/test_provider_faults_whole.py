"""What a provider can do to a run, over real HTTP and through the whole pipeline."""

from __future__ import annotations

import json
import logging
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remit.testing import FakeToolCall, Reply, route_by_stage
from whole_kit import (
    MEND,
    MODEL,
    NO_CHECKS,
    HastyClock,
    World,
    judged,
    look_closely,
    planned,
    reviewed,
    tool,
    worked,
)


@pytest.fixture(autouse=True)
def _without_checks(world: World) -> None:
    world.workspace = dict(NO_CHECKS)


def texts_below(folder: Path) -> bytes:
    """All bytes of all files below a folder."""
    return b"\0".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


# ---- refusals


async def test_a_key_that_is_echoed_stays_secret(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """R79, R56, R14: a 401 that echoes the key ends the run at once, and the key is nowhere on record."""
    caplog.set_level(logging.DEBUG)
    world.fake.script(Reply(status=401, echo_key=True, repeat=True))
    before = look_closely(world.root)
    ended = await world.run()
    assert ended.ending == ("failed", "provider", "auth")
    assert len(world.fake.requests) == 1
    key = world.fake.api_key
    on_record = json.dumps([dict(event.data) for event in ended.events])
    assert "You sent the key" in on_record, "the test must see the text that the key stood in"
    assert key not in on_record
    assert key not in caplog.text
    assert key.encode() not in texts_below(world.home)
    assert ended.bill.coverage.refused == 1
    assert ended.view.cost_usd == 0
    assert look_closely(world.root) == before


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply(status=403), "auth"),
        (Reply(status=404), "unavailable"),
        (Reply(status=422, body={"error": {"message": "no", "type": "invalid_request_error"}}), "protocol"),
        (
            Reply(
                status=400,
                body={
                    "error": {
                        "message": "This model's maximum context length is 8192 tokens.",
                        "type": "invalid_request_error",
                        "param": "messages",
                        "code": "context_length_exceeded",
                    }
                },
            ),
            "context_length",
        ),
    ],
    ids=["forbidden", "no such model", "unprocessable", "context length"],
)
async def test_what_cannot_get_better_is_asked_once(world: World, reply: Reply, code: str) -> None:
    """R56, R11: an error that can't get better ends the run after one try, with its own code."""
    world.fake.script(reply, Reply(text="never asked"))
    ended = await world.run()
    assert ended.ending == ("failed", "provider", code)
    assert len(world.fake.requests) == 1
    ended.check_story()


async def test_a_rate_limit_is_waited_for(world: World) -> None:
    """R52: after a 429 the request waits what `Retry-After` asks, then the run goes on to its end."""
    world.fake.script(Reply(status=429, headers={"retry-after": "1"}), *reviewed(MEND))
    ended = await world.run()
    assert ended.ending[0] == "completed"
    first, second = world.fake.requests[:2]
    assert 1.0 <= second.arrived_at - first.arrived_at < 5
    coverage = ended.bill.coverage
    assert (coverage.refused, coverage.attempts, coverage.reported) == (1, 5, 4)
    assert ended.bill.complete


async def test_a_rate_limit_beyond_the_time_left_ends_now(world: World) -> None:
    """R52: a `Retry-After` longer than what is left ends the run at once, class provider."""
    world.fake.script(Reply(status=429, headers={"retry-after": "3600"}, repeat=True))
    ended = await world.run(limits={"wall_clock_ms": 20_000})
    assert ended.ending == ("failed", "provider", "rate_limited")
    assert len(world.fake.requests) == 1
    assert ended.view.ended_at is not None
    assert ended.view.started_at is not None
    assert (ended.view.ended_at - ended.view.started_at).total_seconds() < 10


async def test_a_server_that_keeps_failing(world: World) -> None:
    """R14, R53: a 500 for ever is tried five times at a growing pace, then the run fails with its reason."""
    world.fake.script(Reply(status=500, repeat=True))
    clock = HastyClock()
    ended = await world.run(clock=clock)
    assert ended.ending == ("failed", "provider", "unavailable")
    assert len(world.fake.requests) == 5
    pauses = [pause for pause in clock.slept if 0.7 < pause < 60]  # not the hourly sweep's
    assert len(pauses) == 4
    assert pauses == sorted(pauses)
    assert ended.view.terminal is not None
    assert ended.view.terminal.message
    ended.check_story()


async def test_nobody_listens(world: World) -> None:
    """R14: a provider that can't be reached ends the run as unavailable."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        world.settings = {
            "providers": {"fake": {"kind": "openai-compatible", "base_url": f"http://127.0.0.1:{port}/v1"}}
        }
        ended = await world.run(clock=HastyClock())
    assert ended.ending == ("failed", "provider", "unavailable")
    ended.check_story()


async def test_a_provider_that_never_answers(world: World) -> None:
    """R53, R55: one owner of retries; the request's own time ends a call that hangs, and is named."""
    world.fake.script(Reply(text="x", delay_ms=60_000, repeat=True))
    ended = await world.run(limits={"wall_clock_ms": 700})
    assert ended.ending == ("failed", "budget", "wall_clock")
    assert ended.view.terminal is not None
    assert ended.view.terminal.limit is not None
    assert ended.view.terminal.limit.kind == "wall_clock_ms"
    assert len(world.fake.requests) == 1
    assert world.fake.requests[0].wait(5)
    assert world.fake.requests[0].hung_up


# ---- streams


async def test_a_cut_stream_is_asked_again(world: World) -> None:
    """R69, R21, R22: a cut stream is no answer; its cost is unknown, never nothing, and it is asked again."""
    world.fake.script(Reply(text=json.dumps({"plan": "x" * 400}), break_after_bytes=300), *reviewed(MEND))
    ended = await world.run(clock=HastyClock())
    assert ended.ending[0] == "completed"
    usage = ended.bill
    assert (usage.coverage.attempts, usage.coverage.interrupted) == (5, 1)
    assert not usage.complete
    assert "interrupted" in usage.causes
    assert ended.view.cost_usd is None
    assert ended.view.estimated_max_cost_usd is not None
    assert ended.view.estimated_max_cost_usd > 0
    assert len(ended.attempts) == 5


async def test_a_stream_without_its_end_mark_is_cut(world: World) -> None:
    """R69: a whole answer without the stream's end mark is not an answer."""
    answer = json.dumps({"plan": "p", "verification": "v"})
    world.fake.script(Reply(text=answer, finish="", done=False, usage=None), *reviewed(MEND))
    ended = await world.run(clock=HastyClock())
    assert ended.ending[0] == "completed"
    assert ended.bill.coverage.interrupted == 1


async def test_streams_cut_for_ever(world: World) -> None:
    """R69, R14: every stream cut: the run fails with `cut`, and nothing of it was an answer."""
    world.fake.script(Reply(text="half an answer", break_after_bytes=200, repeat=True))
    ended = await world.run(clock=HastyClock())
    assert ended.ending == ("failed", "provider", "cut")
    assert ended.view.output is None
    assert 1 < len(world.fake.requests) <= 5
    ended.check_story()


async def test_line_separators_in_the_stream(world: World) -> None:
    """R70: characters that some readers take for line ends don't split a record."""
    output = "x\u0085y\u2028z\u2029w\u000bv and \U0001f600"
    verdict = json.dumps({"decision": "pass", "output": output, "summary": "s"}, ensure_ascii=False)
    world.fake.script(*reviewed(MEND, review=[Reply(text=verdict, piece_bytes=7)]))
    ended = await world.run()
    assert ended.view.output == output


# ---- replies that say nothing, or not what was asked


EMPTY = {
    "null": (Reply(), "empty_result"),
    "empty text": (Reply(text=""), "empty_result"),
    "spaces": (Reply(text=" \n "), "empty_result"),
    "only thinking": (Reply(thinking="hm"), "empty_result"),
    "refusal": (Reply(refusal="I won't."), "refusal"),
    "filter": (Reply(text="{", finish="content_filter"), "content_filter"),
    "no choices": (Reply(deltas=(), finish=""), None),
}


@pytest.mark.parametrize("name", EMPTY)
async def test_an_empty_end_is_not_done(world: World, name: str) -> None:
    """R86: after a tool turn an empty reply is nudged once, then fails under its own code."""
    reply, code = EMPTY[name]
    world.fake.script(*route_by_stage(plan=[planned()], work=[MEND, reply], repeat=True))
    before = look_closely(world.root)
    ended = await world.run(clock=HastyClock())
    kind, class_, found = ended.ending
    assert (kind, class_) == ("failed", "provider")
    assert found == code if code else found in {"empty_result", "protocol", "cut"}
    assert look_closely(world.root) == before
    work = [request for request in world.fake.requests if request.stage == "work"]
    if code == "empty_result":
        assert len(work) == 3, "one nudge"


async def test_a_nudge_is_enough(world: World) -> None:
    """R86: an empty reply that is followed by the answer costs one round."""
    world.fake.script(*reviewed(MEND, Reply(text="")))
    assert (await world.run()).ending[0] == "completed"


async def test_a_call_that_was_cut_is_never_run(world: World) -> None:
    """R32: a tool call cut by the token limit isn't repaired or run; the model is told, and goes on."""
    cut = Reply(
        tool_calls=(FakeToolCall(name="run_shell", arguments='{"command": "touch made-by-a-cut'),),
        finish="length",
    )
    whole_but_cut = Reply(tool_calls=(tool("run_shell", command="touch made-by-a-cut"),), finish="length")
    world.fake.script(*reviewed(cut, whole_but_cut, MEND))
    ended = await world.run()
    assert ended.ending[0] == "completed"
    assert not (world.root / "made-by-a-cut").exists()
    assert [data["name"] for data in ended.of_type("tool.started")] == ["edit_file"]
    assert "cut" in ended.results[0]["content"]


async def test_calls_cut_for_ever(world: World) -> None:
    """R32: the number of rounds with a cut call is small."""
    cut = Reply(tool_calls=(FakeToolCall(name="run_shell", arguments='{"command": "x'),), finish="length")
    world.fake.script(*route_by_stage(plan=[planned()], work=[cut], repeat=True))
    ended = await world.run()
    assert ended.ending == ("failed", "provider", "cut")
    assert len([request for request in world.fake.requests if request.stage == "work"]) == 4


PLAN = '{"plan": "Do `this` and that.", "verification": "Look."}'
ANSWERS = {
    "bare": (PLAN, True),
    "fence with a label": (f"```json\n{PLAN}\n```", True),
    "fence without": (f"```\n{PLAN}\n```", True),
    "byte order mark": (f"\ufeff  {PLAN} \n", True),
    "fence with CRLF": (f"```json\r\n{PLAN}\r\n```", True),
    "words before": (f"Here it is: {PLAN}", False),
    "words after": (f"{PLAN}\nDone!", False),
    "another fence": (f"```bash\n{PLAN}\n```", False),
    "two objects": (f"{PLAN}{PLAN}", False),
    "prose": ("I would change the sign.", False),
    "a list": (f"[{PLAN}]", False),
    "not a number": ('{"plan": NaN, "verification": "v"}', False),
    "doubled key": ('{"plan": "a", "plan": "b", "verification": "v"}', False),
    "deep": ("[" * 100_000, False),
    "long number": ('{"plan": ' + "9" * 5_000 + ', "verification": "v"}', False),
    "raw newline": ('{"plan": "a\nb", "verification": "v"}', False),
    "wrong type": ('{"plan": ["a"], "verification": "v"}', False),
    "extra key": ('{"plan": "a", "verification": "v", "x": 1}', False),
    "missing key": ('{"plan": "a"}', False),
    "blank": ('{"plan": " ", "verification": "v"}', False),
}


async def test_answers_are_read_strictly(world: World) -> None:
    """R82, R84, R85, R87: one object, bare or in one fence, is an answer; all else is asked again."""
    async with world.host() as host:
        for name, (text, valid) in ANSWERS.items():
            before = len(world.fake.requests)
            plan = [Reply(text=text)] if valid else [Reply(text=text), planned()]
            world.fake.script(*route_by_stage(plan=plan, work=[MEND, worked()], review=[judged()]))
            run = await host.start(world.request(delivery="patch"))
            view = await run.ended()
            assert view.status == "completed", name
            asked = len([r for r in world.fake.requests[before:] if r.stage == "plan"])
            assert asked == (1 if valid else 2), name
            assert not world.fake.unused, name


async def test_prose_for_ever(world: World) -> None:
    """R82: prose is corrected `max_corrections` times, then the stage has given no valid answer."""
    world.fake.script(Reply(text="I think it is fine.", repeat=True))
    ended = await world.run(limits={"max_corrections": 1})
    assert ended.ending == ("failed", "invalid_output", "plan")
    assert len(world.fake.requests) == 2
    assert "I think it is fine." in ended.of_type("run.settling")[0]["detail"], "the log doesn't say why"


VERDICTS = {
    "another word": '{"decision": "approve", "output": "o", "summary": "s"}',
    "capitals": '{"decision": "PASS", "output": "o", "summary": "s"}',
    "a boolean": '{"decision": true, "output": "o", "summary": "s"}',
    "no decision": '{"output": "o", "summary": "s"}',
    "no output": '{"decision": "pass", "output": "", "summary": "s"}',
    "both": '{"decision": "reject", "decision": "pass", "output": "o", "summary": "s"}',
    "a score": '{"decision": "pass", "output": "o", "summary": "s", "score": NaN}',
    "words": "Looks good to me, pass.",
}


@pytest.mark.parametrize("name", VERDICTS)
async def test_only_a_well_formed_pass_passes(world: World, name: str) -> None:
    """R83, R84, R85: a verdict that can't be read is no pass: asked again, then failed."""
    world.fake.script(
        *route_by_stage(
            plan=[planned()], work=[MEND, worked()], review=[Reply(text=VERDICTS[name], repeat=True)]
        )
    )
    before = look_closely(world.root)
    ended = await world.run(limits={"max_corrections": 1})
    assert ended.ending == ("failed", "invalid_output", "review")
    assert look_closely(world.root) == before
    assert ended.view.patch is not None
    assert not ended.view.patch.reviewed
    assert ended.view.output is None
    assert len([request for request in world.fake.requests if request.stage == "review"]) == 2


# ---- the bill


async def test_usage_that_never_came(world: World) -> None:
    """R21: without usage the run completes, and its cost is unknown with the cause, not 0."""
    world.fake.script(*(replace(reply, usage=None) for reply in reviewed(MEND)))
    ended = await world.run()
    assert ended.ending[0] == "completed"
    usage = ended.bill
    assert not usage.complete
    assert usage.causes == ("missing_attempt_usage",)
    assert usage.coverage.missing == 4
    assert ended.view.cost_usd is None
    assert ended.view.estimated_max_cost_usd is not None


def test_what_libraries_make_of_odd_usage_is_not_told(world: World) -> None:
    """R20: unreadable numbers make the bill incomplete, and no warning of a library is on the screen."""
    odd: list[dict[str, Any]] = [
        {"completion_tokens": 5},
        {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8, "prompt_tokens_details": 7},
        {"prompt_tokens": "many", "completion_tokens": 3, "prompt_tokens_details": {"audio_tokens": -1}},
    ]
    replies = reviewed(MEND)
    told = [*odd, *[odd[-1]] * len(replies)]
    world.fake.script(*(replace(reply, usage=usage) for reply, usage in zip(replies, told, strict=False)))
    process = world.start_run("--json")
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert errors == ""
    assert json.loads(output)["usage"]["complete"] is False


async def test_usage_that_was_required(world: World) -> None:
    """R21: with `usage: required` a bill that isn't known makes the end indeterminate, after the delivery."""
    world.fake.script(*(replace(reply, usage=None) for reply in reviewed(MEND)))
    ended = await world.run(usage="required")
    assert ended.ending == ("indeterminate", "usage", "missing_attempt_usage")
    assert ended.view.output == "It is mended."
    assert "a + b" in (world.root / "calc/__init__.py").read_text()


async def test_reasoning_is_a_part_of_the_output(world: World) -> None:
    """R20: hidden thinking that only the total shows counts as output, and the sum is right."""
    odd: dict[str, Any] = {
        "prompt_tokens": 10,
        "completion_tokens": 200,
        "total_tokens": 5_210,
        "completion_tokens_details": {"reasoning_tokens": 5_000},
    }
    plain = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    world.fake.script(
        *route_by_stage(
            plan=[Reply(text=planned().text, usage=odd)],
            work=[Reply(tool_calls=MEND.tool_calls, usage=plain), Reply(text=worked().text, usage=plain)],
            review=[Reply(text=judged().text, usage=plain)],
        )
    )
    ended = await world.run()
    usage = ended.bill
    assert (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens) == (40, 5_215, 5_000)
    assert usage.total_tokens == 5_255
    assert ended.view.cost_usd == pytest.approx((40 * 1 + 5_215 * 4) / 1e6)


async def test_every_attempt_is_on_the_bill_once(world: World) -> None:
    """R22: one row per attempt under its own id; the sum over rows, stages and models is the run's."""
    broken = Reply(
        text="x" * 100,
        usage={"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
        usage_form="each_chunk",
        break_after_bytes=700,
    )
    world.fake.script(broken, *reviewed(MEND))
    ended = await world.run(clock=HastyClock())
    assert ended.ending[0] == "completed"
    ids = [row.started.attempt_id for row in ended.attempts]
    assert len(ids) == len(set(ids)) == 5
    usage = ended.bill
    for name in ("input_tokens", "output_tokens", "total_tokens"):
        whole = getattr(usage, name)
        used = [row.ended.usage for row in ended.attempts if row.ended.usage]
        assert sum(getattr(part, name) or 0 for part in used) == whole
        assert sum(getattr(part, name) or 0 for part in usage.by_stage.values()) == whole
        assert sum(getattr(part, name) or 0 for part in usage.by_model.values()) == whole
    assert set(usage.by_model) == {MODEL}


# ---- tool calls as they come


ARGUMENTS = ["", "  ", "null", "[]", '"x"', "{", '{"a":1}{"b":2}', "{" * 2_000_000, '{"command": NaN}']


async def test_broken_arguments_run_nothing(world: World) -> None:
    """R31, R84: arguments that aren't one object get an error result; nothing runs, the run goes on."""
    broken = [
        Reply(tool_calls=tuple(FakeToolCall(name="run_shell", arguments=text) for text in ARGUMENTS)),
        Reply(tool_calls=(FakeToolCall(name="list_files", arguments=""),)),
    ]
    world.fake.script(*reviewed(*broken, MEND))
    ended = await world.run()
    assert ended.ending[0] == "completed"
    refused, listed = ended.results[: len(ARGUMENTS)], ended.results[len(ARGUMENTS)]
    assert {result["status"] for result in refused} == {"invalid_arguments"}
    assert all(len(result["content"]) < 2_000 for result in refused)
    assert listed["status"] == "success", "blank arguments are an empty object where nothing is required"


async def test_calls_with_one_id_are_several_calls(world: World) -> None:
    """R26: calls of one tool with one id each get their own result, in order, under ids that differ."""
    same = tuple(
        FakeToolCall(name="run_shell", arguments=json.dumps({"command": f"echo n{number}"}), id="call_1")
        for number in range(3)
    )
    world.fake.script(*reviewed(Reply(tool_calls=same), MEND))
    ended = await world.run()
    assert ended.ending[0] == "completed"
    shown = ended.results[:3]
    assert [result["content"].split()[0] for result in shown] == ["n0", "n1", "n2"]
    assert len({result["tool_call_id"] for result in shown}) == 3
    sent = world.fake.requests[2].json["messages"]
    asked = next(message for message in sent if message.get("tool_calls"))["tool_calls"]
    answered = [message["tool_call_id"] for message in sent if message["role"] == "tool"]
    assert [call["id"] for call in asked] == answered
    assert [json.loads(call["function"]["arguments"])["command"] for call in asked] == [
        "echo n0",
        "echo n1",
        "echo n2",
    ]


async def test_a_failing_call_spares_its_siblings(world: World) -> None:
    """R33: a call that fails is that call's result only; its siblings run to their end."""
    batch = Reply(
        tool_calls=(
            tool("run_shell", command="false"),
            tool("run_shell", command="sleep 0.3; echo ok1"),
            tool("read_file", relative_path="no/such/file"),
            tool("run_shell", command="sleep 0.3; echo ok2"),
        )
    )
    world.fake.script(*reviewed(batch, MEND))
    ended = await world.run()
    first, second, third, fourth = ended.results[:4]
    assert "exit code 1" in first["content"]
    assert "ok1" in second["content"]
    assert third["status"] == "not_found"
    assert "ok2" in fourth["content"]


async def test_a_deadline_stops_a_whole_batch(world: World) -> None:
    """R33: when the run's time is up, all calls of a batch are stopped: running, waiting and reading ones."""
    batch = Reply(
        tool_calls=(
            tool("run_shell", command="touch begun; exec sleep 600"),
            tool("run_shell", command="touch never"),
            tool("read_file", relative_path="calc/__init__.py"),
        )
    )
    world.fake.script(*reviewed(batch, MEND))
    before = look_closely(world.root)
    ended = await world.run(limits={"wall_clock_ms": 2_000})
    assert ended.ending == ("failed", "budget", "wall_clock")
    told = ended.of_type("tool.completed")
    assert [data["status"] for data in told] == ["cancelled"] * 3
    assert [data["duration_ms"] is None for data in told] == [False, True, True], "the second one began"
    assert ended.view.patch is not None
    assert ended.view.patch.files == 1, "what the first one had done stays readable, and is all there is"
    assert look_closely(world.root) == before
    ended.check_story()


async def test_a_call_that_always_fails_ends_the_stage(world: World) -> None:
    """R56: a model that sends the same failing edit for ever is told, then the stage ends."""
    failing = Reply(tool_calls=(tool("edit_file", relative_path="calc/__init__.py", old="zzz", new="y"),))
    world.fake.script(*route_by_stage(plan=[planned()], work=[failing], repeat=True))
    ended = await world.run()
    assert ended.ending == ("failed", "invalid_output", "work")
    assert len([request for request in world.fake.requests if request.stage == "work"]) <= 6


async def test_odd_characters_in_a_prompt(world: World) -> None:
    """R44: NUL and lone surrogates are replaced, said on record, and what goes out is valid."""
    world.fake.script(*reviewed(MEND))
    ended = await world.run(prompt="mend\x00 it \ud800 now")
    assert ended.ending[0] == "completed"
    assert ended.of_type("run.queued")[0]["text_replaced"] == 2
    for request in world.fake.requests:
        text = request.body.decode("utf-8", "strict")
        assert "\x00" not in text
        assert "\\u0000" not in text
        assert "\\ud800" not in text
    assert "mend\ufffd it \ufffd now" in json.dumps(world.fake.requests[0].json, ensure_ascii=False)


async def test_odd_characters_from_model_and_tool(world: World) -> None:
    """R44: the same for what a model says and a tool prints: stored, sent on, and still valid."""
    print_odd = Reply(tool_calls=(tool("run_shell", command=r"printf 'a\0b\355\240\200c'"),))
    verdict = Reply(text='{"decision": "pass", "output": "x\\u0000y\\ud800z", "summary": "s"}')
    world.fake.script(*reviewed(print_odd, MEND, review=[verdict]))
    ended = await world.run()
    assert ended.view.output == "x\ufffdy\ufffdz"
    assert "\x00" not in ended.results[0]["content"]
    for request in world.fake.requests:
        request.body.decode("utf-8", "strict")
        assert b"\\u0000" not in request.body
