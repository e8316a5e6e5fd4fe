"""The fake provider refuses what the real one refuses, and misbehaves to the byte when told to."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from typing import Any

import pytest

from remit.testing import (
    FakeProvider,
    FakeProviderProcess,
    FakeToolCall,
    OpenAIChatDialect,
    Reply,
    route_by_stage,
)

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ASKS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWERS = {"role": "tool", "tool_call_id": "c1", "content": "x"}
BAD_SCHEMA = "invalid_function_parameters"
USER = {"role": "user", "content": "hi"}


def tool(name: str = "f", parameters: Any = None, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {}} if parameters is None else parameters
    return {"type": "function", "function": {"name": name, "parameters": schema, **more}}


def post(
    fake: FakeProvider | FakeProviderProcess,
    body: Any = None,
    *,
    key: str | None = None,
    path: str = "/chat/completions",
    **changes: Any,
) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers of one plain request."""
    value = {"model": "gpt-4.1", "messages": [USER], **changes} if body is None else body
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    headers = {"Authorization": f"Bearer {fake.api_key if key is None else key}"}
    call = urllib.request.Request(fake.base_url + path, data, headers | {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(call, timeout=10) as answer:
            return answer.status, answer.read(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), dict(error.headers)


def error_of(fake: FakeProvider, **changes: Any) -> tuple[int, str | None, str | None]:
    """Status, code and param of a refusal."""
    status, body, _ = post(fake, **changes)
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return status, error["code"], error["param"]


@pytest.fixture(scope="module")
def fake() -> Any:
    with FakeProvider([Reply(text="ok", repeat=True)]) as running:
        yield running


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model": "gpt-9"}, (404, "model_not_found", None)),
        ({"model": ""}, (400, None, None)),
        ({"messages": []}, (400, "empty_array", "messages")),
        ({"messages": "hi"}, (400, "missing_required_parameter", "messages")),
        ({"messages": [{"role": "bard", "content": "x"}]}, (400, "invalid_value", "messages.[0].role")),
        ({"messages": [{"role": "user", "content": None}]}, (400, None, "messages.[0].content")),
        ({"messages": [{"role": "user", "content": []}]}, (400, "empty_array", "messages.[0].content")),
        ({"messages": [{"role": "assistant", "content": None}]}, (400, None, "messages.[0].content")),
        ({"messages": [USER, ANSWERS]}, (400, None, "messages.[1].role")),
        ({"messages": [USER, ASKS]}, (400, None, "messages.[2]")),
        ({"messages": [USER, ASKS, USER]}, (400, None, "messages.[2].role")),
        ({"messages": [USER, ASKS, ANSWERS, ANSWERS]}, (400, None, "messages.[3].role")),
        (
            {"messages": [{"role": "assistant", "content": "x", "tool_calls": []}]},
            (400, "invalid_value", "messages.[0].tool_calls"),
        ),
        (
            {"messages": [{**ASKS, "tool_calls": [CALL, CALL]}, ANSWERS, ANSWERS]},
            (400, "invalid_value", "messages.[0].tool_calls"),
        ),
        (
            {"messages": [{**ASKS, "tool_calls": [{**CALL, "id": "i" * 41}]}]},
            (400, "invalid_value", "messages.[0].tool_calls[0].id"),
        ),
        ({"tools": []}, (400, "empty_array", "tools")),
        ({"tools": [tool("bad name")]}, (400, "invalid_value", "tools[0].function.name")),
        ({"tools": [tool(parameters={"type": "string"})]}, (400, BAD_SCHEMA, "tools[0].function.parameters")),
        (
            {"tools": [tool(parameters={"type": "object", "properties": {"a": {"type": "array"}}})]},
            (400, BAD_SCHEMA, "tools[0].function.parameters"),
        ),
        (
            {"tools": [tool(parameters={"type": "object", "properties": {"a": {"type": "text"}}})]},
            (400, BAD_SCHEMA, "tools[0].function.parameters"),
        ),
        ({"tools": [tool(strict=True)]}, (400, BAD_SCHEMA, "tools[0].function.parameters")),
        ({"tool_choice": "auto"}, (400, None, "tool_choice")),
        ({"temperature": 2.5}, (400, "decimal_above_max_value", "temperature")),
        ({"temperature": "hot"}, (400, "invalid_value", "temperature")),
        ({"max_completion_tokens": 0}, (400, "integer_below_min_value", "max_completion_tokens")),
        ({"max_completion_tokens": 40_000}, (400, "invalid_value", "max_tokens")),
        ({"max_tokens": 5, "max_completion_tokens": 5}, (400, "invalid_parameter_combination", "max_tokens")),
        ({"stream_options": {"include_usage": True}}, (400, None, "stream_options")),
        ({"prompt_cache_key": "k" * 65}, (400, "invalid_value", "prompt_cache_key")),
        ({"top_k": 5}, (400, None, None)),
        ({"reasoning_effort": "low"}, (400, None, None)),
        ({"model": "gpt-5", "temperature": 0.2}, (400, "unsupported_value", "temperature")),
        ({"model": "gpt-5", "max_tokens": 5}, (400, "unsupported_parameter", "max_tokens")),
        ({"model": "gpt-5", "reasoning_effort": "none"}, (400, "unsupported_value", "reasoning_effort")),
        (
            {"model": "gpt-5.2", "temperature": 0.2, "reasoning_effort": "low"},
            (400, "unsupported_value", "temperature"),
        ),
        ({"model": "gpt-5.4", "tools": [tool()], "reasoning_effort": "low"}, (400, None, "reasoning_effort")),
        ({"model": "gpt-5.6-sol", "tools": [tool()]}, (400, None, "reasoning_effort")),
        (
            {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "x" * 600_000}]},
            (400, "context_length_exceeded", "messages"),
        ),
    ],
)  # fmt: skip
def test_what_is_refused(fake: FakeProvider, changes: dict[str, Any], expected: tuple[Any, ...]) -> None:
    """Each refusal has the real one's status, code and param."""
    assert error_of(fake, **changes) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"messages": [USER, ASKS, ANSWERS]},
        {"messages": [{"role": "developer", "content": [{"type": "text", "text": "x"}]}, USER]},
        {"messages": [USER, {"role": "assistant", "content": ""}, USER], "seed": 3},
        {"tools": [tool()], "tool_choice": "auto", "parallel_tool_calls": False},
        {"model": "gpt-5.2", "temperature": 0.2},
        {"model": "gpt-5.2", "reasoning_effort": "high", "tools": [tool()], "max_completion_tokens": 128_000},
        {"model": "gpt-5.6-sol", "reasoning_effort": "none", "tools": [tool()], "temperature": 0.1},
    ],
)
def test_what_is_taken(fake: FakeProvider, changes: dict[str, Any]) -> None:
    """Valid forms aren't refused."""
    status, body, headers = post(fake, **changes)
    assert status == 200, body
    assert json.loads(body)["choices"][0]["message"]["content"] == "ok"
    assert headers["x-request-id"].startswith("req_")


