"""`tool_mode` over real HTTP: who is held to a schema, and who learns that it has no tools."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from model_kit import PROMPT, MemoryLedger, ask, need_sdk, pool_for, request
from remit.errors import ConfigError, ProviderError
from remit.models import ToolResult, ToolResultsMessage
from remit.testing import (
    AnthropicDialect,
    BedrockDialect,
    FakeProvider,
    GeminiDialect,
    OpenAIChatDialect,
    OpenAIResponsesDialect,
    Reply,
)
from remit.testing.fake_provider._anthropic_rules import check_claude_body

JSON = {"tool_mode": "json"}
SAID = json.dumps({"thought": "Look.", "call": {"tool": "read_file", "arguments": {"relative_path": "a"}}})
CASES: dict[str, tuple[str, str, Any]] = {
    "compatible": ("openai-compatible", "tiny", lambda: OpenAIChatDialect(models=None)),
    "chat": ("openai-chat", "gpt-4.1", OpenAIChatDialect),
    "responses": ("openai", "gpt-5.2", OpenAIResponsesDialect),
    "anthropic": ("anthropic", "claude-sonnet-4-6", AnthropicDialect),
    "bedrock": ("bedrock", "anthropic.claude-sonnet-4-6", BedrockDialect),
    "google": ("google", "gemini-3.8-flash", GeminiDialect),
    "google without both": ("google", "gemini-2.5-flash", GeminiDialect),
}


@pytest.mark.parametrize("case", CASES)
async def test_two_rounds(case: str) -> None:
    """R31: over each dialect a round is one JSON object, held to its schema where the provider can."""
    kind, model, dialect = CASES[case]
    need_sdk(kind)
    with FakeProvider([SAID, SAID], dialect=dialect()) as fake:
        async with pool_for(fake, kind=kind, model=model, member=JSON) as pool:
            reply = await ask(pool)
            (call,) = reply.message.tool_calls
            results = ToolResultsMessage(
                results=(ToolResult(tool_call_id=call.tool_call_id, name=call.name, content="found"),)
            )
            again = await ask(pool, request(*PROMPT, reply.message, results))
        first, second = (got.json for got in fake.requests)
    assert (call.name, json.loads(call.arguments), reply.finish) == (
        "read_file",
        {"relative_path": "a"},
        "tool_calls",
    )
    assert again.message.tool_calls[0].tool_call_id != call.tool_call_id
    assert "tools" not in first
    fields = ("response_format", "text", "generationConfig", "output_config", "outputConfig")
    assert "anyOf" in json.dumps([first.get(key) for key in fields])
    forms = {
        "openai": first.get("text", {}).get("format"),
        "google": first.get("generationConfig"),
        "anthropic": first.get("output_config", {}).get("format"),
        "bedrock": first.get("outputConfig", {}).get("textFormat"),
    }
    form = forms.get(kind, first.get("response_format")) or {}
    if kind == "google":
        assert form["responseMimeType"] == "application/json"
    else:
        assert form["type"] == "json_schema"
    assert json.dumps(SAID)[1:-1] in json.dumps(second)
    assert "Result of `read_file` (success)" in json.dumps(second)


async def test_auto_learns() -> None:
    """`auto` asks natively, and changes over for good when the server says that it can't; a row for each."""
    refusal = {"error": {"message": "registry/library/tiny:latest does not support tools"}}
    ledger = MemoryLedger()
    with FakeProvider(
        [Reply(status=400, body=refusal), SAID, SAID], dialect=OpenAIChatDialect(models=None)
    ) as fake:
        async with pool_for(fake, kind="openai-compatible", model="tiny") as pool:
            assert (await ask(pool, ledger=ledger)).message.tool_calls
            assert (await ask(pool, ledger=ledger)).message.tool_calls
        asked = ["tools" in got.json for got in fake.requests]
    assert asked == [True, False, False]
    assert ledger.statuses == ["refused", "completed", "completed"]


async def test_who_refuses_json_as_well_has_failed() -> None:
    """R56: a server that says the same of a request without tools isn't asked for ever."""
    refusal = {"error": {"message": "registry/library/tiny:latest does not support tools"}}
    ledger = MemoryLedger()
    with FakeProvider(
        [Reply(status=400, body=refusal, repeat=True)], dialect=OpenAIChatDialect(models=None)
    ) as fake:
        async with pool_for(fake, kind="openai-compatible", model="tiny") as pool:
            with pytest.raises(ProviderError):
                async with asyncio.timeout(30):
                    await ask(pool, ledger=ledger)
    assert ledger.statuses == ["refused", "refused"]


async def test_native_is_native() -> None:
    """R56: who was told to call tools natively, and can't, says so."""
    refusal = {"error": {"message": "tiny does not support tools"}}
    with FakeProvider([Reply(status=400, body=refusal)], dialect=OpenAIChatDialect(models=None)) as fake:
        async with pool_for(fake, kind="openai-compatible", member={"tool_mode": "native"}) as pool:
            with pytest.raises(ProviderError):
                await ask(pool)
        assert len(fake.requests) == 1


