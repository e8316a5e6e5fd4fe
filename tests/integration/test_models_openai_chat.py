"""Chat Completions through the real SDK, over real HTTP, against the strict fake."""

from __future__ import annotations

import json
from typing import Any

import pytest

from model_kit import PROMPT, READ_TOOL, MemoryLedger, ask, pool_for, request
from remit.contract import ToolSpec
from remit.errors import ProviderError
from remit.models import (
    AssistantMessage,
    Delta,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResult,
    ToolResultsMessage,
    UserMessage,
)
from remit.primitives import Secret
from remit.testing import FakeProvider, FakeToolCall, OpenAIChatDialect, Reply

ODD = "x\u0085y\u2028z\u2029w\u000bv"
COMPATIBLE = OpenAIChatDialect(models=None)


def results(message: AssistantMessage) -> ToolResultsMessage:
    return ToolResultsMessage(
        results=tuple(
            ToolResult(tool_call_id=call.tool_call_id, name=call.name, content=f"result of {call.name}")
            for call in message.tool_calls
        )
    )


def sent(fake: FakeProvider, number: int = -1) -> dict[str, Any]:
    body: dict[str, Any] = fake.requests[number].json
    return body


async def test_a_text() -> None:
    """S41, R75: role first, text in pieces, a usage-only chunk at the end, `[DONE]`."""
    deltas: list[Delta] = []
    ledger = MemoryLedger()
    with FakeProvider([Reply(text="Grüße, 世界", chunk_count=4)]) as fake:
        async with pool_for(fake) as pool:
            reply = await ask(pool, ledger=ledger, deltas=deltas)
    assert reply.message.blocks == (TextBlock(text="Grüße, 世界", provider="fake"),)
    assert reply.finish == "stop"
    assert "".join(delta.text for delta in deltas) == "Grüße, 世界"
    assert reply.usage.coverage == "reported"
    assert reply.usage.raw is not None
    assert reply.usage.input_tokens == reply.usage.raw["prompt_tokens"]
    assert reply.usage.flags == ()
    assert ledger.last.provider_request_id == "req_fake000001"
    assert ledger.last.finish == "stop"


async def test_what_is_sent() -> None:
    """S38, S39: the body is built for the member chosen; the run's id is the session id, never empty."""
    with FakeProvider(["ok"]) as fake:
        async with pool_for(fake, model="gpt-5.2") as pool:
            await ask(pool, request(options={"seed": 7, "verbosity": "low"}, max_output_tokens=500))
        body = sent(fake)
        headers = fake.requests[0].headers
    assert body["model"] == "gpt-5.2"
    assert body["messages"] == [
        {"role": "system", "content": "You work."},
        {"role": "user", "content": "Do it."},
    ]
    assert body["prompt_cache_key"] == "run_01"
    assert (body["seed"], body["verbosity"], body["max_completion_tokens"]) == (7, "low", 500)
    assert body["reasoning_effort"] == "medium"
    assert body["stream_options"] == {"include_usage": True}
    assert body["tools"][0]["function"]["parameters"] == READ_TOOL.parameters
    assert headers["user-agent"].startswith("remit/")
    assert headers["x-client-request-id"].startswith("att_")
    assert headers["x-stainless-retry-count"] == "0"


async def test_a_long_run_id_as_cache_key() -> None:
    """S38: an id longer than a cache key may be still gives one key per run."""
    with FakeProvider([Reply(text="ok", repeat=True)]) as fake:
        async with pool_for(fake) as pool:
            for run_id in ("r" * 128, "r" * 127 + "s"):
                await ask(pool, request(run_id=run_id))
        keys = {item.json["prompt_cache_key"] for item in fake.requests}
    assert {len(key) for key in keys} == {64}
    assert len(keys) == 2


