"""What is known of models by name: window, longest reply, whether and how they reason.

Facts as of 2026-11, from the vendors' model pages and public reports. Nothing here is needed for a
model to be used: what isn't known gets the stated defaults, and a pool member may say it itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

DEFAULT_WINDOW_TOKENS = 128_000
"""Assumed for a model that isn't known."""
DEFAULT_MAX_OUTPUT_TOKENS = 32_768
"""Assumed for a model that isn't known; sent as its bound when the model costs money."""

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The reasoning efforts that there are, least first."""
Reasoning = Literal["no", "always", "on_by_default", "off_by_default"]
_ALL_BUT_MINIMAL = frozenset({"none", "low", "medium", "high", "xhigh"})
_ALWAYS = frozenset({"low", "medium", "high", "xhigh", "max"})


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """Facts about one model family."""

    window_tokens: int
    max_output_tokens: int
    reasoning: Reasoning = "no"
    efforts: frozenset[str] | None = None
    """The reasoning efforts that it takes; None: not known."""
    chat_effort_with_tools: bool = True
    """Whether Chat Completions takes function tools together with a reasoning effort."""
    adaptive: bool = False
    """Claude: it decides itself how much to think; else it takes a budget of tokens."""
    takes_effort: bool = False
    """Claude: an effort may be sent."""
    takes_sampling: bool = True
    """Whether it takes temperature and its like at all."""
    takes_images: bool = True
    """Whether it may be shown pictures."""
    switch_off: str | None = None
    """Claude: the type of thinking that turns it off, where it is on by default."""
    takes_schema: bool = False
    """Claude: a reply may be held to a JSON schema."""
    thinks_by_level: bool = False
    """Gemini: it takes a level of thinking; else a budget of tokens."""


def _gpt5(
    window: int,
    reasoning: Reasoning,
    efforts: frozenset[str] | None,
    *,
    chat_effort_with_tools: bool = True,
) -> KnownModel:
    return KnownModel(
        window_tokens=window,
        max_output_tokens=128_000,
        reasoning=reasoning,
        efforts=efforts,
        chat_effort_with_tools=chat_effort_with_tools,
    )


_FIRST_GPT5 = _gpt5(400_000, "always", frozenset({"minimal", "low", "medium", "high"}))
_LATE = {"chat_effort_with_tools": False}
_CHAT_VARIANT = KnownModel(
    window_tokens=128_000, max_output_tokens=16_384, reasoning="always", efforts=frozenset({"medium"})
)
_PRO = frozenset({"medium", "high", "xhigh"})
_O_SERIES = KnownModel(
    window_tokens=200_000,
    max_output_tokens=100_000,
    reasoning="always",
    efforts=frozenset({"low", "medium", "high"}),
)

_OPENAI: dict[str, KnownModel] = {
    "gpt-4.1": KnownModel(window_tokens=1_000_000, max_output_tokens=32_768),
    "gpt-4o": KnownModel(window_tokens=128_000, max_output_tokens=16_384),
    "gpt-4": KnownModel(window_tokens=128_000, max_output_tokens=16_384),
    "gpt-3.5": KnownModel(window_tokens=16_385, max_output_tokens=4_096, takes_images=False),
    "gpt-oss": KnownModel(
        window_tokens=131_072, max_output_tokens=131_072, reasoning="always", takes_images=False
    ),
    "o1": _O_SERIES,
    "o3": _O_SERIES,
    "o4": _O_SERIES,
    "gpt-5": _FIRST_GPT5,
    "gpt-5-chat": KnownModel(window_tokens=128_000, max_output_tokens=16_384),
    "gpt-5-pro": KnownModel(
        window_tokens=400_000, max_output_tokens=272_000, reasoning="always", efforts=frozenset({"high"})
    ),
    "gpt-5-codex": _gpt5(400_000, "always", None),
    "gpt-5.1": _gpt5(400_000, "off_by_default", frozenset({"none", "low", "medium", "high"})),
    "gpt-5.1-chat": _CHAT_VARIANT,
    "gpt-5.1-codex": _gpt5(400_000, "always", None),
    "gpt-5.2": _gpt5(400_000, "off_by_default", _ALL_BUT_MINIMAL),
    "gpt-5.2-chat": _CHAT_VARIANT,
    "gpt-5.2-pro": _gpt5(400_000, "always", _PRO),
    "gpt-5.3": _gpt5(400_000, "off_by_default", _ALL_BUT_MINIMAL),
    "gpt-5.3-chat": _CHAT_VARIANT,
    "gpt-5.4": _gpt5(1_050_000, "off_by_default", _ALL_BUT_MINIMAL, **_LATE),
    "gpt-5.4-mini": _gpt5(400_000, "off_by_default", _ALL_BUT_MINIMAL, **_LATE),
    "gpt-5.4-nano": _gpt5(400_000, "off_by_default", _ALL_BUT_MINIMAL, **_LATE),
    "gpt-5.4-pro": _gpt5(1_050_000, "always", _PRO, **_LATE),
    "gpt-5.5": _gpt5(1_000_000, "on_by_default", _ALL_BUT_MINIMAL, **_LATE),
    "gpt-5.5-pro": _gpt5(1_000_000, "always", _PRO, **_LATE),
    "gpt-5.6": _gpt5(1_050_000, "on_by_default", _ALL_BUT_MINIMAL | {"max"}, **_LATE),
    "gpt-6": _gpt5(1_050_000, "on_by_default", _ALL_BUT_MINIMAL | {"max"}, **_LATE),
    "gpt-6-astra": _gpt5(1_050_000, "always", _ALWAYS, **_LATE),
    "gpt-6.1": _gpt5(1_050_000, "on_by_default", _ALL_BUT_MINIMAL | {"max"}, **_LATE),
    "gpt-6.1-sol": _gpt5(1_050_000, "always", _ALWAYS, **_LATE),
}
_CLAUDE_EFFORTS = frozenset({"low", "medium", "high", "xhigh", "max"})


def _claude5(reasoning: Reasoning, switch_off: str | None = None) -> KnownModel:
    """Of the 4.7 generation and later: thinks as it sees fit, and takes no sampling options."""
    return KnownModel(
        window_tokens=1_000_000,
        max_output_tokens=128_000,
        reasoning=reasoning,
        efforts=_CLAUDE_EFFORTS if reasoning == "always" else _CLAUDE_EFFORTS | {"none"},
        adaptive=True,
        takes_effort=True,
        takes_sampling=False,
        takes_schema=True,
        switch_off=switch_off,
    )


def _claude4(max_output: int, *, takes_effort: bool = False, takes_schema: bool = False) -> KnownModel:
    """Up to the 4.5 generation: thinks when given a budget."""
    return KnownModel(
        window_tokens=200_000,
        max_output_tokens=max_output,
        reasoning="off_by_default",
        efforts=frozenset({"none", "low", "medium", "high"}),
        takes_effort=takes_effort,
        takes_schema=takes_schema,
    )


_CLAUDE_46 = KnownModel(
    window_tokens=1_000_000,
    max_output_tokens=128_000,
    reasoning="off_by_default",
    efforts=frozenset({"none", "low", "medium", "high", "max"}),
    adaptive=True,
    takes_effort=True,
    takes_schema=True,
)
_CLAUDE: dict[str, KnownModel] = {
    "claude-3-": KnownModel(window_tokens=200_000, max_output_tokens=4_096),
    "claude-3-5": KnownModel(window_tokens=200_000, max_output_tokens=8_192),
    "claude-3-7": _claude4(64_000),
    "claude-opus-4-0": _claude4(32_000),
    "claude-opus-4-2": _claude4(32_000),  # with a date: claude-opus-4-20250514
    "claude-opus-4-1": _claude4(32_000, takes_schema=True),
    "claude-opus-4-5": _claude4(64_000, takes_effort=True, takes_schema=True),
    "claude-opus-4-6": _CLAUDE_46,
    "claude-opus-4-7": _claude5("off_by_default"),
    "claude-opus-4-8": _claude5("off_by_default"),
    "claude-opus-5": _claude5("on_by_default", "disabled"),
    "claude-opus-5-5": _claude5("always"),
    "claude-sonnet-4-0": _claude4(64_000),
    "claude-sonnet-4-2": _claude4(64_000),
    "claude-sonnet-4-5": _claude4(64_000, takes_schema=True),
    "claude-sonnet-4-6": _CLAUDE_46,
    "claude-sonnet-5": _claude5("on_by_default", "disabled"),
    "claude-sonnet-5-5": _claude5("on_by_default", "between_tools"),
    "claude-haiku-4-5": _claude4(64_000, takes_schema=True),
    "claude-haiku-5-5": _claude5("on_by_default", "disabled"),
    "claude-fable-5": _claude5("always"),
    "claude-mythos-5": _claude5("always"),
}
_GEMINI_EFFORTS = frozenset({"low", "medium", "high"})


def _gemini(reasoning: Reasoning, efforts: frozenset[str], *, by_level: bool = True) -> KnownModel:
    return KnownModel(
        window_tokens=1_048_576,
        max_output_tokens=65_536,
        reasoning=reasoning,
        efforts=efforts,
        thinks_by_level=by_level,
    )


_OLD_GEMINI = KnownModel(window_tokens=1_000_000, max_output_tokens=8_192)
_GEMINI: dict[str, KnownModel] = {
    "gemini-1.5": _OLD_GEMINI,
    "gemini-2.0": _OLD_GEMINI,
    "gemini-2.5-pro": _gemini("always", _GEMINI_EFFORTS | {"minimal"}, by_level=False),
    "gemini-2.5-flash": _gemini("on_by_default", _GEMINI_EFFORTS | {"none", "minimal"}, by_level=False),
    "gemini-2.5-flash-lite": _gemini("off_by_default", _GEMINI_EFFORTS | {"none", "minimal"}, by_level=False),
    "gemini-3-pro": _gemini("always", frozenset({"low", "high"})),
    "gemini-3-flash": _gemini("always", _GEMINI_EFFORTS | {"minimal"}),
    "gemini-3.1-pro": _gemini("always", _GEMINI_EFFORTS),
    "gemini-3.1-flash": _gemini("always", _GEMINI_EFFORTS | {"minimal"}),
    "gemini-3.5": _gemini("always", _GEMINI_EFFORTS | {"minimal"}),
    "gemini-3.7": _gemini("always", _GEMINI_EFFORTS),
    "gemini-3.8": _gemini("always", _GEMINI_EFFORTS),
    "gemini-4": _gemini("always", _GEMINI_EFFORTS),
}
_OTHERS: dict[str, KnownModel] = {
    "deepseek-chat": KnownModel(window_tokens=64_000, max_output_tokens=8_192, takes_images=False),
    "deepseek-reasoner": KnownModel(window_tokens=64_000, max_output_tokens=65_536, takes_images=False),
    "kimi-k2": KnownModel(window_tokens=131_072, max_output_tokens=131_072),
}


@lru_cache(maxsize=256)
def find_model(model: str) -> KnownModel | None:
    """What is known of a model, by its name without a vendor's prefix (`vendor/model`)."""
    found = find_openai_model(model) or find_claude(model) or find_gemini(model)
    return found or _longest_prefix(_OTHERS, _bare(model))


