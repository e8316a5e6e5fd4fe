"""Options, settings, what is known of models, and the estimate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from model_kit import PROMPT, READ_TOOL, JumpingClock
from remit.contract import ToolSpec
from remit.errors import ConfigError
from remit.models import (
    DEFAULT_MAX_OUTPUT_TOKENS,
    DEFAULT_WINDOW_TOKENS,
    AssistantMessage,
    PoolMember,
    PoolSettings,
    Providers,
    ProviderSettings,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolResultsMessage,
    UserMessage,
    check_options,
    estimate_input_tokens,
    estimate_text_tokens,
    known_max_output,
    known_window,
)
from remit.models._options import default_effort
from remit.primitives import Secret, SystemIds

KEY = Secret("sk-0123456789")


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("gpt-4.1", {"temperature": 0.2, "top_p": 0.9, "seed": 7, "stop": ["a", "b"]}),
        ("gpt-5.2", {"reasoning_effort": "high", "verbosity": "low", "max_output_tokens": 128_000}),
        ("gpt-5.2", {"temperature": 0.5}),
        ("gpt-5.2", {"temperature": 0.5, "reasoning_effort": "none"}),
        ("gpt-5.6-sol", {"temperature": 0.5, "reasoning_effort": "none"}),
        ("gpt-5", {"temperature": None, "reasoning_effort": "minimal"}),
        ("o4-mini", {"reasoning_effort": "low"}),
        ("something-new", {"temperature": 1.0, "reasoning_effort": "max"}),
    ],
)
def test_options_that_are_honoured(model: str, options: dict[str, Any]) -> None:
    """What is accepted is sent."""
    check_options(kind="openai-chat", model=model, options=options)


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("gpt-4.1", {"temprature": 0.2}, "unknown option `temprature`"),
        ("gpt-4.1", {"temperature": 2.1}, "from 0 to 2"),
        ("gpt-4.1", {"temperature": "0.2"}, "a number"),
        ("gpt-4.1", {"temperature": float("nan")}, "a number"),
        ("gpt-4.1", {"temperature": True}, "a number"),
        ("gpt-4.1", {"seed": 1.5}, "a whole number"),
        ("gpt-4.1", {"max_output_tokens": 0}, "a whole number from 1"),
        ("gpt-4.1", {"max_output_tokens": 40_000}, "at most 32768"),
        ("gpt-4.1", {"reasoning_effort": "high"}, "doesn't reason"),
        ("gpt-4.1", {"stop": ["a"] * 5}, "one to four"),
        ("gpt-4.1", {"parallel_tool_calls": "no"}, "true or false"),
        ("gpt-5", {"temperature": 0.2}, "takes no `temperature` while it reasons"),
        ("o4-mini", {"top_p": 0.2}, "takes no `top_p`"),
        ("gpt-5.2", {"temperature": 0.2, "reasoning_effort": "high"}, 'set `reasoning_effort = "none"`'),
        ("gpt-5.6-sol", {"temperature": 0.2}, 'set `reasoning_effort = "none"`'),
        ("gpt-5.1", {"reasoning_effort": "minimal"}, "none, low, medium, high"),
        ("gpt-5.1", {"reasoning_effort": "huge"}, "one of none, minimal"),
    ],
)
def test_options_that_would_be_dropped(model: str, options: dict[str, Any], words: str) -> None:
    """What a member would drop, or its provider refuse, is refused at start, by name."""
    with pytest.raises(ConfigError, match=r"option|takes|gives|reason") as caught:
        check_options(kind="openai-chat", model=model, options=options)
    assert words in str(caught.value)


def test_a_compatible_server_may_serve_anything() -> None:
    """A name alone says nothing of a model on somebody else's server."""
    check_options(kind="openai-compatible", model="gpt-5", options={"temperature": 0.2})
    with pytest.raises(ConfigError, match="unknown option"):
        check_options(kind="openai-compatible", model="gpt-5", options={"top_k": 3})