async def test_a_compatible_server() -> None:
    """S38: another kind of server gets `max_tokens`, a session header, and no key where none is set."""
    dialect = OpenAIChatDialect(models=None, api_key=None)
    extra = {"chat_template_kwargs": {"enable_thinking": False}}
    with FakeProvider(["ok"], dialect=dialect) as fake:
        async with pool_for(
            fake, kind="openai-compatible", model="local/qwen", api_key=None, extra_body=extra
        ) as pool:
            await ask(pool, request(max_output_tokens=100))
        body, headers = sent(fake), fake.requests[0].headers
    assert body["max_tokens"] == 100
    assert "max_completion_tokens" not in body
    assert "prompt_cache_key" not in body
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert headers["x-session-id"] == "run_01"
    assert "authorization" not in headers


async def test_nothing_of_the_environment_goes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """R79: what the SDK would take from the user's environment isn't for the provider that is configured."""
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "canary-1234567")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Canary: canary-1234567")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/canary")
    with FakeProvider(["ok"], dialect=OpenAIChatDialect(models=None, api_key=None)) as fake:
        async with pool_for(fake, kind="openai-compatible", api_key=None) as pool:
            await ask(pool)
        assert "canary" not in str(fake.requests[0].headers)


async def test_own_headers_and_organization() -> None:
    """Headers that are configured go along, secret ones too."""
    with FakeProvider(["ok"]) as fake:
        async with pool_for(
            fake,
            headers={"X-Team": "a", "X-Token": Secret("hidden-one")},
            organization="org-1",
            project="p-1",
        ) as pool:
            await ask(pool)
        headers = fake.requests[0].headers
    assert (headers["x-team"], headers["x-token"]) == ("a", "hidden-one")
    assert (headers["openai-organization"], headers["openai-project"]) == ("org-1", "p-1")


async def test_calls_and_their_results() -> None:
    """R26: ids and argument text as received, sent back byte for byte, results in call order."""
    arguments = (
        '{"relative_path":  "a.py"}',
        '{"relative_path": "b\\u00e9\\n.py", "n": 2512292042121000001}',
    )
    calls = tuple(FakeToolCall(name="read_file", arguments=text) for text in arguments)
    with FakeProvider([Reply(text="I look.", tool_calls=calls), "done"]) as fake:
        async with pool_for(fake) as pool:
            reply = await ask(pool)
            await ask(pool, request(*PROMPT, reply.message, results(reply.message)))
        history = sent(fake)["messages"]
    assert reply.finish == "tool_calls"
    assert [call.arguments for call in reply.message.tool_calls] == list(arguments)
    assert [call.tool_call_id for call in reply.message.tool_calls] == [
        "call_fake0001x00",
        "call_fake0001x01",
    ]
    assert history[2]["content"] == "I look."
    assert [call["function"]["arguments"] for call in history[2]["tool_calls"]] == list(arguments)
    assert [message["tool_call_id"] for message in history[3:]] == ["call_fake0001x00", "call_fake0001x01"]


async def test_prompts_are_append_only() -> None:
    """Every request of a stage begins with the bytes of the one before: the cache holds."""
    call = FakeToolCall(name="read_file", arguments='{"relative_path": "a"}')
    with FakeProvider([Reply(thinking="hm", tool_calls=(call,)), Reply(tool_calls=(call,)), "done"]) as fake:
        async with pool_for(fake, model="gpt-5.2") as pool:
            messages: tuple[Message, ...] = PROMPT
            for _ in range(3):
                reply = await ask(pool, request(*messages))
                messages = (*messages, reply.message, results(reply.message))
        bodies = [json.dumps(item.json["messages"])[:-1] for item in fake.requests]
        tools = {json.dumps(item.json["tools"]) for item in fake.requests}
    assert bodies[1].startswith(bodies[0])
    assert bodies[2].startswith(bodies[1])
    assert len(tools) == 1


async def test_a_signature_on_a_call_goes_back() -> None:
    """R29: an opaque field of 600 characters on one call, none on the other: back byte for byte."""
    extra = {"extra_content": {"google": {"thought_signature": "Sig+/=" * 100}}}
    calls = (
        FakeToolCall(name="read_file", arguments='{"relative_path": "a"}', extra=extra),
        FakeToolCall(name="read_file", arguments='{"relative_path": "b"}'),
    )
    with FakeProvider([Reply(tool_calls=calls), "done"], dialect=COMPATIBLE) as fake:
        async with pool_for(fake, kind="openai-compatible", model="gemini-3-pro") as pool:
            reply = await ask(pool)
            await ask(pool, request(*PROMPT, reply.message, results(reply.message)))
        first, second = sent(fake)["messages"][2]["tool_calls"]
    assert first["extra_content"] == extra["extra_content"]
    assert "extra_content" not in second


