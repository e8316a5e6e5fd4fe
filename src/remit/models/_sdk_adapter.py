"""What all adapters share that reach a provider through its official SDK.

Nothing heavy is imported here: SDKs and pydantic-ai (over a second together) are loaded by a module of
their own, in a thread, when the first run is prepared.
"""

from __future__ import annotations

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from remit.models._attempt import AttemptCall, Broken, Completed, Exchange, Outcome
from remit.models._exchange import WireExchange
from remit.models._messages import (
    AssistantBlock,
    AssistantMessage,
    Message,
    ToolCallBlock,
)
from remit.models._port import Delta
from remit.models._settings import ProviderSettings
from remit.primitives import Clock, Ids, Redactor, clean_text

if TYPE_CHECKING:
    from remit.models._transport import Waits

_PROMPT_CACHE_KEY_CHARS = 64


class LoadedSdk(Protocol):
    """A provider's client."""

    @property
    def waits(self) -> Waits:
        """How long its replies may take."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryReply:
    """A reply as the library understood it."""

    blocks: tuple[AssistantBlock, ...]
    counted: tuple[int, int]
    """Its input and output tokens."""


SdkT = TypeVar("SdkT", bound=LoadedSdk)
ExchangeT = TypeVar("ExchangeT", bound=WireExchange[Any])


class SdkAdapter(ABC, Generic[SdkT, ExchangeT]):
    """One configured provider, through its SDK; see `Adapter`.

    Args:
        settings: Of a kind that speaks the dialect.
        clock: For dates in headers.
        ids: For tool call ids where the provider gives none.
    """

    exchange_class: type[ExchangeT]
    """What the record of an attempt is made of, in this dialect."""

    def __init__(self, settings: ProviderSettings, *, clock: Clock, ids: Ids) -> None:
        self._settings = settings
        self._clock = clock
        self._ids = ids
        self._mask = Mask(settings)
        self._loading = asyncio.Lock()
        self._sdk: SdkT | None = None
        self._adaptations = 0
        """How often something that was refused is left out by now."""

    async def prepare(self) -> None:
        """Import the SDK and make the client, in a thread; idempotent."""
        if self._sdk is not None:
            return
        async with self._loading:
            if self._sdk is None:
                self._sdk = await asyncio.to_thread(self._load)

    async def aclose(self) -> None:
        """Close the connections."""
        sdk, self._sdk = self._sdk, None
        if sdk is not None:
            await sdk.aclose()

    async def find_window(self, model: str) -> int | None:
        """None: what is known of the model by its name is as good."""
        return None

    def open(self, call: AttemptCall) -> ExchangeT:
        """The record that `run` will fill."""
        return self._exchange(call, self.sdk)

    async def run(
        self, call: AttemptCall, exchange: Exchange, *, on_delta: Callable[[Delta], None]
    ) -> Outcome:
        """Send the request once and read the reply; see `Adapter.run`."""
        record, known = self._own(exchange), self._adaptations
        bound_ms = self._settings.call_timeout_ms
        try:
            async with asyncio.timeout(None if bound_ms is None else bound_ms / 1000):
                reply = await self._send(call, record, on_delta)
        except TimeoutError:
            return record.too_long((bound_ms or 0) / 1000)
        except Exception as error:  # noqa: BLE001 - whatever a library makes of odd input ends this attempt only
            broken = record.broken(error) or record.unusable(_shown(error))
            return self._learned(broken, call, record, known=known)
        finally:
            await record.close()
        if (broken := record.broken(None)) is not None:
            return self._learned(broken, call, record, known=known)
        return self._judge(call, record, reply)

    @property
    def sdk(self) -> SdkT:
        """The client."""
        assert self._sdk is not None, "prepare comes first"
        return self._sdk

    @abstractmethod
    def _load(self) -> SdkT:
        """Import and make the client; runs in a thread.

        Raises:
            ConfigError: What it needs isn't installed.
        """

    def _exchange(self, call: AttemptCall, sdk: SdkT) -> ExchangeT:
        """A new record."""
        return self.exchange_class(
            call=call,
            waits=sdk.waits,
            mask=self._mask,
            used_ids=call_ids(call.request.messages),
            new_id=lambda: self._ids.new("call"),
            now=self._clock.now,
        )

    def _own(self, exchange: Exchange) -> ExchangeT:
        """The record as this adapter made it."""
        assert isinstance(exchange, self.exchange_class)
        return exchange

    @abstractmethod
    async def _send(
        self, call: AttemptCall, exchange: ExchangeT, on_delta: Callable[[Delta], None]
    ) -> LibraryReply:
        """Send the request and read the reply through the library; raises whatever the library does."""

    @abstractmethod
    def _judge(self, call: AttemptCall, exchange: ExchangeT, reply: LibraryReply) -> Outcome:
        """A whole reply, checked against what stood on the wire."""

    def _learned(self, broken: Broken, call: AttemptCall, exchange: ExchangeT, *, known: int) -> Broken:
        """What came of a refusal: another attempt, where what is ours is left out now.

        Args:
            broken: What came.
            call: What was asked.
            exchange: The record of it.
            known: The adaptations when it was sent. What was learned since, from others that were on their
                way beside it, may be just what it was refused for.
        """
        adapted = self._adapted(broken, call, exchange)
        if adapted.adapted:
            self._adaptations += 1
        elif adapted.status == "refused" and exchange.status in (400, 422) and known != self._adaptations:
            return as_adapted(adapted)
        return adapted

    def _adapted(self, broken: Broken, call: AttemptCall, exchange: ExchangeT) -> Broken:
        """The same, marked as worth another attempt when what was refused is ours and can be left out."""
        return broken


def as_adapted(broken: Broken) -> Broken:
    """The same, worth another attempt at once."""
    return replace(broken, retryable=False, adapted=True)


def judge(
    call: AttemptCall,
    exchange: WireExchange[Any],
    reply: LibraryReply,
    *,
    names: list[str],
    blocks: tuple[AssistantBlock, ...],
) -> Outcome:
    """A whole reply, or what the library lost of it.

    Args:
        call: What was asked.
        exchange: What came.
        reply: What the library made of it.
        names: Of the tools called, as they stood on the wire.
        blocks: What to keep of the reply.
    """
    finish = exchange.finish_kind()
    assert finish is not None
    if not all(names):
        return exchange.unusable("a tool call without a name")
    if names != [block.name for block in reply.blocks if isinstance(block, ToolCallBlock)]:
        return exchange.unusable("tool calls were lost between wire and library")
    usage = exchange.usage_so_far()
    adjusted = {"reasoning_added", "cache_added", "bad_number"} & set(usage.flags)
    counted = (usage.input_tokens, usage.output_tokens)
    if usage.coverage == "reported" and not adjusted and reply.counted != counted:
        exchange.reading.flag("library_mismatch")
        usage = exchange.usage_so_far()
    message = AssistantMessage(blocks=blocks, model=call.full_model)
    return Completed(message=message, finish=finish, usage=usage)


def clean_block(block: AssistantBlock) -> AssistantBlock:
    """The block with characters replaced that no store can hold."""
    if isinstance(block, ToolCallBlock):
        arguments, count = clean_text(block.arguments)
        return replace(block, arguments=arguments) if count else block
    text, count = clean_text(block.text)
    return replace(block, text=text) if count else block


def cache_key(run_id: str) -> str:
    """The run's id as the provider's cache key, which may have 64 characters."""
    if len(run_id) <= _PROMPT_CACHE_KEY_CHARS:
        return run_id
    return hashlib.sha256(run_id.encode()).hexdigest()


def call_ids(messages: tuple[Message, ...]) -> Iterator[str]:
    for message in messages:
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                yield call.tool_call_id


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:1_000]


class Mask:
    """Takes a provider's secrets out of what is about to be stored."""

    def __init__(self, settings: ProviderSettings) -> None:
        secrets = settings.secrets
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