def find_claude(model: str) -> KnownModel | None:
    """The same for Anthropic's models only."""
    return _longest_prefix(_CLAUDE, _bare(model))


def find_gemini(model: str) -> KnownModel | None:
    """The same for Google's models only."""
    return _longest_prefix(_GEMINI, _bare(model))


@lru_cache(maxsize=256)
def find_openai_model(model: str) -> KnownModel | None:
    """The same for OpenAI's own models only."""
    return _longest_prefix(_OPENAI, _bare(model))


def known_max_output(model: str) -> int:
    """The longest reply of a model, in tokens; the stated default where it isn't known."""
    found = find_model(model)
    return DEFAULT_MAX_OUTPUT_TOKENS if found is None else found.max_output_tokens


def takes_images(model: str, stated: bool | None) -> bool:
    """Whether a model takes pictures: what its pool says, else what is known; the unknown ones do."""
    found = find_model(model)
    return stated if stated is not None else found is None or found.takes_images


def known_window(model: str) -> int:
    """The context window of a model, in tokens; the stated default where it isn't known."""
    found = find_model(model)
    return DEFAULT_WINDOW_TOKENS if found is None else found.window_tokens


def find_window(model: str) -> int | None:
    """The context window of a model, in tokens; None where it isn't known."""
    found = find_model(model)
    return None if found is None else found.window_tokens


def known_efforts(model: str) -> tuple[str, ...] | None:
    """The reasoning efforts that a model takes, least first; empty: it doesn't reason; None: not known."""
    found = find_model(model)
    if found is None:
        return None
    if found.reasoning == "no":
        return ()
    return None if found.efforts is None else tuple(sorted(found.efforts, key=EFFORTS.index))


def _bare(model: str) -> str:
    """Without a vendor's prefix: `vendor/model`, and `region.anthropic.model` of Bedrock."""
    name = model.rpartition("/")[2].lower()
    return name.rpartition("anthropic.")[2]


def _longest_prefix(table: dict[str, KnownModel], name: str) -> KnownModel | None:
    fitting = [prefix for prefix in table if name.startswith(prefix)]
    return table[max(fitting, key=len)] if fitting else None