async def test_a_signature_beside_a_text_goes_back() -> None:
    """R29: so does one that stands beside text."""
    extra = {"google": {"thought_signature": "T" * 600}}
    deltas = ({"role": "assistant", "content": "Look:"}, {"content": " yes", "extra_content": extra})
    with FakeProvider([Reply(deltas=deltas), "done"], dialect=COMPATIBLE) as fake:
        async with pool_for(fake, kind="openai-compatible", model="gemini-3-pro") as pool:
            reply = await ask(pool)
            await ask(pool, request(*PROMPT, reply.message, UserMessage(text="Go on.")))
        assert sent(fake)["messages"][2] == {
            "role": "assistant",
            "content": "Look: yes",
            "extra_content": extra,
        }
    assert isinstance(reply.message.blocks[0], TextBlock)
    assert reply.message.blocks[0].details == {"extra_content": extra}


async def test_opaque_fields_are_left_out_for_another_provider() -> None:
    """R29: signatures and thoughts are for the provider that gave them, and for no other."""
    foreign = AssistantMessage(
        model="other:m",
        blocks=(
            ThinkingBlock(text="foreign thought", provider="other", details={"part_id": "reasoning_content"}),
            TextBlock(text="I look.", provider="other", details={"extra_content": {"s": "secret-sig"}}),
            ToolCallBlock(
                tool_call_id="c1",
                name="read_file",
                arguments="{}",
                provider="other",
                details={"extra_content": {"s": "secret-sig"}},
            ),
        ),
    )
    with FakeProvider(["done"], dialect=COMPATIBLE) as fake:
        async with pool_for(fake, kind="openai-compatible") as pool:
            await ask(pool, request(*PROMPT, foreign, results(foreign)))
        text = fake.requests[0].text
    assert "I look." in text
    assert "secret-sig" not in text
    assert "foreign thought" not in text


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_thoughts_go_back_where_they_came_from(field: str) -> None:
    """R29, R30: reasoning is a block of its own, never text, and goes back in the field it came in."""
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
    deltas = ({"role": "assistant", field: "I think. "}, {field: "So.  "}, {"tool_calls": [call]})
    with FakeProvider([Reply(deltas=deltas, finish="tool_calls"), "done"], dialect=COMPATIBLE) as fake:
        async with pool_for(fake, kind="openai-compatible", model="thinker") as pool:
            reply = await ask(pool)
            await ask(pool, request(*PROMPT, reply.message, results(reply.message)))
        assert sent(fake)["messages"][2][field] == "I think. So.  "
    block = reply.message.blocks[0]
    assert isinstance(block, ThinkingBlock)
    assert (block.text, block.provider) == ("I think. So.  ", "fake")
    assert reply.message.text == ""


@pytest.mark.parametrize(
    ("arguments", "wire"),
    [
        ("", "{}"),
        ("  ", "{}"),
        ('{"a":  1}', '{"a":  1}'),
        ("null", None),
        ("[]", None),
        ('"x"', None),
        ("{", None),
        ('{"a":1}{"b":2}', None),
        ('{"a":1,"a":2}', None),
        ('{"a": NaN}', None),
        ("{" * 50_000, None),
    ],
)
async def test_broken_argument_text_is_kept_and_the_run_goes_on(arguments: str, wire: str | None) -> None:
    """R31: what came is kept; in the next request it is an object, so that no server chokes on it."""
    call = FakeToolCall(name="read_file", arguments=arguments)
    with FakeProvider([Reply(tool_calls=(call,)), "done"]) as fake:
        async with pool_for(fake) as pool:
            reply = await ask(pool)
            await ask(pool, request(*PROMPT, reply.message, results(reply.message)))
        again = sent(fake)["messages"][2]["tool_calls"][0]["function"]["arguments"]
        size = len(fake.requests[-1].body)
    assert reply.message.tool_calls[0].arguments == arguments
    assert isinstance(json.loads(again), dict)
    assert size < 20_000
    if wire is not None:
        assert again == wire
    else:
        assert json.loads(again)["invalid_arguments"] == arguments[:2_000]


