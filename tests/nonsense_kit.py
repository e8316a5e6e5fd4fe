"""Replies of a provider with nonsense in one field of one record, in each dialect's own form."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator
from typing import Any

from remit.testing import (
    AnthropicDialect,
    FakeToolCall,
    GeminiDialect,
    OllamaDialect,
    OllamaModel,
    OpenAIChatDialect,
    OpenAIResponsesDialect,
    OpenRouterDialect,
    Reply,
)

CASES: dict[str, tuple[str, str, Any]] = {
    "chat": ("openai-chat", "gpt-5.2", OpenAIChatDialect),
    "compatible": ("openai-compatible", "any", lambda: OpenAIChatDialect(models=None)),
    "responses": ("openai", "gpt-5.2", OpenAIResponsesDialect),
    "anthropic": ("anthropic", "claude-sonnet-4-6", AnthropicDialect),
    "google": ("google", "gemini-3.8-flash", GeminiDialect),
    "openrouter": ("openrouter", "vendor/any", OpenRouterDialect),
    "ollama": ("ollama", "tiny:1b", lambda: OllamaDialect(models={"tiny:1b": OllamaModel()})),
}
"""Name -> kind of provider, a model of it, and the dialect that imitates it."""
CALL = FakeToolCall(name="read_file", arguments='{"relative_path": "a.py"}')
GOOD = Reply(thinking="Let me look.", text="Looking.", tool_calls=(CALL,), chunk_count=1)
_GONE = object()
INFINITE, SURROGATE, NESTED = 1e999, "\ud800", "@nested@"
_WRITTEN = {
    "@deep@": b"[" * 100_000 + b"]" * 100_000,
    NESTED: b'{"a":' * 400 + b"1" + b"}" * 400,
    "@digits@": b"9" * 5_000,
    "@long@": b'"' + b"x" * 100_000 + b'"',
}
"""What `json.dumps` can't write or needn't: it stands in the body in place of these words."""
NONSENSE: tuple[Any, ...] = (
    _GONE, None, [], {}, "", "text", SURROGATE, "\x00", 7, -1, 2**70, True, INFINITE, float("nan"), 0.5,
    [None], ["x"], {"a": [1]}, [[[[[]]]]], {"": {"": {}}}, *_WRITTEN, ["a"] * 300, {"type": "x"}, "\u2028",
    "run_shell", "submit_work", -0.0,
)  # fmt: skip

Mutation = tuple[int, int, int]
"""Which record, which place in it, which nonsense; each counts around."""


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a record but its root."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in items for place in [(*path, key), *places(inner, (*path, key))]]


def mutated_body(whole: bytes, mutation: Mutation) -> tuple[bytes, tuple[Any, ...]]:
    """A reply with nonsense at one place of one of its records; returns the place as well."""
    lines = whole.decode().split("\n")
    records = [number for number, line in enumerate(lines) if "{" in line]
    number = records[mutation[0] % len(records)]
    head, brace, rest = lines[number].partition("{")
    text, path = _mutated(json.loads(brace + rest), mutation)
    lines[number] = head + text
    body = "\n".join(lines).encode("utf-8", "surrogatepass")
    for word, written in _WRITTEN.items():
        body = body.replace(f'"{word}"'.encode(), written)
    return body, path


def mutations_of(whole: bytes, fields: Container[str], nonsense: Iterable[Any]) -> Iterator[Mutation]:
    """Each of these in each field of these names, in every record of a reply."""
    wanted = [number for number, value in enumerate(NONSENSE) if any(value is one for one in nonsense)]
    records = [line for line in whole.decode().split("\n") if "{" in line]
    for number, line in enumerate(records):
        for where, path in enumerate(places(json.loads("{" + line.partition("{")[2]))):
            if path[-1] in fields:
                yield from ((number, where, what) for what in wanted)


def _mutated(record: dict[str, Any], mutation: Mutation) -> tuple[str, tuple[Any, ...]]:
    _, where, what = mutation
    value = json.loads(json.dumps(record))
    found = places(value)
    path = found[where % len(found)]
    holder = value
    for step in path[:-1]:
        holder = holder[step]
    nonsense = NONSENSE[what % len(NONSENSE)]
    if nonsense is _GONE:
        del holder[path[-1]]
    else:
        holder[path[-1]] = nonsense
    return json.dumps(value), path