@pytest.mark.parametrize(
    ("model", "options", "with_tools", "effort"),
    [
        ("gpt-5.2", {}, True, "medium"),
        ("gpt-5.1", {}, False, "medium"),
        ("gpt-5.2", {"temperature": 0.1}, True, None),
        ("gpt-5.2", {"reasoning_effort": "low"}, True, None),
        ("gpt-5.4", {}, True, None),
        ("gpt-5.4", {}, False, "medium"),
        ("gpt-5.6-sol", {}, True, "none"),
        ("gpt-5.6-sol", {}, False, None),
        ("gpt-5", {}, True, None),
        ("gpt-4.1", {}, True, None),
        ("unknown", {}, True, None),
    ],
)
def test_effort_where_the_default_is_off(
    model: str, options: dict[str, Any], with_tools: bool, effort: str | None
) -> None:
    """A model that doesn't reason unless told to is told to; one that can't beside tools is told not to."""
    assert default_effort(model=model, options=options, with_tools=with_tools) == effort


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"kind": "opnai", "api_key": KEY}, "unknown provider kind"),
        ({"kind": "openai"}, "needs a key"),
        ({"kind": "openai-compatible"}, "needs `base_url`"),
        ({"kind": "anthropic"}, "needs a key"),
        ({"kind": "scripted"}, "needs `script`"),
        ({"kind": "openai", "api_key": KEY, "script": Path("x")}, "`script` is for"),
        ({"kind": "openai", "api_key": KEY, "extra_body": {"a": 1}}, "`extra_body` is for"),
        ({"kind": "openai", "api_key": KEY, "base_url": "ftp://x"}, "http or https"),
        ({"kind": "openai", "api_key": KEY, "base_url": "localhost:80"}, "http or https"),
        ({"kind": "openai", "api_key": KEY, "base_url": "http://u:p@h/v1"}, "user or password"),
        ({"kind": "openai", "api_key": KEY, "base_url": "http://h/v1?key=1"}, "query"),
        ({"kind": "openai", "api_key": KEY, "idle_timeout_ms": 0}, "greater than 0"),
        ({"kind": "openai", "api_key": KEY, "timeout": 3}, "Extra inputs"),
        ({"kind": "openai", "api_key": KEY, "name": "a:b"}, "pattern"),
    ],
)
def test_settings_that_cannot_work(values: dict[str, Any], words: str) -> None:
    """A wrong setting is refused where it stands, in words."""
    with pytest.raises(ValidationError) as caught:
        ProviderSettings.model_validate({"name": "x", **values})
    assert words in str(caught.value)


def test_settings_do_not_print_secrets() -> None:
    """R79: neither key nor headers show."""
    settings = ProviderSettings(name="x", kind="openai", api_key=KEY, headers={"X-Key": Secret("abcdefgh")})
    assert "0123456789" not in repr(settings)
    assert "abcdefgh" not in repr(settings)
    assert "0123456789" not in str(settings.model_dump())


def test_pool_settings() -> None:
    """A pool names each model once, and says how a member uses tools."""
    member = PoolMember(model="openai:org/gpt-5.2:beta")
    assert (member.provider_name, member.model_name) == ("openai", "org/gpt-5.2:beta")
    with pytest.raises(ValidationError, match="names a model once"):
        PoolSettings(name="p", members=(member, member))
    with pytest.raises(ValidationError, match="tool_mode"):
        PoolMember(model="a:b", tool_mode="xml")  # pyright: ignore[reportArgumentType] - what is refused
    for model in ("gpt-5.2", ":gpt", "a:", "a b:c"):
        with pytest.raises(ValidationError):
            PoolMember(model=model)


def test_known_models() -> None:
    """R24: the longest reply is known, or the stated default."""
    assert known_max_output("gpt-5.2-2026-01-01") == 128_000
    assert known_max_output("openai/gpt-4o-mini") == 16_384
    assert known_window("gpt-5.4-mini") == 400_000
    assert known_window("gpt-5.4") == 1_050_000
    assert known_max_output("nobody-knows") == DEFAULT_MAX_OUTPUT_TOKENS
    assert known_window("nobody-knows") == DEFAULT_WINDOW_TOKENS


@pytest.mark.parametrize(
    ("text", "real_tokens"),
    [
        ("The quick brown fox jumps over the lazy dog. " * 20, 200),
        ("def open_checkout(self, run_id: str) -> Checkout:\n    return self._open(run_id)\n" * 20, 440),
        ('{"relative_path": "src/a.py", "limit_lines": 40}\n' * 20, 320),
        ("人工智能正在改变世界。" * 20, 200),
        ("Привет, как дела сегодня? " * 20, 160),
        ("😀" * 50, 100),
    ],
)
def test_the_estimate_errs_upwards(text: str, real_tokens: int) -> None:
    """R24: reservations cover prose, code, JSON and other scripts; the counts are those of o200k, rounded."""
    assert estimate_text_tokens(text) >= real_tokens


@pytest.mark.parametrize(
    ("text", "real_tokens"),
    [("def f(x: int) -> int:\n    return x + 1\n" * 20, 320), ("9f3c1a2b7e4d5f60" * 20, 200)],
)
def test_the_estimate_of_dense_text_keeps_its_margin(text: str, real_tokens: int) -> None:
    """R24: what is denser than the estimate assumes is underestimated by half at most."""
    assert real_tokens / 2 <= estimate_text_tokens(text) < real_tokens * 1.5


def test_the_estimate_counts_everything() -> None:
    """R24: messages, images, calls, results, notes and tools all count."""
    plain = estimate_input_tokens(PROMPT)
    assert estimate_input_tokens(PROMPT, (READ_TOOL,)) > plain
    image = UserMessage(text="", images=("data:image/png;base64,AAAA",))
    assert estimate_input_tokens((*PROMPT, image)) > plain + 1_000
    results = ToolResultsMessage(
        results=(ToolResult(tool_call_id="c", name="n", content="x" * 300),), note="y" * 300
    )
    assert estimate_input_tokens((*PROMPT, results)) >= plain + 200
    reply = AssistantMessage(blocks=(TextBlock(text="z" * 300),), model="m")
    assert estimate_input_tokens((*PROMPT, reply)) >= plain + 100
    wide = ToolSpec(name="t", description="d" * 300, parameters={"x": "y" * 300}, effect="read")
    assert estimate_input_tokens((), (wide,)) >= 200