async def test_a_cut_call_keeps_its_finish() -> None:
    """R32: a call cut by the token limit is told as such: `length`, never `tool_calls`."""
    call = FakeToolCall(name="read_file", arguments='{"relative_path": "a')
    with FakeProvider([Reply(tool_calls=(call,), finish="length")]) as fake:
        async with pool_for(fake) as pool:
            reply = await ask(pool)
    assert reply.finish == "length"
    assert reply.message.tool_calls[0].arguments == '{"relative_path": "a'


@pytest.mark.parametrize(
    ("reply", "finish"),
    [
        (Reply(text="x", finish="length"), "length"),
        (Reply(text="x", finish="max_tokens"), "length"),
        (Reply(text="x", finish="content_filter"), "content_filter"),
        (Reply(refusal="I can't help with that."), "refusal"),
        (Reply(text="x", finish="end_turn"), "stop"),
        (Reply(tool_calls=(FakeToolCall(name="read_file"),), finish="stop"), "tool_calls"),
        (Reply(text="x", finish="tool_calls"), "stop"),
        (Reply(text="", finish="stop"), "stop"),
    ],
)
async def test_why_it_stopped(reply: Reply, finish: str) -> None:
    """R69, R86: the provider's word is read strictly; an empty reply and a refusal are told as such."""
    with FakeProvider([reply]) as fake:
        async with pool_for(fake) as pool:
            got = await ask(pool)
    assert got.finish == finish
    if reply.refusal:
        assert got.message.text == reply.refusal


async def test_a_word_that_nobody_knows() -> None:
    """R69: a reason that we don't know isn't taken for a good end."""
    ledger = MemoryLedger()
    with FakeProvider([Reply(text="x", finish="because")]) as fake:
        async with pool_for(fake) as pool:
            with pytest.raises(ProviderError) as caught:
                await ask(pool, ledger=ledger)
    assert caught.value.reason == "protocol"
    assert "'because'" in (ledger.last.detail or "")
    assert ledger.last.usage.coverage == "reported", "it is billed all the same"


async def test_parallel_calls_that_all_say_index_0() -> None:
    """R26: through the whole path, three calls stay three, with their own arguments."""
    deltas = tuple(
        {
            "tool_calls": [
                {"index": 0, "id": f"c{n}", "type": "function",
                 "function": {"name": "read_file", "arguments": f'{{"relative_path": "{n}"}}'}}
            ]
        }
        for n in range(3)
    )  # fmt: skip
    with FakeProvider([Reply(deltas=deltas, finish="tool_calls")], dialect=COMPATIBLE) as fake:
        async with pool_for(fake, kind="openai-compatible") as pool:
            reply = await ask(pool)
    assert [(call.tool_call_id, call.arguments) for call in reply.message.tool_calls] == [
        (f"c{n}", f'{{"relative_path": "{n}"}}') for n in range(3)
    ]


async def test_ids_that_the_conversation_has_already() -> None:
    """R26: a provider that numbers its calls anew in each reply gets ids of ours instead."""
    call = FakeToolCall(name="read_file", arguments="{}", id="call_0")
    with FakeProvider([Reply(tool_calls=(call, call)), Reply(tool_calls=(call,)), "done"]) as fake:
        async with pool_for(fake, kind="openai-compatible") as pool:
            first = await ask(pool)
            history = (*PROMPT, first.message, results(first.message))
            second = await ask(pool, request(*history))
            await ask(pool, request(*history, second.message, results(second.message)))
    ids = [call.tool_call_id for reply in (first, second) for call in reply.message.tool_calls]
    assert ids[0] == "call_0"
    assert len(set(ids)) == 3, ids


async def test_whitespace_and_separators_stay() -> None:
    """R30, R70: trailing spaces and separators are part of the text."""
    text = f"  a {ODD}  \n "
    with FakeProvider([Reply(text=text, chunk_count=7)]) as fake:
        async with pool_for(fake) as pool:
            reply = await ask(pool, request(UserMessage(text=ODD)))
        assert sent(fake)["messages"][0]["content"] == ODD
    assert reply.message.text == text