@pytest.mark.parametrize("case", ["compatible", "responses", "google"])
async def test_a_server_that_holds_to_nothing(case: str) -> None:
    """A server that refuses schemas is asked without, once and for all: the schema stands in the prompt."""
    kind, model, dialect = CASES[case]
    need_sdk(kind)
    words = {"compatible": "response_format", "responses": "text.format", "google": "json schema"}[case]
    refusal = {"error": {"message": f"{words} is not supported here"}}
    ledger = MemoryLedger()
    with FakeProvider([Reply(status=400, body=refusal), SAID, SAID], dialect=dialect()) as fake:
        async with pool_for(fake, kind=kind, model=model, member=JSON) as pool:
            for _ in range(2):
                assert (await ask(pool, ledger=ledger)).message.tool_calls
    assert ledger.statuses == ["refused", "completed", "completed"]


async def test_an_option_that_json_has_no_place_for() -> None:
    """An option that a member would drop is refused at start, by name."""
    with FakeProvider([], dialect=OpenAIChatDialect(models=None)) as fake:
        async with pool_for(fake, kind="openai-compatible", member=JSON) as pool:
            with pytest.raises(ConfigError, match="parallel_tool_calls"):
                pool.check_options({"parallel_tool_calls": False})


async def test_a_reply_that_was_cut() -> None:
    """R32: what the token limit cut is no call."""
    with FakeProvider([Reply(text=SAID, finish="length")], dialect=OpenAIChatDialect(models=None)) as fake:
        async with pool_for(fake, kind="openai-compatible", member=JSON) as pool:
            reply = await ask(pool)
    assert (reply.finish, reply.message.tool_calls) == ("length", ())


REFUSALS: dict[str, tuple[str, str, Any, Any]] = {
    "anthropic": (
        "anthropic",
        "claude-sonnet-4-6",
        AnthropicDialect,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "output_config.format: this model does not support structured outputs",
            },
        },
    ),
    "bedrock": (
        "bedrock",
        "anthropic.claude-sonnet-4-6",
        BedrockDialect,
        {"message": "outputConfig.textFormat is not supported for this model."},
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_a_refused_form_is_left_out(case: str) -> None:
    """R31: a model that can't be held to a schema is asked again without, a row for each, and remembered."""
    kind, model, dialect, body = REFUSALS[case]
    need_sdk(kind)
    ledger = MemoryLedger()
    with FakeProvider([Reply(status=400, body=body), SAID, SAID], dialect=dialect()) as fake:
        async with pool_for(fake, kind=kind, model=model, member=JSON) as pool:
            assert (await ask(pool, ledger=ledger)).message.tool_calls
            assert (await ask(pool, ledger=ledger)).message.tool_calls
        held = [bool({"output_config", "outputConfig"} & set(got.json)) for got in fake.requests]
    assert held == [True, False, False]
    assert ledger.statuses == ["refused", "completed", "completed"]


BESIDE = {
    **REFUSALS,
    "chat": ("openai-chat", "gpt-4.1", OpenAIChatDialect, {"error": {"message": "response_format: no"}}),
    "responses": ("openai", "gpt-5.2", OpenAIResponsesDialect, {"error": {"message": "text.format: no"}}),
    "google": (
        "google",
        "gemini-3.8-flash",
        GeminiDialect,
        {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "no schema"}},
    ),
}


@pytest.mark.parametrize("case", BESIDE)
async def test_what_one_learns_holds_for_those_beside_it(case: str) -> None:
    """R31, R56: of two on their way at once both are asked again, though one has learned it first."""
    kind, model, dialect, body = BESIDE[case]
    need_sdk(kind)
    refused = [Reply(status=400, body=body, delay_ms=delay_ms) for delay_ms in (300, 600)]
    ledgers = [MemoryLedger(), MemoryLedger()]
    with FakeProvider([*refused, SAID, SAID], dialect=dialect()) as fake:
        async with pool_for(fake, kind=kind, model=model, member=JSON) as pool:
            await pool.prepare()
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(ask(pool, ledger=ledger)) for ledger in ledgers]
    assert all(one.result().message.tool_calls for one in asked)
    assert [ledger.statuses for ledger in ledgers] == [["refused", "completed"]] * 2


async def test_what_nobody_learned_is_asked_once() -> None:
    """R56: a refusal that no adaptation answers stays one, also where others were on their way."""
    ledgers = [MemoryLedger(), MemoryLedger()]
    refused = [Reply(status=400, body={"error": {"message": "no"}}, delay_ms=200, repeat=True)]
    with FakeProvider(refused) as fake:
        async with pool_for(fake, kind="openai-compatible", member=JSON) as pool:
            for ledger in ledgers:
                with pytest.raises(ProviderError):
                    await ask(pool, ledger=ledger)
    assert [ledger.statuses for ledger in ledgers] == [["refused"]] * 2


