"""OpenAI Chat Completions, and every server that speaks it, through the official SDK."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from remit.models._attempt import AttemptCall, Broken, Outcome
from remit.models._chat_exchange import ChatExchange
from remit.models._facts import look_up
from remit.models._gateway import gateway_fields, with_details
from remit.models._messages import AssistantBlock, TextBlock
from remit.models._options import OPENAI_KINDS, default_effort
from remit.models._port import Delta, ModelRequest
from remit.models._sdk_adapter import (
    LibraryReply,
    SdkAdapter,
    as_adapted,
    cache_key,
    clean_block,
    judge,
)
from remit.models._settings import ProviderSettings
from remit.primitives import Clock, Ids, clean_text

if TYPE_CHECKING:
    from remit.models._openai_sdk import OpenAISdk

_OMIT = "omit"
_SCHEMA_WORDS = ("response_format", "json_schema", "schema", "grammar", "guided")


class OpenAIChatAdapter(SdkAdapter["OpenAISdk", ChatExchange]):
    """One provider that speaks Chat Completions: OpenAI's own, Azure's, a gateway, any compatible server."""

    exchange_class = ChatExchange

    def __init__(self, settings: ProviderSettings, *, clock: Clock, ids: Ids) -> None:
        super().__init__(settings, clock=clock, ids=ids)
        self._usage_on_demand = True
        """Whether `stream_options` is sent; some compatible servers refuse it."""
        self._max_field = "max_completion_tokens" if settings.kind in OPENAI_KINDS else "max_tokens"
        self._unbounded: set[str] = set()
        """Models for which the provider refused the bound that we assume."""
        self._loose: set[str] = set()
        """Models that refused to be held to a schema."""
        self._efforts: dict[str, str] = {}
        """For each model the effort to send where the stage gave none, once the provider refused our own."""

        self._sessions = settings.kind in ("openai", "openai-chat")
        """Whether the run's id goes along as the key of a cache, and not in a header."""

    def _load(self) -> OpenAISdk:
        module: Any = importlib.import_module("remit.models._openai_warm_up")
        module.warm_up()
        sdk: OpenAISdk = module.OpenAISdk(self._settings)
        return sdk

    async def find_window(self, model: str) -> int | None:
        """What a server of one's own says: nobody else knows how it was started."""
        if self._settings.kind != "openai-compatible":
            return None
        looked = await look_up(self._settings, model=model)
        facts = (looked.models or {}).get(model)
        return facts.window_tokens if facts is not None else None

    def _exchange(self, call: AttemptCall, sdk: OpenAISdk) -> ChatExchange:
        exchange = super()._exchange(call, sdk)
        exchange.may_cut_prompts = self._settings.kind in ("openai-compatible", "ollama")
        return exchange

    async def _send(
        self, call: AttemptCall, exchange: ChatExchange, on_delta: Callable[[Delta], None]
    ) -> LibraryReply:
        request = call.request
        effort = request.options.get("reasoning_effort") or self._own_effort(call, exchange)
        if self._settings.kind == "openrouter":
            effort = None  # it has a field of its own, which every model behind it takes
        return await self.sdk.send(
            call,
            exchange,
            settings=_settings_for(request, effort, self._bound(call)),
            headers=self._headers(call),
            cache_key=cache_key(request.run_id) if self._sessions else None,
            with_usage=self._usage_on_demand,
            max_field=self._max_field,
            extra_body=self._extra_body(call),
            on_delta=on_delta,
        )

    def _extra_body(self, call: AttemptCall) -> dict[str, Any]:
        """What goes out beside what the library knows."""
        form = self._response_format(call)
        extra: dict[str, Any] = {} if form is None else {"response_format": form}
        return {**extra, **gateway_fields(call)} if self._settings.kind == "openrouter" else extra

    def _response_format(self, call: AttemptCall) -> dict[str, Any] | None:
        schema = call.request.reply_schema
        if schema is None or call.model in self._loose:
            return None
        return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}

    def _bound(self, call: AttemptCall) -> int | None:
        assumed = call.bound_is_assumed and call.model in self._unbounded
        return None if assumed else call.max_output_tokens

    def _own_effort(self, call: AttemptCall, exchange: ChatExchange) -> str | None:
        """The effort to send where the stage gave none."""
        if self._settings.kind not in OPENAI_KINDS:
            return None
        options, tools = call.request.options, bool(call.request.tools)
        effort = self._efforts.get(call.model) or default_effort(
            model=call.model, options=options, with_tools=tools
        )
        exchange.effort_is_ours, exchange.effort_sent = True, effort
        return None if effort == _OMIT else effort

    def _headers(self, call: AttemptCall) -> dict[str, str]:
        """Beside the SDK's own: who we are, and the run's id as the provider's session id."""
        headers = {"X-Client-Request-Id": call.attempt_id}
        if not self._sessions:
            headers["X-Session-Id"] = call.request.run_id
        return headers

    def _adapted(self, broken: Broken, call: AttemptCall, exchange: ChatExchange) -> Broken:
        """The same, marked as worth another attempt when what was refused is ours and can be left out."""
        if broken.status != "refused" or exchange.status not in (400, 422):
            return broken
        text = exchange.error_answer.lower()
        changed = False
        if "stream_options" in text and self._usage_on_demand:
            self._usage_on_demand, changed = False, True
        elif self._response_format(call) and any(word in text for word in _SCHEMA_WORDS):
            self._loose.add(call.model)
            changed = True
        elif "max_completion_tokens" in text and self._bound(call) and self._max_field == "max_tokens":
            self._max_field, changed = "max_completion_tokens", True
        elif "max_tokens" in text or "max_completion_tokens" in text:
            changed = call.bound_is_assumed and self._bound(call) is not None
            self._unbounded |= {call.model} if changed else set()
        elif "reasoning_effort" in text and exchange.effort_is_ours and exchange.effort_sent != _OMIT:
            self._efforts[call.model] = _OMIT if exchange.effort_sent == "none" else "none"
            changed = True
        return as_adapted(broken) if changed else broken

    def _judge(self, call: AttemptCall, exchange: ChatExchange, reply: LibraryReply) -> Outcome:
        return judge_chat(call, exchange, reply)