def test_keys_paths_and_bodies(fake: FakeProvider) -> None:
    """No key, a wrong one, a wrong path, broken JSON, a body that is too large."""
    assert post(fake, key="wrong-key-00")[0] == 401
    assert b"wrong-key-00" not in post(fake, key="wrong-key-00")[1]
    assert post(fake, path="/other")[0] == 404
    assert post(fake, b"{")[0] == 400
    assert post(fake, b"[]")[0] == 400
    with FakeProvider(dialect=OpenAIChatDialect(max_body_bytes=100)) as small:
        assert post(small, messages=[{"role": "user", "content": "x" * 200}])[0] == 413


def test_the_order_of_replies() -> None:
    """Replies are taken in order; predicates, models and stages choose; nothing left is a loud 400."""
    replies = [
        Reply(text="for gpt-5", model="gpt-5"),
        Reply(text="for zebra", when=lambda request: "zebra" in request.text),
        "first",
        "second",
    ]
    with FakeProvider(replies) as fake:

        def text(**changes: Any) -> str:
            return str(json.loads(post(fake, **changes)[1])["choices"][0]["message"]["content"])

        assert text() == "first"
        assert text(messages=[{"role": "user", "content": "a zebra"}]) == "for zebra"
        assert text() == "second"
        assert text(model="gpt-5") == "for gpt-5"
        assert fake.unused == []
        status, body, _ = post(fake)
        assert (status, json.loads(body)["error"]["code"]) == (400, "script")
        assert len(fake.requests) == 5


def test_routing_by_stage() -> None:
    """A run's stages are told apart by the submit tool that each offers."""
    calls = FakeToolCall(name="submit_plan", arguments={"plan": "p"})
    with FakeProvider(
        route_by_stage(plan=Reply(tool_calls=(calls,)), work=["w1", "w2"], review="r", repeat=True)
    ) as fake:

        def ask(stage: str) -> Any:
            body = json.loads(post(fake, tools=[tool("read_file"), tool(f"submit_{stage}")])[1])
            return body["choices"][0]["message"]

        assert ask("review")["content"] == "r"
        assert [ask("work")["content"] for _ in range(3)] == ["w1", "w2", "w2"]
        assert ask("plan")["tool_calls"][0]["function"] == {
            "name": "submit_plan",
            "arguments": '{"plan": "p"}',
        }
        assert [request.stage for request in fake.requests] == ["review", "work", "work", "work", "plan"]