async def test_two_learn_at_once_that_there_are_no_tools() -> None:
    """R56: the second one's refusal, which came after the first one's, is no failure either."""
    refusal = {"error": {"message": "registry/library/tiny:latest does not support tools"}}
    refused = [Reply(status=400, body=refusal, delay_ms=delay_ms) for delay_ms in (300, 600)]
    ledgers = [MemoryLedger(), MemoryLedger()]
    with FakeProvider([*refused, SAID, SAID]) as fake:
        async with pool_for(fake, kind="openai-compatible") as pool, asyncio.TaskGroup() as group:
            asked = [group.create_task(ask(pool, ledger=ledger)) for ledger in ledgers]
    assert all(one.result().message.tool_calls for one in asked)
    assert [ledger.statuses for ledger in ledgers] == [["refused", "completed"]] * 2


@pytest.mark.parametrize("model", ["claude-opus-4-20250514", "some-model-behind-a-gateway"])
async def test_who_cannot_be_held_is_not_asked_to(model: str) -> None:
    """R31: models of Anthropic's form that don't know schemas get the prompt alone, and no refusal first."""
    need_sdk("anthropic")
    with FakeProvider([SAID], dialect=AnthropicDialect(models=None)) as fake:
        async with pool_for(fake, kind="anthropic", model=model, member=JSON) as pool:
            assert (await ask(pool)).message.tool_calls
        (got,) = fake.requests
    assert "output_config" not in got.json
    assert "exactly one JSON object" in json.dumps(got.json)


async def test_effort_and_form_go_out_together() -> None:
    """R31: both are of one field; neither takes the other's place."""
    need_sdk("anthropic")
    with FakeProvider([SAID], dialect=AnthropicDialect()) as fake:
        async with pool_for(fake, kind="anthropic", model="claude-sonnet-4-6", member=JSON) as pool:
            await ask(pool, request(*PROMPT, options={"reasoning_effort": "high"}))
        (got,) = fake.requests
    assert set(got.json["output_config"]) == {"effort", "format"}


@pytest.mark.parametrize("case", REFUSALS)
@pytest.mark.parametrize(("status", "said"), [(404, "no output_config.format here"), (400, "something else")])
async def test_only_a_refusal_is_taken_for_one(case: str, status: int, said: str) -> None:
    """R31, R56: an error of another status, or about something else, takes the schema from nobody."""
    kind, model, dialect, _ = REFUSALS[case]
    need_sdk(kind)
    body = {"type": "error", "message": said, "error": {"type": "invalid_request_error", "message": said}}
    ledger = MemoryLedger()
    with FakeProvider([Reply(status=status, body=body), SAID], dialect=dialect()) as fake:
        async with pool_for(fake, kind=kind, model=model, member=JSON) as pool:
            with pytest.raises(ProviderError):
                await ask(pool, ledger=ledger)
            await ask(pool, ledger=ledger)
        held = [bool({"output_config", "outputConfig"} & set(got.json)) for got in fake.requests]
    assert held == [True, True]
    assert ledger.statuses == ["refused", "completed"]


async def test_what_one_learns_excuses_no_other_error() -> None:
    """R56: an error that no adaptation answers is final, whatever was learned beside it."""
    need_sdk("anthropic")
    kind, model, dialect, body = REFUSALS["anthropic"]
    gone = {"type": "error", "error": {"type": "not_found_error", "message": "no such model"}}
    replies = [Reply(status=400, body=body, delay_ms=300), Reply(status=404, body=gone, delay_ms=600), SAID]
    ledgers = [MemoryLedger(), MemoryLedger()]
    with FakeProvider(replies, dialect=dialect()) as fake:
        async with pool_for(fake, kind=kind, model=model, member=JSON) as pool:
            await pool.prepare()
            asked = [asyncio.ensure_future(ask(pool, ledger=ledger)) for ledger in ledgers]  # noqa: TID251 - awaited below
            done = await asyncio.wait(asked)
    assert not done[1]
    failed = [isinstance(one.exception(), ProviderError) for one in asked]
    assert sorted(failed) == [False, True]
    assert sorted(ledger.statuses for ledger in ledgers) == [["refused"], ["refused", "completed"]]


@pytest.mark.parametrize("held", [True, False])
def test_the_fake_refuses_a_form_beside_a_begun_reply(held: bool) -> None:
    """R31: as the API does, the strict fake takes no reply that was begun for a model held to a schema."""
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    form = {"output_config": {"format": {"type": "json_schema", "schema": schema}}} if held else {}
    begun = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "{"}]
    body = {"model": "claude-sonnet-4-6", "max_tokens": 9, "messages": begun, **form}
    refusal = check_claude_body(body, models=None, issued={}, size_bytes=100)
    assert (refusal is not None) is held
    if refusal is not None:
        assert (refusal.status, "prefill" in refusal.message) == (400, True)


def test_the_fake_looks_at_the_form_of_any_model() -> None:
    """R31: an open schema, or a strange field, is refused by name, where any model is taken as well."""
    body: dict[str, Any] = {"model": "x", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    open_form = {"type": "json_schema", "schema": {"type": "object", "properties": {}}}
    for config, word in (({"format": open_form}, "additionalProperties"), ({"form": 1}, "Extra inputs")):
        asked = {**body, "output_config": config}
        refusal = check_claude_body(asked, models=None, issued={}, size_bytes=100)
        assert refusal is not None
        assert (refusal.status, word in refusal.message) == (400, True)
