"""The scripted provider: a real provider kind that plays a file, for demos, drills and tests.

Only the model is played. Its errors and cuts go through the pool's one owner of retries, its usage
through the ledger, its tool calls to real tools.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from remit.contract import AttemptUsage
from remit.models._attempt import (
    NOTHING_SENT,
    UNKNOWN_USAGE,
    AttemptCall,
    Broken,
    Completed,
    Exchange,
    Outcome,
)
from remit.models._chat_errors import body_text, meaning_of_status
from remit.models._codec import message_to_json
from remit.models._estimate import estimate_input_tokens
from remit.models._messages import AssistantMessage, TextBlock, ToolCallBlock
from remit.models._port import Delta, Finish
from remit.models._retry import asked_pause_s
from remit.models._script import Script, ScriptedError, ScriptedReply, ScriptedUsage, load_script
from remit.models._settings import ProviderSettings
from remit.models._wire import is_array, is_object
from remit.primitives import Clock

_REMEMBERED_RUNS = 50_000
"""Runs whose place in the script is kept; the one that asked longest ago is forgotten."""
_PIECE_CHARS = 400
_CHARACTERS_PER_TOKEN = 4


@dataclass(slots=True)
class ScriptedExchange:
    """The record of one attempt."""

    provider_request_id: str | None = None
    finish_word: str | None = None
    usage: AttemptUsage = NOTHING_SENT

    def usage_so_far(self) -> AttemptUsage:
        """What is known of the usage when nothing more is read."""
        return self.usage


class ScriptedAdapter:
    """One configured script.

    Args:
        settings: Of kind `scripted`; the script is read and checked at once.
        clock: For delays and dates.

    Raises:
        ConfigError: The script is wrong.
    """

    def __init__(self, settings: ProviderSettings, *, clock: Clock) -> None:
        assert settings.script is not None
        self._path = settings.script
        self._script: Script = load_script(settings.script)
        self._clock = clock
        self._used: OrderedDict[str, set[int]] = OrderedDict()

    async def find_window(self, model: str) -> int | None:
        """None: a script has no window."""
        return None

    async def prepare(self) -> None:
        """Nothing is left to do."""

    async def aclose(self) -> None:
        """Nothing is open."""

    def open(self, call: AttemptCall) -> ScriptedExchange:
        """The record that `run` will fill."""
        return ScriptedExchange()

    async def run(
        self, call: AttemptCall, exchange: Exchange, *, on_delta: Callable[[Delta], None]
    ) -> Outcome:
        """Play the next reply; see `Adapter.run`."""
        assert isinstance(exchange, ScriptedExchange)
        found = self._take(call)
        if found is None:
            return self._ran_out(call)
        number, reply = found
        exchange.provider_request_id = f"script-{number + 1}"
        exchange.usage = UNKNOWN_USAGE
        if reply.delay_ms:
            await self._clock.sleep(reply.delay_ms / 1000)
        if reply.error is not None:
            exchange.usage = NOTHING_SENT
            return self._refusal(reply.error)
        await _show(reply, on_delta)
        if reply.cut:
            return Broken(
                status="cut", reason="cut", usage=UNKNOWN_USAGE, detail="the script cuts here", retryable=True
            )
        finish: Finish = "tool_calls" if reply.tool_calls else "stop"
        exchange.finish_word = finish
        exchange.usage = _usage(call, reply)
        message = AssistantMessage(blocks=tuple(_blocks(reply, number)), model=call.full_model)
        return Completed(message=message, finish=finish, usage=exchange.usage)

    def _take(self, call: AttemptCall) -> tuple[int, ScriptedReply] | None:
        """The first reply that is for this stage, not used up, and whose condition holds."""
        used = self._used_by(call.request.run_id)
        conversation: str | None = None
        for number, reply in enumerate(self._script.replies):
            if number in used or not reply.is_for(call.request.stage_id):
                continue
            wanted = reply.when.contains if reply.when is not None else None
            if wanted is not None:
                conversation = _conversation(call) if conversation is None else conversation
                if wanted not in conversation:
                    continue
            used.add(number)
            return number, reply
        return None

    def _used_by(self, run_id: str) -> set[int]:
        key = "" if self._script.shared else run_id
        used = self._used.setdefault(key, set())
        self._used.move_to_end(key)
        if len(self._used) > _REMEMBERED_RUNS:
            self._used.popitem(last=False)
        return used

    def _ran_out(self, call: AttemptCall) -> Broken:
        request = call.request
        asked = f"stage {request.stage_id}, round {request.round}"
        text = f"the script {self._path.name} has no reply left for {asked}"
        return Broken(status="refused", reason="protocol", usage=NOTHING_SENT, detail=text, retryable=False)

    def _refusal(self, error: ScriptedError) -> Broken:
        body = error.body if isinstance(error.body, str) else json.dumps(error.body)
        text = body if error.body is not None else f"status {error.status}"
        headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
        pause = asked_pause_s(headers, text, now=self._clock.now())
        meaning = meaning_of_status(error.status, text, should_retry=None, asked_pause=pause is not None)
        return Broken(
            status="refused",
            reason=meaning.reason,
            usage=NOTHING_SENT,
            detail=f"HTTP {error.status}: {body_text(text.encode())}",
            retryable=meaning.retryable,
            pause_s=pause,
            pauses_key=meaning.pauses_key,
        )


async def _show(reply: ScriptedReply, on_delta: Callable[[Delta], None]) -> None:
    text = reply.content
    for start in range(0, len(text), _PIECE_CHARS):
        on_delta(Delta(kind="text", text=text[start : start + _PIECE_CHARS]))
        await asyncio.sleep(0)
    for call in reply.tool_calls:
        on_delta(Delta(kind="tool_call", text=f"{call.name} {call.argument_text}"))


def _blocks(reply: ScriptedReply, number: int) -> list[TextBlock | ToolCallBlock]:
    blocks: list[TextBlock | ToolCallBlock] = [TextBlock(text=reply.content)] if reply.content else []
    for position, call in enumerate(reply.tool_calls, start=1):
        made = f"call_{number + 1}_{position}"
        blocks.append(
            ToolCallBlock(
                tool_call_id=made if call.id is None else call.id,
                name=call.name,
                arguments=call.argument_text,
            )
        )
    return blocks


def _usage(call: AttemptCall, reply: ScriptedReply) -> AttemptUsage:
    if not reply.reports_usage:
        return AttemptUsage(coverage="missing")
    usage = reply.usage
    if usage is None:
        sizes = [len(reply.content), *(len(item.argument_text) for item in reply.tool_calls)]
        usage = ScriptedUsage(
            input_tokens=estimate_input_tokens(call.request.messages, call.request.tools),
            output_tokens=max(1, -(-sum(sizes) // _CHARACTERS_PER_TOKEN)),
        )
    return AttemptUsage(
        coverage="reported",
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        raw=usage.to_json(),
    )


def _conversation(call: AttemptCall) -> str:
    """All text of the conversation, as it would be sent."""
    bodies = [message_to_json(message) for message in call.request.messages]
    return "\n".join(_texts(bodies))


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if is_object(value):
        return [text for item in value.values() for text in _texts(item)]
    if is_array(value):
        return [text for item in value for text in _texts(item)]
    return []