def judge_chat(call: AttemptCall, exchange: ChatExchange, reply: LibraryReply) -> Outcome:
    """A whole reply, checked against what stood on the wire."""
    reading = exchange.reading
    if cut := exchange.prompt_cut(call):
        return cut
    blocks = _with_extra(tuple(clean_block(block) for block in reply.blocks), reading.extra_content)
    if reading.reasoning_details:
        blocks = with_details(blocks, reading.reasoning_details, provider=call.full_model.partition(":")[0])
    if reading.refusal:
        blocks += (TextBlock(text=clean_text(reading.refusal)[0], details={"refusal": True}),)
    return judge(call, exchange, reply, names=[slot.name for slot in exchange.calls], blocks=blocks)


def _with_extra(blocks: tuple[AssistantBlock, ...], extra: Any) -> tuple[AssistantBlock, ...]:
    """The blocks, with the opaque fields that stood beside the text on the last text of them."""
    texts = [number for number, block in enumerate(blocks) if isinstance(block, TextBlock)]
    if extra is None or not texts:
        return blocks
    last = blocks[texts[-1]]
    marked = replace(last, details={**(last.details or {}), "extra_content": extra})
    return (*blocks[: texts[-1]], marked, *blocks[texts[-1] + 1 :])


def _settings_for(request: ModelRequest, effort: str | None, max_output_tokens: int | None) -> dict[str, Any]:
    """The stage's options under the library's names."""
    options: Mapping[str, Any] = request.options
    settings = {
        ours_to_library: options[name]
        for name, ours_to_library in _LIBRARY_NAMES.items()
        if options.get(name) is not None
    }
    stop = settings.get("stop_sequences")
    if isinstance(stop, str):
        settings["stop_sequences"] = [stop]
    if effort is not None:
        settings["openai_reasoning_effort"] = effort
    if max_output_tokens is not None:
        settings["max_tokens"] = max_output_tokens
    return settings


_LIBRARY_NAMES = {
    "temperature": "temperature",
    "top_p": "top_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "seed": "seed",
    "stop": "stop_sequences",
    "verbosity": "openai_text_verbosity",
    "parallel_tool_calls": "parallel_tool_calls",
    "service_tier": "openai_service_tier",
}
