"""OpenAI Chat Completions, and every server that speaks it, through the official SDK.

Nothing heavy is imported here: the SDK and pydantic-ai (over a second together) are loaded by
`_openai_sdk`, in a thread, when the first run is prepared.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from remit.models._attempt import AttemptCall, Broken, Completed, Exchange, Outcome
from remit.models._chat_exchange import ChatExchange
from remit.models._messages import (
    AssistantBlock,
    AssistantMessage,
    Message,
    TextBlock,
    ToolCallBlock,
)
from remit.models._options import OPENAI_KINDS, default_effort
from remit.models._port import Delta, ModelRequest
from remit.models._settings import ProviderSettings
from remit.primitives import Clock, Ids, Redactor, Secret, clean_text

if TYPE_CHECKING:
    from remit.models._openai_sdk import LibraryReply, OpenAISdk

_PROMPT_CACHE_KEY_CHARS = 64
_OMIT = "omit"


class OpenAIChatAdapter:
    """One provider that speaks Chat Completions.

    Args:
        settings: Of kind `openai`, `openai-chat` or `openai-compatible`.
        clock: For dates in headers.
        ids: For tool call ids where the provider gives none.
    """

    def __init__(self, settings: ProviderSettings, *, clock: Clock, ids: Ids) -> None:
        self._settings = settings
        self._clock = clock
        self._ids = ids
        self._mask = _Mask(settings)
        self._loading = asyncio.Lock()
        self._sdk: OpenAISdk | None = None
        self._usage_on_demand = True
        """Whether `stream_options` is sent; some compatible servers refuse it."""
        self._max_field = "max_completion_tokens" if settings.kind in OPENAI_KINDS else "max_tokens"
        self._unbounded: set[str] = set()
        """Models for which the provider refused the bound that we assume."""
        self._efforts: dict[str, str] = {}
        """For each model the effort to send where the stage gave none, once the provider refused our own."""

    async def prepare(self) -> None:
        """Import the SDK and make the client, in a thread; idempotent."""
        if self._sdk is not None:
            return
        async with self._loading:
            if self._sdk is None:
                self._sdk = await asyncio.to_thread(_load, self._settings)

    async def aclose(self) -> None:
        """Close the connections."""
        sdk, self._sdk = self._sdk, None
        if sdk is not None:
            await sdk.aclose()

    def open(self, call: AttemptCall) -> ChatExchange:
        """The record that `run` will fill."""
        assert self._sdk is not None, "prepare comes first"
        return ChatExchange(
            call=call,
            waits=self._sdk.waits,
            mask=self._mask,
            used_ids=_call_ids(call.request.messages),
            new_id=lambda: self._ids.new("call"),
            now=self._clock.now,
        )

    async def run(
        self, call: AttemptCall, exchange: Exchange, *, on_delta: Callable[[Delta], None]
    ) -> Outcome:
        """Send the request once and read the reply; see `Adapter.run`."""
        assert isinstance(exchange, ChatExchange)
        bound_ms = self._settings.call_timeout_ms
        try:
            async with asyncio.timeout(None if bound_ms is None else bound_ms / 1000):
                reply = await self._send(call, exchange, on_delta)
        except TimeoutError:
            return exchange.too_long((bound_ms or 0) / 1000)
        except Exception as error:  # noqa: BLE001 - whatever a library makes of odd input ends this attempt only
            return self._adapted(exchange.broken(error) or exchange.unusable(_shown(error)), call, exchange)
        broken = exchange.broken(None)
        return self._adapted(broken, call, exchange) if broken is not None else _judge(call, exchange, reply)

    async def _send(
        self, call: AttemptCall, exchange: ChatExchange, on_delta: Callable[[Delta], None]
    ) -> LibraryReply:
        assert self._sdk is not None
        request = call.request
        effort = request.options.get("reasoning_effort") or self._own_effort(call, exchange)
        return await self._sdk.send(
            call,
            exchange,
            settings=_settings_for(request, effort, self._bound(call)),
            headers=self._headers(call),
            cache_key=_cache_key(request.run_id) if self._settings.kind in OPENAI_KINDS else None,
            with_usage=self._usage_on_demand,
            max_field=self._max_field,
            on_delta=on_delta,
        )

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
        if self._settings.kind not in OPENAI_KINDS:
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
        elif "max_completion_tokens" in text and self._bound(call) and self._max_field == "max_tokens":
            self._max_field, changed = "max_completion_tokens", True
        elif "max_tokens" in text or "max_completion_tokens" in text:
            changed = call.bound_is_assumed and self._bound(call) is not None
            self._unbounded |= {call.model} if changed else set()
        elif "reasoning_effort" in text and exchange.effort_is_ours and exchange.effort_sent != _OMIT:
            self._efforts[call.model] = _OMIT if exchange.effort_sent == "none" else "none"
            changed = True
        return _as_adapted(broken) if changed else broken


def _as_adapted(broken: Broken) -> Broken:
    return replace(broken, retryable=False, adapted=True)


def _load(settings: ProviderSettings) -> OpenAISdk:
    module: Any = importlib.import_module("remit.models._openai_warm_up")
    module.warm_up()
    sdk: OpenAISdk = module.OpenAISdk(settings)
    return sdk


def _judge(call: AttemptCall, exchange: ChatExchange, reply: LibraryReply) -> Outcome:
    """A whole reply, checked against what stood on the wire."""
    reading, slots = exchange.reading, exchange.calls
    finish = exchange.finish_kind()
    assert finish is not None
    names = [block.name for block in reply.blocks if isinstance(block, ToolCallBlock)]
    if any(not slot.name for slot in slots):
        return exchange.unusable("a tool call without a name")
    if names != [slot.name for slot in slots]:
        return exchange.unusable("tool calls were lost between wire and library")
    usage = exchange.usage_so_far()
    counted = (usage.input_tokens, usage.output_tokens)
    adjusted = {"reasoning_added", "cache_added", "bad_number"} & set(usage.flags)
    if usage.coverage == "reported" and not adjusted and reply.counted != counted:
        reading.flag("library_mismatch")
        usage = exchange.usage_so_far()
    blocks = _with_extra(tuple(_clean(block) for block in reply.blocks), reading.extra_content)
    if reading.refusal:
        blocks += (TextBlock(text=clean_text(reading.refusal)[0], details={"refusal": True}),)
    message = AssistantMessage(blocks=blocks, model=call.full_model)
    return Completed(message=message, finish=finish, usage=usage)


def _with_extra(blocks: tuple[AssistantBlock, ...], extra: Any) -> tuple[AssistantBlock, ...]:
    """The blocks, with the opaque fields that stood beside the text on the last text of them."""
    texts = [number for number, block in enumerate(blocks) if isinstance(block, TextBlock)]
    if extra is None or not texts:
        return blocks
    last = blocks[texts[-1]]
    marked = replace(last, details={**(last.details or {}), "extra_content": extra})
    return (*blocks[: texts[-1]], marked, *blocks[texts[-1] + 1 :])


def _clean(block: AssistantBlock) -> AssistantBlock:
    """The block with characters replaced that no store can hold."""
    if isinstance(block, ToolCallBlock):
        arguments, count = clean_text(block.arguments)
        return replace(block, arguments=arguments) if count else block
    text, count = clean_text(block.text)
    return replace(block, text=text) if count else block


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


def _cache_key(run_id: str) -> str:
    """The run's id as the provider's cache key, which may have 64 characters."""
    if len(run_id) <= _PROMPT_CACHE_KEY_CHARS:
        return run_id
    return hashlib.sha256(run_id.encode()).hexdigest()


def _call_ids(messages: tuple[Message, ...]) -> Iterator[str]:
    for message in messages:
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                yield call.tool_call_id


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:1_000]


class _Mask:
    """Takes a provider's secrets out of what is about to be stored."""

    def __init__(self, settings: ProviderSettings) -> None:
        header_secrets = [value for value in settings.headers.values() if isinstance(value, Secret)]
        secrets = [*header_secrets, *([settings.api_key] if settings.api_key else [])]
        self._redactor = Redactor(secrets)
        self._short = [value for secret in secrets if 0 < len(value := secret.reveal()) < 6]

    def __call__(self, text: str) -> str:
        text = clean_text(self._redactor.mask(text))[0]
        for value in self._short:
            # Too short to be masked wherever it stands; as a word of its own it is the key.
            words = text.replace(value, "\0").split("\0")
            text = _join_words(words, value)
        return text


def _join_words(words: list[str], value: str) -> str:
    joined = words[0]
    for word in words[1:]:
        alone = not (joined[-1:].isalnum() or word[:1].isalnum())
        joined += ("[redacted]" if alone else value) + word
    return joined