def test_a_stream_as_the_real_one_sends_it(fake: FakeProvider) -> None:
    """Role once and first; usage only when asked, then null before and once at the end; `[DONE]`."""
    for options in (None, {"include_usage": True}):
        changes: dict[str, Any] = {"stream_options": options} if options else {}
        records = post(fake, stream=True, **changes)[1].decode().split("\n\n")
        assert records[-2:] == ["data: [DONE]", ""]
        chunks = [json.loads(record.removeprefix("data: ")) for record in records[:-2]]
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
        assert [number for number, delta in enumerate(deltas) if "role" in delta] == [0]
        assert "".join(delta.get("content") or "" for delta in deltas) == "ok"
        assert ([chunk for chunk in chunks if not chunk["choices"]] != []) is bool(options)
        assert all(("usage" in chunk) is bool(options) for chunk in chunks)
        assert len({chunk["id"] for chunk in chunks}) == 1


@pytest.mark.parametrize("framing", ["chunked", "close", "length"])
def test_a_break_after_so_many_bytes(framing: Any) -> None:
    """The body ends where it is told to, in every framing."""
    raw = b"0123456789" * 10
    for count in (0, 1, 37, 100):
        with FakeProvider([Reply(raw=raw, framing=framing, break_after_bytes=count)]) as fake:
            host, port = fake.base_url.removeprefix("http://").removesuffix("/v1").split(":")
            body = json.dumps({"model": "gpt-4.1", "messages": [USER]}).encode()
            with socket.create_connection((host, int(port)), timeout=5) as client:
                client.sendall(
                    f"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer {fake.api_key}\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n".encode()
                    + body
                )
                got = b"".join(iter(lambda: client.recv(65_536), b""))
            payload = got.split(b"\r\n\r\n", 1)[1]
            assert raw[:count] in payload
            assert fake.requests[0].sent_bytes == count


def test_a_client_that_leaves_is_seen() -> None:
    """A hang-up is recorded while the fake waits."""
    with FakeProvider([Reply(delay_ms=60_000)]) as fake:
        host, port = fake.base_url.removeprefix("http://").removesuffix("/v1").split(":")
        body = json.dumps({"model": "gpt-4.1", "messages": [USER]}).encode()
        client = socket.create_connection((host, int(port)), timeout=5)
        client.sendall(
            f"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer {fake.api_key}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        (request,) = fake.wait_for_requests(1)
        assert not request.wait(0.1)
        client.close()
        assert request.wait(5)
        assert request.hung_up
    with pytest.raises(TimeoutError):
        fake.wait_for_requests(2, timeout_s=0.01)


def test_delays_and_faults() -> None:
    """An error status with its headers, an echoed key, a delay."""
    replies = [
        Reply(status=429, headers={"Retry-After": "3"}),
        Reply(status=401, echo_key=True),
        Reply(status=503, body="busy", content_type="text/plain"),
        Reply(text="late", delay_ms=200),
    ]
    with FakeProvider(replies) as fake:
        status, body, headers = post(fake)
        assert (status, headers["Retry-After"], json.loads(body)["error"]["code"]) == (
            429,
            "3",
            "rate_limit_exceeded",
        )
        assert fake.api_key.encode() in post(fake)[1]
        status, body, headers = post(fake)
        assert (status, body, headers["content-type"]) == (503, b"busy", "text/plain")
        started = time.monotonic()
        assert post(fake)[0] == 200
        assert time.monotonic() - started >= 0.2


def test_a_process_of_its_own() -> None:
    """For benches: the same fake in another process, from JSON data; it ends with its owner."""
    with FakeProviderProcess([{"text": "ok", "repeat": True}, {"stage": "plan", "text": "x"}]) as fake:
        assert post(fake)[0] == 200
        process = fake.process
    assert process is not None
    assert process.returncode == 0
    with pytest.raises(ValueError, match="unknown key in a reply: txet"):
        Reply.from_json({"txet": "x"})


def test_models_are_listed(fake: FakeProvider) -> None:
    """The list of models that it knows."""
    call = urllib.request.Request(
        f"{fake.base_url}/models", headers={"Authorization": f"Bearer {fake.api_key}"}
    )
    with urllib.request.urlopen(call, timeout=5) as answer:
        names = [model["id"] for model in json.load(answer)["data"]]
    assert "gpt-5.2" in names
