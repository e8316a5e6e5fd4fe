"""What goes on to the SDK, and the last check of what the library made of it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from model_kit import request
from remit.models import TextBlock, ToolCallBlock
from remit.models._attempt import AttemptCall, Broken, Completed
from remit.models._chat_exchange import ChatExchange
from remit.models._chat_observer import ChatObserver
from remit.models._exchange import DispatchError
from remit.models._openai_chat import judge_chat as _judge
from remit.models._sdk_adapter import LibraryReply
from remit.models._transport import Waits

CALLS = (
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":['
    b'{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}},'
    b'{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]},"finish_reason":"tool_calls"}],'
    b'"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}\n\ndata: [DONE]\n\n'
)


def exchange() -> ChatExchange:
    call = AttemptCall(
        request=request(), attempt_id="att", model="m", full_model="p:m", max_output_tokens=None
    )
    return ChatExchange(
        call=call,
        waits=Waits(first_byte_s=1, idle_s=1),
        mask=str,
        used_ids=(),
        new_id=lambda: "made",
        now=lambda: datetime.now(UTC),
    )


def outgoing(body: bytes) -> Any:
    return SimpleNamespace(content=body)


def heard(data: bytes) -> ChatExchange:
    record = exchange()
    record.sends(outgoing(b'{"model":"m"}'))
    record.status = 200
    record.feed(data)
    return record


def calls(*names: str) -> tuple[ToolCallBlock, ...]:
    return tuple(ToolCallBlock(tool_call_id=name, name=name, arguments="{}") for name in names)


@pytest.mark.parametrize("character", ["\u0085", "\u2028", "\u2029", "\u000b", "\u000c", "\u001c"])
def test_no_separator_reaches_the_sdk(character: str) -> None:
    """R70: bare separators are escaped before anybody splits lines at them; the text is the same."""
    observer = ChatObserver(used_ids=(), new_id=str)
    shown = observer.feed(f'data: {{"choices":[{{"delta":{{"content":"a{character}b"}}}}]}}\n\n'.encode())
    assert character not in shown.decode()
    assert f"a\\u{ord(character):04x}b" in shown.decode()
    assert observer.reading.fault is None
    assert observer.reading.flags == []


def test_what_the_library_lost() -> None:
    """R26: a call that stood on the wire and isn't in the library's reply makes the attempt fail."""
    record = heard(CALLS)
    whole = _judge(record._call, record, LibraryReply(blocks=calls("f", "g"), counted=(7, 3)))
    assert isinstance(whole, Completed)
    assert whole.usage.flags == ()
    for blocks in (calls("f"), calls("g", "f"), (TextBlock(text="x"),)):
        lost = _judge(record._call, record, LibraryReply(blocks=blocks, counted=(7, 3)))
        assert isinstance(lost, Broken)
        assert (lost.reason, lost.most_retries, lost.usage.total_tokens) == ("protocol", 1, 10)


def test_numbers_that_differ_are_flagged() -> None:
    """R20: the wire's numbers count; the library's are only checked against them."""
    record = heard(CALLS)
    reply = _judge(record._call, record, LibraryReply(blocks=calls("f", "g"), counted=(7, 0)))
    assert isinstance(reply, Completed)
    assert (reply.usage.output_tokens, reply.usage.flags) == (3, ("library_mismatch",))


def test_a_request_for_another_model_is_not_sent() -> None:
    """S40: what goes out is checked against what was asked; a quoted name in a prompt isn't the model."""
    record = exchange()
    for body in (b'{"model":"other"}', b'{"model":"mm"}', b'{"messages":["\\"model\\":\\"m\\""]}'):
        with pytest.raises(DispatchError):
            record.sends(outgoing(body))
    assert record.usage_so_far().coverage == "refused"
    record.sends(outgoing(b'{"model":"m","stream":true}'))
    assert record.usage_so_far().coverage == "interrupted"


async def test_nothing_is_loaded_before_it_is_needed() -> None:
    """Importing the models loads neither SDK nor library nor HTTP client; preparing them does."""
    import sys

    code = (
        "import sys, remit.models; "
        "sys.exit(any(name in sys.modules for name in ('openai', 'pydantic_ai', 'httpx2', 'yaml')))"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await process.wait() == 0
