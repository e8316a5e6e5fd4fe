"""The options that a stage may give to a model, and which model takes which.

An option that a member would drop, or its provider refuse, is a `ConfigError` at start: nobody is to
believe for weeks that a temperature was set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from remit.errors import ConfigError
from remit.models._catalog import EFFORTS, KnownModel, find_claude, find_gemini, find_openai_model

OPENAI_KINDS = frozenset({"openai", "openai-chat", "azure"})
"""Kinds behind which OpenAI's own models stand, in the words that those take."""
GOOGLE_KINDS = frozenset({"google", "vertex"})
SAMPLING = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
_DEFAULT_EFFORT = "medium"


def check_options(*, kind: str, model: str, options: Mapping[str, Any]) -> None:
    """Refuse options that this provider kind and model wouldn't honour.

    Raises:
        ConfigError: Names the option, and says what is taken instead.
    """
    checks = {**_CHECKS, **_CHECKS_OF_KIND.get(kind, {})}
    for name, value in options.items():
        check = checks.get(name)
        if check is None:
            known = ", ".join(sorted(name for name, check in checks.items() if check is not None))
            raise ConfigError(_unknown(name, kind, model, known, taken_elsewhere=name in checks), option=name)
        if value is None:
            continue
        problem = check(value)
        if problem is not None:
            raise ConfigError(f"option `{name}` for {model} must be {problem}, not {value!r}", option=name)
    if kind == "anthropic":
        _check_claude(model, find_claude(model), options)
        return
    if kind == "bedrock":
        _check_bedrock(model, options)
        return
    if kind in GOOGLE_KINDS:
        _check_gemini(model, find_gemini(model), options)
        return
    known_model = find_openai_model(model) if kind in OPENAI_KINDS else None
    if known_model is not None:
        _check_reasoning(model, known_model, options)
        _check_length(model, known_model, options)


def _unknown(name: str, kind: str, model: str, known: str, *, taken_elsewhere: bool) -> str:
    if taken_elsewhere:
        hint = " (kind `openai-chat` does)" if kind == "openai" else ""
        return f"{model} takes no `{name}`{hint}; there are {known}"
    return f"unknown option `{name}` for {model}; there are {known}"


def _check_claude(model: str, known: KnownModel | None, options: Mapping[str, Any]) -> None:
    sampled = _given(options, SAMPLING)
    if len(sampled) > 1:
        raise ConfigError(f"{model} takes `temperature` or `top_p`, not both", option=sampled[1])
    if known is None:
        return
    if sampled and not known.takes_sampling:
        raise ConfigError(f"{model} takes no `{sampled[0]}`", option=sampled[0])
    _check_reasoning(model, known, options)
    _check_length(model, known, options)


def _check_bedrock(model: str, options: Mapping[str, Any]) -> None:
    known = find_claude(model)
    if known is not None:
        _check_claude(model, known, options)
    elif options.get("reasoning_effort") is not None:
        raise ConfigError(f"{model} takes no `reasoning_effort` by Bedrock", option="reasoning_effort")


def _check_gemini(model: str, known: KnownModel | None, options: Mapping[str, Any]) -> None:
    if known is not None:
        _check_effort(model, known, options)
        _check_length(model, known, options)


def default_effort(*, model: str, options: Mapping[str, Any], with_tools: bool) -> str | None:
    """The reasoning effort to send where the stage gave none; None: the provider's own default.

    `medium` where a model doesn't reason unless told to (gpt-5.1 to 5.4), unless sampling options say
    that it isn't to. `none` where a model reasons by default but Chat Completions takes no tools with
    that (gpt-5.5 and later); gpt-5.4 is left at its own default, off, for the same reason.
    """
    known = find_openai_model(model)
    if known is None or options.get("reasoning_effort") is not None:
        return None
    if with_tools and not known.chat_effort_with_tools:
        return "none" if known.reasoning == "on_by_default" else None
    if known.reasoning == "off_by_default" and not _given(options, SAMPLING):
        return _DEFAULT_EFFORT
    return None