async def test_tags_in_a_text_are_text() -> None:
    """R30: an answer that speaks of thinking tags isn't taken apart, where thoughts have their own field."""
    deltas = tuple({"content": piece} for piece in ("a ", "<think>", " b ", "</think>", " c"))
    with FakeProvider([Reply(deltas=deltas)]) as fake:
        async with pool_for(fake) as pool:
            reply = await ask(pool)
    assert reply.message.text == "a <think> b </think> c"


async def test_nul_and_surrogates_in_a_reply() -> None:
    """R44: what no store can hold becomes U+FFFD."""
    raw = (
        'data: {"choices":[{"index":0,"delta":{"content":"a\\u0000b\\ud800c"},"finish_reason":"stop"}]}\n\n'
        "data: [DONE]\n\n"
    )
    with FakeProvider([Reply(raw=raw.encode())]) as fake:
        async with pool_for(fake) as pool:
            reply = await ask(pool)
    assert reply.message.text == "a\ufffdb\ufffdc"


async def test_images_and_notes() -> None:
    """An image goes as a part; a note stands after the results."""
    call = ToolCallBlock(tool_call_id="c1", name="read_file", arguments="{}")
    message = AssistantMessage(blocks=(call,), model="fake:m")
    answered = ToolResultsMessage(
        results=(ToolResult(tool_call_id="c1", name="read_file", content="text"),),
        note="80 % of the time is used.",
    )
    image = "data:image/png;base64,iVBORw0KGgo="
    with FakeProvider(["ok"]) as fake:
        async with pool_for(fake) as pool:
            await ask(pool, request(UserMessage(text="See:", images=(image,)), message, answered))
        user, _, tool, note = sent(fake)["messages"]
    assert user["content"][1] == {"type": "image_url", "image_url": {"url": image}}
    assert (tool["role"], tool["content"]) == ("tool", "text")
    assert (note["role"], note["content"]) == ("user", "80 % of the time is used.")


async def test_schemas_go_out_as_they_are() -> None:
    """S39: nobody rewrites a tool's schema on the way."""
    schema: dict[str, object] = {
        "type": "object",
        "title": "T",
        "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "A"}},
        "additionalProperties": False,
        "required": ["a"],
    }
    tool = ToolSpec(name="mcp__s__t", description="", parameters=schema, effect="read")
    with FakeProvider(["ok"]) as fake:
        async with pool_for(fake) as pool:
            await ask(pool, request(tools=(tool,)))
        assert sent(fake)["tools"] == [
            {"type": "function", "function": {"name": "mcp__s__t", "description": "", "parameters": schema}}
        ]


async def test_no_tools_at_all() -> None:
    """A request without tools names none, and no choice among them."""
    with FakeProvider(["ok"]) as fake:
        async with pool_for(fake) as pool:
            await ask(pool, request(tools=()))
        assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(sent(fake))


async def test_a_server_that_ignores_stream() -> None:
    """R75: one JSON body in place of a stream is read the same: text, thoughts, calls, usage."""
    dialect = OpenAIChatDialect(models=None, ignore_stream=True)
    calls = (
        FakeToolCall(name="read_file", arguments='{"relative_path":  "a"}'),
        FakeToolCall(name="read_file"),
    )
    whole = Reply(text="I look.", thinking="hm", tool_calls=calls, framing="length")
    with FakeProvider([whole], dialect=dialect) as fake:
        async with pool_for(fake, kind="openai-compatible") as pool:
            reply = await ask(pool)
    assert reply.finish == "tool_calls"
    assert reply.message.text == "I look."
    assert [call.arguments for call in reply.message.tool_calls] == ['{"relative_path":  "a"}', "{}"]
    assert isinstance(reply.message.blocks[0], ThinkingBlock)
    assert reply.usage.coverage == "reported"
    assert reply.usage.flags == ("not_streamed",)


