"""A whole reviewed run over each dialect: plan, work with tools, review, patch, delivery, bill."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from model_kit import need_sdk
from remit.testing import (
    AnthropicDialect,
    BedrockDialect,
    FakeProvider,
    GeminiDialect,
    OpenAIChatDialect,
    OpenAIResponsesDialect,
    Reply,
    route_by_stage,
)
from whole_kit import KEY_VARIABLE, MEND, PRICE, World, planned, reviewed, shell

CASES = {
    "responses": ("openai", "gpt-5.2", OpenAIResponsesDialect),
    "chat": ("openai-chat", "gpt-5.2", OpenAIChatDialect),
    "anthropic": ("anthropic", "claude-sonnet-4-6", AnthropicDialect),
    "anthropic with a budget": ("anthropic", "claude-haiku-4-5", AnthropicDialect),
    "gemini": ("google", "gemini-3.8-flash", GeminiDialect),
    "bedrock": ("bedrock", "anthropic.claude-sonnet-4-5-v1:0", BedrockDialect),
    "gemini with a budget": ("google", "gemini-2.5-flash", GeminiDialect),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_reviewed_run_over_each_dialect(world: World, case: str) -> None:
    """R18, R29, R30: the strict fake takes every request of a real run, and the bill is whole."""
    kind, model, dialect = CASES[case]
    need_sdk(kind)
    mend, look = replace(MEND, thinking="It subtracts."), replace(shell("true"), thinking="Look once more.")
    with FakeProvider(reviewed(mend, look), dialect=dialect()) as fake:
        provider = {"kind": kind, "base_url": fake.base_url, "api_key_env": KEY_VARIABLE}
        own = replace(world, fake=fake, settings=_settings(provider, model))
        ended = await own.run(model=f"fake:{model}")
        statuses = [request.status for request in fake.requests]
    assert ended.ending == ("completed", None, None)
    assert statuses == [200] * 5
    assert (world.root / "calc" / "__init__.py").read_text() == "def add(a, b):\n    return a + b\n"
    assert (ended.bill.coverage.attempts, ended.bill.coverage.reported) == (5, 5)
    assert ended.bill.complete
    assert ended.view.cost_usd is not None


@pytest.mark.parametrize("case", ["responses", "anthropic", "gemini", "bedrock"])
async def test_an_empty_end_over_each_dialect(world: World, case: str) -> None:
    """R86: after a tool turn only thoughts, or spaces, are no end in any dialect: one nudge, then failed."""
    kind, model, dialect = CASES[case]
    need_sdk(kind)
    empty = [Reply(thinking="hm"), Reply(text=" \n ")]
    with FakeProvider(route_by_stage(plan=[planned()], work=[MEND, *empty]), dialect=dialect()) as fake:
        provider = {"kind": kind, "base_url": fake.base_url, "api_key_env": KEY_VARIABLE}
        own = replace(world, fake=fake, settings=_settings(provider, model))
        ended = await own.run(model=f"fake:{model}")
        assert not fake.unused
    assert ended.ending == ("failed", "provider", "empty_result")
    ended.check_story()


def _as_json(reply: Reply) -> Reply:
    """What a model says that replies in JSON."""
    if not reply.tool_calls:
        return reply
    (call,) = reply.tool_calls
    value = {"thought": "So be it.", "call": {"tool": call.name, "arguments": json.loads(call.argument_text)}}
    return replace(reply, tool_calls=(), text=json.dumps(value))


@pytest.mark.parametrize("case", ["compatible", "gemini"])
async def test_a_reviewed_run_of_a_model_without_tools(world: World, case: str) -> None:
    """R31, R82: in `tool_mode = "json"` each round is one JSON object, and the run is the same run."""
    kind, model, dialect = {
        "compatible": ("openai-compatible", "tiny-1b", OpenAIChatDialect(models=None)),
        "gemini": ("google", "gemini-3.8-flash", GeminiDialect()),
    }[case]
    need_sdk(kind)
    script = [_as_json(reply) for reply in reviewed(MEND, shell("true"))]
    with FakeProvider(script, dialect=dialect) as fake:
        provider = {"kind": kind, "base_url": fake.base_url, "api_key_env": KEY_VARIABLE}
        settings = _settings(provider, model)
        settings["pools"] = {"default": {"members": [{"model": f"fake:{model}", "tool_mode": "json"}]}}
        ended = await replace(world, fake=fake, settings=settings).run(model=None)
        bodies = [request.json for request in fake.requests]
    assert ended.ending == ("completed", None, None)
    assert (world.root / "calc" / "__init__.py").read_text() == "def add(a, b):\n    return a + b\n"
    assert len(bodies) == 5
    assert not any("tools" in body for body in bodies)
    assert all(
        "call" in json.dumps(body.get("response_format") or body["generationConfig"]) for body in bodies
    )


def _settings(provider: dict[str, Any], model: str) -> dict[str, Any]:
    return {"providers": {"fake": provider}, "prices": {f"fake:{model}": dict(PRICE)}}