CLAUDE = "claude-opus-4-7"


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (CLAUDE, {"temperature": 0.5}, "takes no `temperature`"),
        (CLAUDE, {"seed": 1}, "takes no `seed`"),
        (CLAUDE, {"presence_penalty": 1}, "takes no `presence_penalty`"),
        (CLAUDE, {"frequency_penalty": 1}, "takes no `frequency_penalty`"),
        (CLAUDE, {"verbosity": "low"}, "takes no `verbosity`"),
        (CLAUDE, {"service_tier": "flex"}, "one of auto, default"),
        (CLAUDE, {"reasoning_effort": "minimal"}, "one of none, low"),
        (CLAUDE, {"max_output_tokens": 200_000}, "at most 128000"),
        (CLAUDE, {"colour": "red"}, "unknown option"),
        ("claude-opus-5-5", {"reasoning_effort": "none"}, "takes `reasoning_effort` low, medium"),
        ("claude-sonnet-4-6", {"reasoning_effort": "xhigh"}, "not 'xhigh'"),
        ("claude-sonnet-4-6", {"temperature": 0.5, "reasoning_effort": "low"}, "while it reasons"),
        ("claude-sonnet-4-6", {"temperature": 0.5, "top_p": 0.9}, "not both"),
        ("claude-sonnet-4-6", {"temperature": 1.5}, "from 0 to 1"),
        ("claude-3-5-haiku", {"reasoning_effort": "low"}, "doesn't reason"),
    ],
)
def test_what_claude_would_drop_is_refused(model: str, options: dict[str, Any], words: str) -> None:
    """An option that the API refuses, or that a library would drop without a word, is refused at start."""
    with pytest.raises(ConfigError, match=words):
        check_options(kind="anthropic", model=model, options=options)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (CLAUDE, {"reasoning_effort": "max", "stop": ["a"], "parallel_tool_calls": False}),
        ("claude-sonnet-4-6", {"temperature": 0.5}),
        ("claude-haiku-4-5-20251001", {"reasoning_effort": "none", "top_p": 0.5, "service_tier": "default"}),
        ("claude-of-next-year", {"reasoning_effort": "max", "max_output_tokens": 10**6}),
    ],
)
def test_what_claude_takes(model: str, options: dict[str, Any]) -> None:
    """What a model takes passes; of one that isn't known, the form alone is checked."""
    check_options(kind="anthropic", model=model, options=options)


@pytest.mark.parametrize("kind", ["anthropic", "google"])
def test_an_sdk_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A provider whose extra is missing says which one to install, at start."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    settings = ProviderSettings(name="x", kind=kind, api_key=KEY)
    with pytest.raises(ConfigError, match=rf"pip install 'remit\[{kind}\]'") as caught:
        Providers(clock=JumpingClock(), ids=SystemIds()).handle(settings)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("kind", "model", "options"),
    [
        ("anthropic", "claude-opus-4-7", {"temperature": 0.5}),
        ("google", "gemini-3-pro-preview", {"reasoning_effort": "medium"}),
        ("google", "gemini-2.0-flash", {"reasoning_effort": "low"}),
        ("google", "gemini-3.8-flash", {"verbosity": "low"}),
        ("vertex", "gemini-2.5-pro", {"reasoning_effort": "none"}),
        ("ollama", "tiny", {"reasoning_effort": "xhigh"}),
        ("ollama", "tiny", {"verbosity": "low"}),
        ("azure", "gpt-4.1", {"reasoning_effort": "low"}),
        ("openrouter", "openai/gpt-5.2", {"service_tier": "flex"}),
    ],
)
def test_what_a_member_would_drop(kind: str, model: str, options: dict[str, Any]) -> None:
    """An option that the provider would refuse or drop is refused at start, by its name."""
    with pytest.raises(ConfigError, match=next(iter(options))):
        check_options(kind=kind, model=model, options=options)


@pytest.mark.parametrize("option", ["seed", "stop", "presence_penalty", "frequency_penalty"])
def test_what_responses_would_drop_is_refused(option: str) -> None:
    """Responses has no such parameter: said at start, with the kind that does."""
    with pytest.raises(ConfigError, match=f"takes no `{option}` \\(kind `openai-chat` does\\)"):
        check_options(kind="openai", model="gpt-4.1", options={option: 1})


def test_sealed_reasoning_is_estimated() -> None:
    """A thought that is handed out sealed still costs input: its seal is counted."""
    item = {"type": "reasoning", "encrypted_content": "x" * 4_000}
    for block in (
        ThinkingBlock(text="", signature="s" * 4_000),
        ThinkingBlock(text="", details={"item": item}),
    ):
        message = AssistantMessage(blocks=(block,), model="a:b")
        assert estimate_input_tokens([message]) >= 1_000
