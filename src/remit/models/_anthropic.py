"""Anthropic Messages through the official SDK."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any

from remit.models._anthropic_exchange import AnthropicExchange
from remit.models._attempt import AttemptCall, Broken, Outcome
from remit.models._catalog import find_claude, known_max_output
from remit.models._extras import need_extra
from remit.models._messages import TextBlock, ThinkingBlock
from remit.models._offered import OfferedTools
from remit.models._options import SAMPLING
from remit.models._port import Delta
from remit.models._sdk_adapter import LibraryReply, SdkAdapter, as_adapted, clean_block, judge
from remit.models._settings import ProviderSettings
from remit.models._strict_schema import strict_schema
from remit.primitives import Clock, Ids, clean_text

if TYPE_CHECKING:
    from remit.models._anthropic_sdk import AnthropicSdk

_BUDGETS = {"low": 4_096, "medium": 10_000, "high": 16_384}
"""Thinking tokens for an effort, of models that take a budget."""
_LEAST_BUDGET = 1_024
_DEFAULT_EFFORT = "medium"
_FORM_WORDS = (
    "output_config.format",
    "output_format",
    "outputconfig",
    "schema",
    "structured output",
    "grammar",
)
_TOO_LONG = re.compile(r"max_tokens: \d+ > (?P<most>\d{1,9})\b")


class AnthropicAdapter(SdkAdapter["AnthropicSdk", AnthropicExchange]):
    """One provider that speaks Anthropic Messages.

    Raises:
        ConfigError: The SDK isn't installed.
    """

    exchange_class = AnthropicExchange

    def __init__(self, settings: ProviderSettings, *, clock: Clock, ids: Ids) -> None:
        need_extra(settings.kind, provider=settings.name)
        super().__init__(settings, clock=clock, ids=ids)
        self._offered = OfferedTools()
        self._bounds: dict[str, int] = {}
        """For models that refused the bound that we assume, the one that they named."""
        self._loose: set[str] = set()
        """Models that refused to be held to a schema."""

    def _load(self) -> AnthropicSdk:
        module: Any = importlib.import_module("remit.models._anthropic_sdk")
        sdk: AnthropicSdk = module.AnthropicSdk(self._settings)
        return sdk

    async def _send(
        self, call: AttemptCall, exchange: AnthropicExchange, on_delta: Callable[[Delta], None]
    ) -> LibraryReply:
        tools, withheld = self._offered.of(call.request)
        return await self.sdk.send(
            call,
            exchange,
            settings=_settings_for(call, self._bound(call)),
            extra_body=self._extra_body(call, withheld=withheld),
            tools=tools,
            on_delta=on_delta,
        )

    def _extra_body(self, call: AttemptCall, *, withheld: bool) -> dict[str, Any]:
        """What goes out beside what the library knows."""
        extra: dict[str, Any] = {"tool_choice": {"type": "none"}} if withheld else {}
        form = reply_form(call, loose=self._loose)
        return extra if form is None else {**extra, "output_config": {"format": form}}

    def _bound(self, call: AttemptCall) -> int:
        """The longest reply to ask for; the API always wants to be told one."""
        bound = call.max_output_tokens or known_max_output(call.model)
        return min(bound, self._bounds.get(call.model, bound)) if call.bound_is_assumed else bound

    def _adapted(self, broken: Broken, call: AttemptCall, exchange: AnthropicExchange) -> Broken:
        """What was refused is left out where it is ours: a schema, and a bound for the one that is named."""
        if broken.status != "refused" or exchange.status != 400:
            return broken
        if reply_form(call, loose=self._loose) and refuses_form(exchange.error_answer):
            self._loose.add(call.model)
            return as_adapted(broken)
        found = _TOO_LONG.search(exchange.error_answer) if call.bound_is_assumed else None
        if found is None or not 0 < int(found["most"]) < self._bound(call):
            return broken
        self._bounds[call.model] = int(found["most"])
        return as_adapted(broken)

    def _judge(self, call: AttemptCall, exchange: AnthropicExchange, reply: LibraryReply) -> Outcome:
        reading = exchange.reading
        names = [block.name for block in reading.of_kind("tool_use")]
        signed = [block.signature for block in reading.of_kind("thinking", "redacted_thinking")]
        kept = [block.signature or "" for block in reply.blocks if isinstance(block, ThinkingBlock)]
        # A block with neither text nor signature is dropped by the library, and nothing is lost with it.
        if [signature for signature in kept if signature] != [signature for signature in signed if signature]:
            return exchange.unusable("signatures were lost between wire and library")
        blocks = tuple(map(clean_block, reply.blocks))
        if reading.finish_word == "refusal" and not any(isinstance(block, TextBlock) for block in blocks):
            why = clean_text(reading.refusal or "the model refused")[0]
            blocks += (TextBlock(text=why, details={"refusal": True}),)
        return judge(call, exchange, reply, names=names, blocks=blocks)


def reply_form(call: AttemptCall, *, loose: Container[str]) -> dict[str, Any] | None:
    """What holds a reply of Claude's to its schema; None: the prompt alone does.

    Args:
        call: The request.
        loose: Models that refused it before.
    """
    schema, known = call.request.reply_schema, find_claude(call.model)
    if schema is None or known is None or not known.takes_schema or call.model in loose:
        return None
    strict = strict_schema(schema)
    return None if strict is None else {"type": "json_schema", "schema": strict}


def refuses_form(answer: str) -> bool:
    """Whether a refusal is about the schema that a reply was to be held to."""
    text = answer.lower()
    return any(word in text for word in _FORM_WORDS)


def _settings_for(call: AttemptCall, bound: int) -> dict[str, Any]:
    """The stage's options under the library's names."""
    options: Mapping[str, Any] = call.request.options
    settings: dict[str, Any] = {
        "max_tokens": bound,
        "anthropic_metadata": {"user_id": call.request.run_id},
        **thinking_for(call.model, options, bound),
    }
    for name in ("temperature", "top_p", "parallel_tool_calls"):
        if options.get(name) is not None:
            settings[name] = options[name]
    stop = options.get("stop")
    if stop is not None:
        settings["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    tier = options.get("service_tier")
    if tier is not None:
        settings["anthropic_service_tier"] = "standard_only" if tier == "default" else tier
    if not call.request.tools:
        settings.pop("parallel_tool_calls", None)
    return settings


def thinking_for(model: str, options: Mapping[str, Any], bound: int) -> dict[str, Any]:
    """How the model is to think, in the library's words.

    Where the stage says nothing: as the model does by itself, but that one which doesn't think unless told
    to is told to, unless sampling options say that it isn't to.
    """
    known = find_claude(model)
    effort = options.get("reasoning_effort")
    if known is None:
        return {} if effort is None else _adaptive(effort)
    if effort is None:
        sampled = any(options.get(name) is not None for name in SAMPLING)
        if known.reasoning != "off_by_default" or sampled:
            return {}
        return _adaptive(None) if known.adaptive else _budget(_DEFAULT_EFFORT, bound)
    if effort == "none":
        return {} if known.switch_off is None else {"anthropic_thinking": {"type": known.switch_off}}
    if known.adaptive:
        return _adaptive(effort)
    return {**_budget(effort, bound), **({"anthropic_effort": effort} if known.takes_effort else {})}


def _adaptive(effort: str | None) -> dict[str, Any]:
    if effort == "none":
        return {"anthropic_thinking": {"type": "disabled"}}
    thinking: dict[str, Any] = {"anthropic_thinking": {"type": "adaptive"}}
    return thinking if effort is None else {**thinking, "anthropic_effort": effort}


def _budget(effort: str, bound: int) -> dict[str, Any]:
    """A budget for thinking, within the bound of the reply; none where too little is left for both."""
    budget = min(_BUDGETS[effort], bound // 2)
    if budget < _LEAST_BUDGET:
        return {}
    return {"anthropic_thinking": {"type": "enabled", "budget_tokens": budget}}
