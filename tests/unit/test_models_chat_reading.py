"""What a Chat Completions stream leaves in the record, piece by piece."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from model_kit import request
from remit.models._attempt import AttemptCall
from remit.models._chat_exchange import ChatExchange
from remit.models._chat_observer import ChatObserver
from remit.models._reading import ChunkShapeError
from remit.models._transport import Waits

STOP = {"index": 0, "delta": {}, "finish_reason": "stop"}


def record(*values: Any) -> bytes:
    return b"".join(f"data: {json.dumps(value)}\n\n".encode() for value in values)


def choice(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


def usage(prompt: int, completion: int) -> dict[str, Any]:
    total = prompt + completion
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}


def exchange() -> ChatExchange:
    call = AttemptCall(
        request=request(), attempt_id="att", model="m", full_model="p:m", max_output_tokens=None
    )
    made = ChatExchange(
        call=call,
        waits=Waits(first_byte_s=1, idle_s=1),
        mask=str,
        used_ids=(),
        new_id=lambda: "made",
        now=lambda: datetime.now(UTC),
    )
    body: Any = SimpleNamespace(content=b'{"model":"m"}')
    made.sends(body)
    made.status = 200
    return made


def test_a_fault_after_the_reason_to_stop_leaves_the_bill_open() -> None:
    """R21, R69: usage that came before a record that can't be read isn't the whole reply's."""
    heard = exchange()
    heard.feed(record({"choices": [STOP], "usage": usage(7, 3)}))
    assert heard.usage_so_far().coverage == "reported"
    with pytest.raises(ChunkShapeError):
        heard.feed(b"data: nonsense\n\n")
    assert not heard.complete
    assert heard.usage_so_far().coverage == "interrupted"
    broken = heard.broken(None)
    assert broken is not None
    assert (broken.status, broken.reason, broken.usage.coverage) == ("failed", "protocol", "interrupted")


def test_where_the_network_cuts_a_record_is_no_oddity() -> None:
    """R69: only what follows the end mark is an odd tail, not a record that comes in two pieces."""
    observer = ChatObserver(used_ids=(), new_id=str)
    whole = record(choice(content="a"), {"choices": [STOP]}) + b"data: [DONE]\n\n"
    for place in range(len(whole)):
        observer.feed(whole[place : place + 1])
    assert observer.reading.done
    assert observer.reading.flags == []


@pytest.mark.parametrize(
    ("second", "flags"), [(usage(7, 3), []), (usage(7, 4), []), (usage(7, 2), ["usage_shrank"])]
)
def test_counts_that_shrink_are_flagged(second: dict[str, Any], flags: list[str]) -> None:
    """R20: the last usage counts; one that is smaller than an earlier one says so, the same again doesn't."""
    observer = ChatObserver(used_ids=(), new_id=str)
    observer.feed(record({"choices": [], "usage": usage(7, 3)}, {"choices": [], "usage": second}))
    assert observer.reading.flags == flags
    assert observer.reading.usage is not None
    assert observer.reading.usage.raw == second


def test_a_usage_that_is_no_object_is_flagged() -> None:
    """R84: the SDK isn't shown it, the record says so, and the bill stays unknown, never a measured zero."""
    observer = ChatObserver(used_ids=(), new_id=str)
    shown = observer.feed(record({"choices": [STOP], "usage": [1, 2]}))
    assert observer.reading.flags == ["bad_usage"]
    assert observer.reading.usage is None
    assert b'"usage":null' in shown.replace(b" ", b"")


def test_only_the_first_choice_is_the_reply() -> None:
    """R69: one answer was asked for; a second one neither ends the reply nor adds to it."""
    observer = ChatObserver(used_ids=(), new_id=str)
    second = {"index": 1, "delta": {"refusal": "no", "content": "b"}, "finish_reason": "stop"}
    observer.feed(record({"choices": [{"index": 0, "delta": {"content": "a"}}, second]}))
    assert not observer.reading.complete
    assert (observer.reading.finish_word, observer.reading.refusal) == (None, "")


def test_what_was_said_stays_said() -> None:
    """R21: an error after text is a cut reply, however many empty pieces came in between."""
    heard = exchange()
    heard.feed(record(choice(content="a"), choice(content=""), choice(), {"error": {"message": "gone"}}))
    broken = heard.broken(None)
    assert broken is not None
    assert (heard.began, broken.status) == (True, "cut")
