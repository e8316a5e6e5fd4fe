"""The scripted provider: a file played through the pool like any other provider."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from model_kit import JumpingClock, MemoryLedger, ask, request
from remit.errors import ConfigError, ProviderError
from remit.models import (
    Delta,
    Pool,
    PoolMember,
    PoolSettings,
    Providers,
    ProviderSettings,
    UserMessage,
    build_pool,
)
from remit.primitives import SystemIds


def play(folder: Path, script: Any, clock: JumpingClock | None = None, *, name: str = "script.json") -> Pool:
    """A pool of a script, given as data or as text."""
    path = folder / name
    path.write_text(script if isinstance(script, str) else json.dumps(script), encoding="utf-8")
    clock, ids = clock or JumpingClock(), SystemIds()
    return build_pool(
        PoolSettings(name="scripted", members=(PoolMember(model="script:any"),)),
        {"script": ProviderSettings(name="script", kind="scripted", script=path)},
        clock=clock,
        ids=ids,
        shared=Providers(clock=clock, ids=ids, jitter=lambda: 0.0),
    )


YAML = """
# A run in three replies.
replies:
  - stage: plan
    json: {plan: "look, then act", verification: run the tests}
  - stage: work
    tool_calls:
      - {name: run_shell, arguments: {command: pytest -q}}
      - {id: mine, name: read_file, arguments: '{"relative_path":  "a"}'}
    usage: {input_tokens: 100, output_tokens: 20, cache_read_tokens: 60}
  - stage: work-1
    text: |
      two
      lines
"""


async def test_a_run_in_yaml(tmp_path: Path) -> None:
    """Replies go out in order per stage; text, data and calls are the model's own words."""
    pool, ledger, deltas = play(tmp_path, YAML, name="run.yaml"), MemoryLedger(), list[Delta]()
    plan = await ask(pool, request(stage_id="plan"), ledger=ledger, deltas=deltas)
    assert json.loads(plan.message.text) == {"plan": "look, then act", "verification": "run the tests"}
    assert "".join(delta.text for delta in deltas) == plan.message.text
    first = await ask(pool, request(stage_id="work-1"), ledger=ledger)
    assert (first.finish, plan.finish) == ("tool_calls", "stop")
    assert [(call.tool_call_id, call.name, call.arguments) for call in first.message.tool_calls] == [
        ("call_2_1", "run_shell", '{"command":"pytest -q"}'),
        ("mine", "read_file", '{"relative_path":  "a"}'),
    ]
    second = await ask(pool, request(stage_id="work-1"), ledger=ledger)
    assert second.message.text == "two\nlines\n"
    assert ledger.statuses == ["completed"] * 3


async def test_usage_and_price(tmp_path: Path) -> None:
    """R23: usage as the script says, else counted from the sizes; free unless it is priced."""
    pool, ledger = play(tmp_path, YAML, name="run.yml"), MemoryLedger()
    counted = await ask(pool, request(stage_id="plan"), ledger=ledger)
    given = await ask(pool, request(stage_id="work-1"), ledger=ledger)
    assert counted.usage.coverage == "reported"
    assert (counted.usage.input_tokens or 0) > 10
    assert (given.usage.input_tokens, given.usage.output_tokens, given.usage.total_tokens) == (100, 20, 120)
    assert given.usage.cache_read_tokens == 60
    assert ledger.starts[0].price is not None
    assert (ledger.starts[0].price.version, ledger.starts[0].price.output_micros) == ("free", 0)


async def test_each_run_starts_anew(tmp_path: Path) -> None:
    """Any number of runs play the same script, each from its beginning."""
    pool = play(tmp_path, [{"stage": "plan", "text": "1"}, {"stage": "plan", "text": "2"}])
    texts = [(await ask(pool, request(stage_id="plan", run_id=run))).message.text for run in "abab"]
    assert texts == ["1", "1", "2", "2"]


async def test_a_shared_script(tmp_path: Path) -> None:
    """All runs draw from one store of replies when the script says so."""
    script = {"shared": True, "replies": [{"stage": "plan", "text": "1"}, {"stage": "plan", "text": "2"}]}
    pool = play(tmp_path, script)
    texts = [(await ask(pool, request(stage_id="plan", run_id=run))).message.text for run in "ab"]
    assert texts == ["1", "2"]


async def test_stages_and_conditions(tmp_path: Path) -> None:
    """A kind of stage, one stage by its id, and text that must stand in the conversation."""
    replies = [
        {"stage": "work-2", "text": "second work"},
        {"stage": "work", "when": {"contains": "Ünïcode \n text"}, "text": "saw it"},
        {"stage": "work", "text": "any work"},
        {"stage": "review", "text": "review"},
    ]
    pool = play(tmp_path, replies)
    assert (await ask(pool, request(stage_id="work-1"))).message.text == "any work"
    assert (await ask(pool, request(stage_id="work-2"))).message.text == "second work"
    assert (await ask(pool, request(stage_id="review-2"))).message.text == "review"
    seen = request(UserMessage(text="here: Ünïcode \n text."), stage_id="work-1")
    assert (await ask(pool, seen)).message.text == "saw it"


async def test_it_runs_out_loudly(tmp_path: Path) -> None:
    """No reply left is a failure that names stage and round; it isn't retried."""
    pool, ledger = play(tmp_path, [{"stage": "plan", "text": "x"}]), MemoryLedger()
    with pytest.raises(ProviderError) as caught:
        await ask(pool, request(stage_id="work-3"), ledger=ledger)
    assert caught.value.reason == "protocol"
    assert "no reply left for stage work-3, round 1" in caught.value.fields["detail"]
    assert (ledger.statuses, ledger.last.usage.total_tokens) == (["refused"], 0)


