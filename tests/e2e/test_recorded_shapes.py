"""Requests in the shape in which well-known clients send them, each answered as that client expects.

The shapes (fields, roles, types of parts and tools, headers) are those of November 2026; the words are ours.
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from served_kit import TITLE, Served, chunks_of, serve

LONG = "You are an agent that works in a terminal. " * 900
"""Some 40 KB, as agents send."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with serve(tmp_path_factory.mktemp("shapes")) as served:
        yield served


def function(name: str, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "additionalProperties": False}
    return {"type": "function", "name": name, "description": "Does it.", "parameters": schema, **more}


CODEX: dict[str, Any] = {
    "model": "agent",
    "stream": True,
    "store": False,
    "input": [
        {"type": "message", "id": "msg_1", "role": "developer",
         "content": [{"type": "input_text", "text": LONG}]},
        {"type": "message", "id": "msg_2", "role": "developer",
         "content": [{"type": "input_text", "text": "<a>"}, {"type": "input_text", "text": "<b>"}]},
        {"type": "message", "id": "msg_3", "role": "user",
         "content": [{"type": "input_text", "text": "<environment><cwd>/app</cwd></environment>"}]},
        {"type": "message", "id": "msg_4", "role": "user",
         "content": [{"type": "input_text", "text": "NAME it."}]},
    ],
    "tools": [
        *(function(name, strict=False) for name in ("exec_command", "write_stdin", "update_plan", "view")),
        {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark"}},
        {"type": "web_search", "external_web_access": False},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"summary": "auto"},
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "01a22e55-b834-70b0-8e03-14fe65a95d31",
    "client_metadata": {"session_id": "01a22e55", "turn": "{\"a\":1}"},
}  # fmt: skip

CLAUDE_CODE: dict[str, Any] = {
    "model": "agent",
    "max_tokens": 32_000,
    "stream": True,
    "messages": [
        {"role": "user", "content": [
            {"type": "text", "text": "<reminder>"},
            {"type": "text", "text": "NAME it.", "cache_control": {"type": "ephemeral"}}]},
        {"role": "system", "content": "Kinds of agents: one."},
    ],
    "system": [
        {"type": "text", "text": "billing: x"},
        {"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}},
    ],
    "tools": [{"name": f"Tool{number}", "description": "Does it.", "input_schema": {"type": "object"}}
              for number in range(24)],
    "metadata": {"user_id": "{\"device_id\":\"d\",\"account_uuid\":\"\",\"session_id\":\"s\"}"},
    "thinking": {"type": "adaptive"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "high"},
}  # fmt: skip

OPENCODE: dict[str, Any] = {
    "model": "agent",
    "max_tokens": 32_000,
    "temperature": 0.55,
    "top_p": 1,
    "messages": [
        {"role": "system", "content": LONG},
        {"role": "user", "content": [{"type": "text", "text": "NAME it."}]},
    ],
    "tools": [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}],
    "tool_choice": "auto",
    "stream": True,
    "stream_options": {"include_usage": True},
    "reasoningEffort": "low",
}

OPEN_WEBUI: dict[str, Any] = {
    "model": "answer",
    "stream": True,
    "stream_options": {"include_usage": True},
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": '<details type="reasoning">Planning.</details>\nHello!'},
        {"role": "user", "content": "NAME it."},
    ],
    "user": {"name": "Me", "id": "1", "email": "me@example.invalid", "role": "admin"},
    "metadata": {"variables": {"{{USER_NAME}}": "Me"}},
}

LIBRECHAT: dict[str, Any] = {
    "model": "answer",
    "user": "65f0c0ffee",
    "messages": [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": [{"type": "text", "text": "Hello!"}]},
        {"role": "user", "content": [{"type": "text", "text": "NAME it."}], "name": "me"},
    ],
    "stream": True,
    "n": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "stop": None,
}

VERCEL: dict[str, Any] = {
    "model": "answer",
    "input": [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "NAME it."}]},
    ],
    "stream": True,
    "store": True,
    "text": {"verbosity": "medium"},
    "truncation": "auto",
}

SHAPES: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "Codex CLI": ("/v1/responses", CODEX, {
        "session-id": "01a22e55-b834-70b0-8e03-14fe65a95d31", "originator": "codex_exec",
        "accept": "text/event-stream", "accept-encoding": "zstd,gzip"}),
    "Claude Code": ("/v1/messages?beta=true", CLAUDE_CODE, {
        "anthropic-version": "2023-06-01", "anthropic-beta": "claude-code-20250219,context-1m-2025-08-07",
        "x-app": "cli", "x-stainless-retry-count": "0", "anthropic-dangerous-direct-browser-access": "true"}),
    "opencode": ("/v1/chat/completions", OPENCODE, {}),
    "Open WebUI": ("/v1/chat/completions", OPEN_WEBUI, {
        "X-OpenWebUI-User-Id": "1", "X-OpenWebUI-Chat-Id": "3f0c6a2e-7f5f-4f6e-9d0c-0123456789ab"}),
    "LibreChat": ("/v1/chat/completions", LIBRECHAT, {}),
    "Vercel AI SDK": ("/v1/responses", VERCEL, {"user-agent": "ai/6 ai-sdk/openai/3"}),
}  # fmt: skip


def text_of(events: list[Any]) -> str:
    """The answer's text in a stream of whichever dialect."""
    found: list[str] = []
    for event in events:
        if event == "[DONE]":
            continue
        if event.get("type") == "response.output_text.delta":
            found.append(event["delta"])
        elif event.get("type") == "content_block_delta":
            found.append(event["delta"].get("text", ""))
        found += [choice["delta"].get("content", "") for choice in event.get("choices", ())]
    return "".join(found)


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_of_well_known_clients(served: Served, name: str) -> None:
    """R72, R76: what each sends is taken, and its stream carries the answer."""
    path, body, headers = SHAPES[name]
    with served.client(**headers) as client:
        answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert text_of(chunks_of(answer.text)) == TITLE


def test_a_title_is_asked_for_beside_the_answer(served: Served) -> None:
    """Agents ask for a title at the same time, without tools and without a stream."""
    title = {
        "model": "answer",
        "max_tokens": 80,
        "messages": [
            {"role": "system", "content": "You name chats in at most five words."},
            {"role": "user", "content": "NAME it."},
        ],
    }
    with served.client() as client, ThreadPoolExecutor(2) as pool:
        agent = pool.submit(client.post, "/v1/chat/completions", json=OPENCODE)
        named = pool.submit(client.post, "/v1/chat/completions", json=title)
        assert text_of(chunks_of(agent.result(60).text)) == TITLE
        assert named.result(60).json()["choices"][0]["message"]["content"] == TITLE


def test_tools_of_agents_are_refused_where_the_binding_doesnt_ignore_them(served: Served) -> None:
    """The first try of a new user gets an error that says what to set."""
    for name in ("Codex CLI", "Claude Code", "opencode"):
        path, body, headers = SHAPES[name]
        with served.client(**headers) as client:
            answer = client.post(path, json={**body, "model": "reviewed"})
        assert answer.status_code == 400, name
        assert 'client_tools = "ignore"' in answer.json()["error"]["message"], name