async def test_a_server_that_refuses_stream_options() -> None:
    """R75: it gets one more attempt without them, and from then on none with them; usage is then missing."""
    dialect = OpenAIChatDialect(models=None, refuse_stream_options=True)
    ledger = MemoryLedger()
    with FakeProvider([Reply(text="ok", repeat=True)], dialect=dialect) as fake:
        async with pool_for(fake, kind="openai-compatible") as pool:
            first = await ask(pool, ledger=ledger)
            await ask(pool, ledger=ledger)
        options = ["stream_options" in item.json for item in fake.requests]
    assert options == [True, False, False]
    assert ledger.statuses == ["refused", "completed", "completed"]
    assert first.usage.coverage == "missing"
    assert first.usage.input_tokens is None


async def test_an_effort_of_ours_that_is_refused() -> None:
    """An effort that nobody asked for is taken back when the provider refuses it beside tools."""
    ledger = MemoryLedger()
    odd = {"error": {"message": "Function tools with reasoning_effort aren't supported; use 'none'."}}
    with FakeProvider([Reply(status=400, body=odd), Reply(text="ok", repeat=True)]) as fake:
        async with pool_for(fake, model="gpt-5.2") as pool:
            await ask(pool, ledger=ledger)
            await ask(pool, ledger=ledger)
        assert [item.json.get("reasoning_effort") for item in fake.requests] == ["medium", "none", "none"]
    assert ledger.statuses == ["refused", "completed", "completed"]


async def test_an_effort_of_the_stage_that_is_refused() -> None:
    """R56: what the stage asked for is the stage's affair: refused once, with the provider's words."""
    ledger = MemoryLedger()
    with FakeProvider([Reply(text="ok", repeat=True)]) as fake:
        async with pool_for(fake, model="gpt-5.4") as pool:
            with pytest.raises(ProviderError) as caught:
                await ask(pool, request(options={"reasoning_effort": "high"}), ledger=ledger)
    assert caught.value.reason == "protocol"
    assert "reasoning_effort" in (ledger.last.detail or "")
    assert ledger.statuses == ["refused"]


@pytest.mark.parametrize(
    "model", ["gpt-4.1", "gpt-5", "gpt-5.1", "gpt-5.2", "gpt-5.4", "gpt-5.6-sol", "o4-mini"]
)
async def test_every_known_model_takes_our_plain_request(model: str) -> None:
    """What is sent without any option is what the strict fake takes, for each family."""
    with FakeProvider(["ok"]) as fake:
        async with pool_for(fake, model=model) as pool:
            reply = await ask(pool)
        assert len(fake.requests) == 1
    assert reply.message.text == "ok"


async def test_a_bound_that_we_assumed_and_that_is_too_large() -> None:
    """An assumed bound that a small local model refuses is left out from then on."""
    ledger = MemoryLedger()
    odd = {"error": {"message": "max_tokens is too large: this model's maximum is 4096 tokens", "code": 400}}
    with FakeProvider(
        [Reply(status=400, body=odd), Reply(text="ok", repeat=True)], dialect=COMPATIBLE
    ) as fake:
        async with pool_for(fake, kind="openai-compatible", model="tiny") as pool:
            await ask(pool, ledger=ledger)
            await ask(pool, ledger=ledger)
        assert [item.json.get("max_tokens") for item in fake.requests] == [32_768, None, None]
    assert ledger.statuses == ["refused", "completed", "completed"]


async def test_a_server_that_wants_the_other_field() -> None:
    """A gateway to reasoning models wants `max_completion_tokens`; it gets it."""
    odd = {"error": {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}}
    with FakeProvider([Reply(status=400, body=odd), "ok"], dialect=COMPATIBLE) as fake:
        async with pool_for(fake, kind="openai-compatible", model="gateway/m") as pool:
            await ask(pool, request(max_output_tokens=64))
        assert [item.json.get("max_completion_tokens") for item in fake.requests] == [None, 64]


async def test_a_first_request_is_fast() -> None:
    """Nothing slow stands between a run's clock and its first call: prepare builds the validators."""
    ledger = MemoryLedger()
    with FakeProvider(["ok"]) as fake:
        async with pool_for(fake) as pool:
            await ask(pool, ledger=ledger)
    assert ledger.last.duration_ms < 150
