"""Gemini through the official SDK: kind `google`, and `vertex` at another door of the same house."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from remit.models._attempt import AttemptCall, Broken, Outcome
from remit.models._catalog import find_gemini
from remit.models._extras import need_extra
from remit.models._google_contents import blocks_of, contents_for, declarations_of, plain_schema
from remit.models._google_exchange import GeminiExchange
from remit.models._offered import OfferedTools
from remit.models._port import Delta
from remit.models._sdk_adapter import LibraryReply, SdkAdapter, as_adapted, judge
from remit.models._settings import ProviderSettings
from remit.primitives import Clock, Ids

if TYPE_CHECKING:
    from remit.models._google_sdk import GoogleSdk

_BUDGETS = {"none": 0, "minimal": 512, "low": 2_048, "medium": 8_192, "high": 24_576}
"""Thinking tokens for an effort, of models that take a budget."""
_TOO_LONG = re.compile(r"to (?P<beyond>\d{1,9}) \(exclusive\)")
_OWN_NAMES = {
    "temperature": "temperature",
    "top_p": "topP",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "seed": "seed",
}


class GoogleAdapter(SdkAdapter["GoogleSdk", GeminiExchange]):
    """One provider that speaks Gemini.

    Raises:
        ConfigError: The SDK isn't installed.
    """

    exchange_class = GeminiExchange

    def __init__(self, settings: ProviderSettings, *, clock: Clock, ids: Ids) -> None:
        need_extra(settings.kind, provider=settings.name)
        super().__init__(settings, clock=clock, ids=ids)
        self._offered = OfferedTools()
        self._plain: set[str] = set()
        """Models that refused to show their thoughts."""
        self._loose: set[str] = set()
        """Models that refused to be held to a schema."""
        self._bounds: dict[str, int] = {}
        """For models that refused the bound that we assume, the one that they named."""

    def _load(self) -> GoogleSdk:
        module: Any = importlib.import_module("remit.models._google_sdk")
        sdk: GoogleSdk = module.GoogleSdk(self._settings)
        return sdk

    async def _send(
        self, call: AttemptCall, exchange: GeminiExchange, on_delta: Callable[[Delta], None]
    ) -> LibraryReply:
        return await self.sdk.send(
            call.model,
            exchange,
            body=self._body(call),
            headers={"X-Client-Request-Id": call.attempt_id},
            on_delta=on_delta,
        )

    def _body(self, call: AttemptCall) -> dict[str, Any]:
        """The request: what is asked, and how."""
        request = call.request
        body = contents_for(request.messages, provider=self._settings.name, model=call.full_model)
        tools, withheld = self._offered.of(request)
        if tools:
            body["tools"] = [{"functionDeclarations": declarations_of(tools)}]
        if withheld:
            body["toolConfig"] = {"functionCallingConfig": {"mode": "NONE"}}
        config = _given(request.options)
        bound = self._bound(call)
        if bound is not None:
            config["maxOutputTokens"] = bound
        if request.reply_schema is not None and call.model not in self._loose:
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = plain_schema(request.reply_schema)
        thinking = self._thinking(call)
        if thinking:
            config["thinkingConfig"] = thinking
        return {**body, "generationConfig": config} if config else body

    def _thinking(self, call: AttemptCall) -> dict[str, Any]:
        """How the model is to think; its thoughts are shown wherever it has some."""
        known, effort = find_gemini(call.model), call.request.options.get("reasoning_effort")
        if effort is None and (known is None or known.reasoning == "no" or call.model in self._plain):
            return {}
        shown = {"includeThoughts": effort != "none"}
        if effort is None:
            return shown
        if known is not None and not known.thinks_by_level:
            return {**shown, "thinkingBudget": _BUDGETS[effort]}
        return {**shown, "thinkingLevel": effort}

    def _bound(self, call: AttemptCall) -> int | None:
        bound = call.max_output_tokens
        if bound is None or not call.bound_is_assumed:
            return bound
        return min(bound, self._bounds.get(call.model, bound))

    def _judge(self, call: AttemptCall, exchange: GeminiExchange, reply: LibraryReply) -> Outcome:
        reading = exchange.reading
        blocks = blocks_of(reading.parts, provider=self._settings.name)
        return judge(call, exchange, reply, names=[part.name for part in reading.calls], blocks=blocks)

    def _adapted(self, broken: Broken, call: AttemptCall, exchange: GeminiExchange) -> Broken:
        """What was refused is left out where it is ours: thoughts to be shown, a bound that is too large."""
        if broken.status != "refused" or exchange.status != 400:
            return broken
        text = exchange.error_answer
        found = _TOO_LONG.search(text)
        most = int(found["beyond"]) - 1 if found is not None else 0
        bound = self._bound(call)
        if call.bound_is_assumed and bound is not None and 0 < most < bound:
            self._bounds[call.model] = most
            return as_adapted(broken)
        held = call.request.reply_schema is not None and call.model not in self._loose
        if held and any(word in text.lower() for word in ("schema", "mime type", "json mode")):
            self._loose.add(call.model)
            return as_adapted(broken)
        asked = call.request.options.get("reasoning_effort") is not None
        if "thinking" in text.lower() and not asked and self._thinking(call):
            self._plain.add(call.model)
            return as_adapted(broken)
        return broken


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The stage's options under the API's names."""
    given = {name: options[ours] for ours, name in _OWN_NAMES.items() if options.get(ours) is not None}
    stop = options.get("stop")
    if stop is not None:
        given["stopSequences"] = [stop] if isinstance(stop, str) else list(stop)
    return given