async def test_errors_go_through_the_owner_of_retries(tmp_path: Path) -> None:
    """R22, R52: an error is an attempt; `retry_after` is kept; the next reply answers the retry."""
    clock, ledger = JumpingClock(), MemoryLedger()
    replies = [
        {"stage": "plan", "error": {"status": 429, "retry_after": 7}},
        {"stage": "plan", "error": {"status": 500, "body": {"error": {"message": "oops"}}}},
        {"stage": "plan", "cut": True, "text": "half a"},
        {"stage": "plan", "text": "whole"},
    ]
    reply = await ask(play(tmp_path, replies, clock), request(stage_id="plan"), ledger=ledger)
    assert reply.message.text == "whole"
    assert ledger.statuses == ["refused", "refused", "cut", "completed"]
    assert [end.code for end in ledger.ends] == ["rate_limited", "unavailable", "cut", None]
    assert ledger.ends[2].usage.coverage == "interrupted"
    assert ledger.ends[2].usage.total_tokens is None
    assert sum(clock.slept) == pytest.approx(7 + 2 + 4)


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (401, None, "auth"),
        (404, "no", "unavailable"),
        (400, {"error": {"code": "content_filter"}}, "content_filter"),
    ],
)
async def test_errors_that_cannot_get_better(tmp_path: Path, status: int, body: Any, reason: str) -> None:
    """R56: one try, as with any provider."""
    ledger = MemoryLedger()
    replies = [{"stage": "plan", "error": {"status": status, "body": body}}, {"stage": "plan", "text": "x"}]
    with pytest.raises(ProviderError) as caught:
        await ask(play(tmp_path, replies), request(stage_id="plan"), ledger=ledger)
    assert (caught.value.reason, len(ledger.ends)) == (reason, 1)


async def test_a_reply_that_reports_no_usage(tmp_path: Path) -> None:
    """R21: `usage: null` is a reply whose usage is missing, never 0."""
    pool = play(tmp_path, [{"stage": "plan", "text": "x", "usage": None}])
    usage = (await ask(pool, request(stage_id="plan"))).usage
    assert (usage.coverage, usage.input_tokens) == ("missing", None)


async def test_a_delay(tmp_path: Path) -> None:
    """The clock that was passed in tells the time."""
    clock = JumpingClock()
    await ask(
        play(tmp_path, [{"stage": "plan", "text": "x", "delay_ms": 250}], clock), request(stage_id="plan")
    )
    assert clock.slept == [0.25]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ([], "replies"),
        ({"replies": [{"stage": "plan", "text": "x"}], "loop": True}, "loop: there is no such field"),
        ([{"stage": "wrok", "text": "x"}], "replies.0.stage"),
        ([{"stage": "work-0", "text": "x"}], "replies.0.stage"),
        ([{"stage": "work", "text": "x", "txet": "y"}], "replies.0.txet"),
        ([{"stage": "work"}], "needs text, json, tool_calls, error or cut"),
        ([{"stage": "work", "text": "x", "json": {}}], "text or json, not both"),
        ([{"stage": "work", "text": "x", "error": {"status": 500}}], "has no text"),
        ([{"stage": "work", "error": {"status": 200}}], "replies.0.error.status"),
        ([{"stage": "work", "tool_calls": [{"arguments": {}}]}], "replies.0.tool_calls.0.name"),
        ([{"stage": "work", "text": "x", "usage": {"input_tokens": -1, "output_tokens": 0}}], "input_tokens"),
        (
            [
                {
                    "stage": "work",
                    "text": "x",
                    "usage": {"input_tokens": 1, "output_tokens": 0, "cache_read_tokens": 2},
                }
            ],
            "parts of input_tokens",
        ),
        ([{"stage": "work", "text": "x", "when": {"regex": "x"}}], "replies.0.when.regex"),
        ('"just a text"', "the top"),
        ("{", "isn't JSON"),
        ('[{"stage": "plan", "text": "a", "text": "b"}]', "stands twice"),
    ],
)
def test_a_script_that_is_wrong(tmp_path: Path, script: Any, words: str) -> None:
    """A closed schema: what is wrong is named, with its place, before anything runs."""
    with pytest.raises(ConfigError) as caught:
        play(tmp_path, script)
    assert words in str(caught.value)
    assert "script.json" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("replies: [", "isn't YAML"),
        ("replies:\n  - {stage: plan, text: a, text: b}", "stands twice"),
        ("replies:\n  - {stage: plan, json: 2026-11-30}", "holds what JSON can't"),
        ("replies:\n  - {stage: plan, json: .nan}", "holds what JSON can't"),
        ("replies:\n  - {stage: plan, json: !!python/object/apply:os.getcwd []}", "isn't YAML"),
    ],
)
def test_yaml_that_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    """R85: doubled keys, dates and numbers that JSON doesn't have are refused; nothing is executed."""
    with pytest.raises(ConfigError, match=r"run\.yaml") as caught:
        play(tmp_path, text, name="run.yaml")
    assert words in str(caught.value)


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    """The file is named when it can't be read."""
    settings = ProviderSettings(name="s", kind="scripted", script=tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        Providers(clock=JumpingClock(), ids=SystemIds()).handle(settings)
    (tmp_path / "none.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="isn't UTF-8"):
        Providers(clock=JumpingClock(), ids=SystemIds()).handle(settings)
