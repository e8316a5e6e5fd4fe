"""OpenAI Responses through the official SDK."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from remit.models._attempt import AttemptCall, Broken, Outcome
from remit.models._catalog import find_openai_model
from remit.models._messages import AssistantBlock
from remit.models._options import default_effort
from remit.models._port import Delta
from remit.models._responses_exchange import ResponsesExchange
from remit.models._responses_items import blocks_of, items_for
from remit.models._sdk_adapter import LibraryReply, SdkAdapter, as_adapted, cache_key, judge
from remit.models._settings import ProviderSettings
from remit.primitives import Clock, Ids

if TYPE_CHECKING:
    from remit.models._responses_sdk import ResponsesSdk

_LEAST_OUTPUT_TOKENS = 16
_ENCRYPTED = "reasoning.encrypted_content"
_OWN_NAMES = {
    "temperature": "temperature",
    "top_p": "top_p",
    "parallel_tool_calls": "parallel_tool_calls",
    "service_tier": "service_tier",
}


class ResponsesAdapter(SdkAdapter["ResponsesSdk", ResponsesExchange]):
    """One provider that speaks Responses: of kind `openai`. Nothing is stored there."""

    exchange_class = ResponsesExchange

    def __init__(self, settings: ProviderSettings, *, clock: Clock, ids: Ids) -> None:
        super().__init__(settings, clock=clock, ids=ids)
        self._plain: set[str] = set()
        """Models that refused to hand out their reasoning."""
        self._left_alone: set[str] = set()
        """Models that refused the effort that we assume."""
        self._loose: set[str] = set()
        """Models that refused to be held to a schema."""
        self._unbounded: set[str] = set()
        """Models that refused the bound that we assume."""

    def _load(self) -> ResponsesSdk:
        module: Any = importlib.import_module("remit.models._responses_warm_up")
        module.warm_up()
        sdk: ResponsesSdk = module.ResponsesSdk(self._settings)
        return sdk

    async def _send(
        self, call: AttemptCall, exchange: ResponsesExchange, on_delta: Callable[[Delta], None]
    ) -> LibraryReply:
        return await self.sdk.send(
            call.model,
            exchange,
            body=self._body(call),
            headers={"X-Client-Request-Id": call.attempt_id},
            tools=call.request.tools,
            on_delta=on_delta,
        )

    def _body(self, call: AttemptCall) -> dict[str, Any]:
        """All of the request but its tools."""
        request, options = call.request, call.request.options
        body: dict[str, Any] = {
            "input": items_for(request.messages, provider=self._settings.name, model=call.full_model),
            "store": False,
            "prompt_cache_key": cache_key(request.run_id),
        }
        if self._reasons(call.model):
            body["include"] = [_ENCRYPTED]
        effort = options.get("reasoning_effort") or self._own_effort(call)
        if effort is not None:
            body["reasoning"] = {"effort": effort}
        bound = self._bound(call)
        if bound is not None:
            body["max_output_tokens"] = max(_LEAST_OUTPUT_TOKENS, bound)
        given = _given(options, with_tools=bool(request.tools))
        if request.reply_schema is not None and call.model not in self._loose:
            form = {"type": "json_schema", "name": "reply", "schema": request.reply_schema, "strict": False}
            given["text"] = {**given.get("text", {}), "format": form}
        return body | given

    def _reasons(self, model: str) -> bool:
        known = find_openai_model(model)
        return model not in self._plain and (known is None or known.reasoning != "no")

    def _own_effort(self, call: AttemptCall) -> str | None:
        if call.model in self._left_alone:
            return None
        return default_effort(model=call.model, options=call.request.options, with_tools=False)

    def _bound(self, call: AttemptCall) -> int | None:
        assumed = call.bound_is_assumed and call.model in self._unbounded
        return None if assumed else call.max_output_tokens

    def _judge(self, call: AttemptCall, exchange: ResponsesExchange, reply: LibraryReply) -> Outcome:
        reading = exchange.reading
        blocks: tuple[AssistantBlock, ...] = blocks_of(reading.output, provider=self._settings.name)
        return judge(call, exchange, reply, names=[item["name"] for item in reading.calls], blocks=blocks)

    def _adapted(self, broken: Broken, call: AttemptCall, exchange: ResponsesExchange) -> Broken:
        """What was refused is left out where it is ours: encrypted reasoning, an effort, a bound."""
        if broken.status != "refused" or exchange.status not in (400, 422):
            return broken
        text, model = exchange.error_answer.lower(), call.model
        if "encrypted" in text and self._reasons(model) and "could not be verified" not in text:
            self._plain.add(model)
        elif call.request.reply_schema is not None and "text.format" in text and model not in self._loose:
            self._loose.add(model)
        elif "reasoning.effort" in text and self._own_effort(call) is not None:
            self._left_alone.add(model)
        elif "max_output_tokens" in text and call.bound_is_assumed and self._bound(call) is not None:
            self._unbounded.add(model)
        else:
            return broken
        return as_adapted(broken)


def _given(options: Mapping[str, Any], *, with_tools: bool) -> dict[str, Any]:
    """The stage's options under the API's names."""
    given = {name: options[ours] for ours, name in _OWN_NAMES.items() if options.get(ours) is not None}
    if not with_tools:
        given.pop("parallel_tool_calls", None)
    if options.get("verbosity") is not None:
        given["text"] = {"verbosity": options["verbosity"]}
    return given