def _check_effort(model: str, known: KnownModel, options: Mapping[str, Any]) -> None:
    effort = options.get("reasoning_effort")
    if effort is not None and known.reasoning == "no":
        raise ConfigError(
            f"{model} doesn't reason, so it takes no `reasoning_effort`", option="reasoning_effort"
        )
    if effort is not None and known.efforts is not None and effort not in known.efforts:
        taken = ", ".join(sorted(known.efforts, key=EFFORTS.index))
        raise ConfigError(
            f"{model} takes `reasoning_effort` {taken}, not {effort!r}", option="reasoning_effort"
        )


def _check_reasoning(model: str, known: KnownModel, options: Mapping[str, Any]) -> None:
    _check_effort(model, known, options)
    effort = options.get("reasoning_effort")
    reasons = {
        "no": False,
        "always": True,
        "on_by_default": effort != "none",
        "off_by_default": effort not in (None, "none"),
    }[known.reasoning]
    for name in _given(options, SAMPLING) if reasons else ():
        hint = "" if known.reasoning == "always" else '; set `reasoning_effort = "none"` to use it'
        raise ConfigError(f"{model} takes no `{name}` while it reasons{hint}", option=name)


def _check_length(model: str, known: KnownModel, options: Mapping[str, Any]) -> None:
    asked = options.get("max_output_tokens")
    if asked is not None and asked > known.max_output_tokens:
        most = known.max_output_tokens
        raise ConfigError(
            f"{model} gives at most {most} output tokens, not {asked}", option="max_output_tokens"
        )


def _given(options: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if options.get(name) is not None)


def _number(low: float, high: float) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
        return None if fits else f"a number from {low:g} to {high:g}"

    return check


def _whole(low: int | None) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        fits = isinstance(value, int) and not isinstance(value, bool) and (low is None or value >= low)
        return None if fits else "a whole number" if low is None else f"a whole number from {low}"

    return check


def _word(*words: str) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        return None if value in words else f"one of {', '.join(words)}"

    return check


def _switch(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _stop_texts(value: Any) -> str | None:
    items: list[Any] = list(value) if isinstance(value, (list, tuple)) else [value]  # pyright: ignore[reportUnknownArgumentType] - a caller's JSON
    fits = 1 <= len(items) <= 4 and all(isinstance(item, str) and item for item in items)
    return None if fits else "a text, or one to four of them"


_CHECKS: dict[str, Callable[[Any], str | None]] = {
    "temperature": _number(0, 2),
    "top_p": _number(0, 1),
    "presence_penalty": _number(-2, 2),
    "frequency_penalty": _number(-2, 2),
    "seed": _whole(None),
    "stop": _stop_texts,
    "max_output_tokens": _whole(1),
    "reasoning_effort": _word(*EFFORTS),
    "verbosity": _word("low", "medium", "high"),
    "parallel_tool_calls": _switch,
    "service_tier": _word("auto", "default", "flex", "priority"),
}
_OF_GEMINI: dict[str, Callable[[Any], str | None] | None] = {
    "verbosity": None,
    "parallel_tool_calls": None,
    "service_tier": None,
}
_CHECKS_OF_KIND: dict[str, dict[str, Callable[[Any], str | None] | None]] = {
    "openai": {"presence_penalty": None, "frequency_penalty": None, "seed": None, "stop": None},
    "anthropic": {
        "temperature": _number(0, 1),
        "presence_penalty": None,
        "frequency_penalty": None,
        "seed": None,
        "verbosity": None,
        "reasoning_effort": _word("none", "low", "medium", "high", "xhigh", "max"),
        "service_tier": _word("auto", "default"),
    },
    "ollama": {
        "verbosity": None,
        "parallel_tool_calls": None,
        "service_tier": None,
        "reasoning_effort": _word("none", "low", "medium", "high"),
    },
    "openrouter": {"service_tier": None},
    "bedrock": {
        "temperature": _number(0, 1),
        "presence_penalty": None,
        "frequency_penalty": None,
        "seed": None,
        "verbosity": None,
        "parallel_tool_calls": None,
        "service_tier": None,
        "reasoning_effort": _word("none", "low", "medium", "high", "xhigh", "max"),
    },
    "google": _OF_GEMINI,
    "vertex": _OF_GEMINI,
}
"""Where a kind takes an option otherwise; None: not at all."""
