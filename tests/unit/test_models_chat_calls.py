"""Which streamed piece belongs to which tool call."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from remit.models._chat_calls import CallSlots
from remit.models._reading import ChunkShapeError


def sort(*chunks: list[Any], used: tuple[str, ...] = ()) -> list[tuple[str, str, str]]:
    """Feed chunks of pieces; what the calls are then: id, name, arguments."""
    made = (f"made_{number}" for number in itertools.count(1))
    slots = CallSlots(used_ids=used, new_id=lambda: next(made))
    seen: dict[int, list[str]] = {}
    for chunk in chunks:
        for piece in slots.sort(chunk):
            call = seen.setdefault(piece["index"], ["", "", ""])
            call[0] += piece["id"] or ""
            call[1] += piece["function"]["name"] or ""
            call[2] += piece["function"]["arguments"] or ""
    result = [(call[0], call[1], call[2]) for _, call in sorted(seen.items())]
    assert result == [(slot.call_id, slot.name, slot.arguments) for slot in slots.slots]
    return result


def piece(
    arguments: str | None = None, *, index: Any = 0, call_id: str | None = None, name: str | None = None
) -> dict[str, Any]:
    value: dict[str, Any] = {"index": index, "function": {}}
    if call_id is not None:
        value["id"] = call_id
    if name is not None:
        value["function"]["name"] = name
    if arguments is not None:
        value["function"]["arguments"] = arguments
    return value


def test_calls_as_the_real_one_sends_them() -> None:
    """R26: two calls to one tool, streamed one after the other, stay two."""
    assert sort(
        [piece("", call_id="a", name="read")],
        [piece('{"p":')],
        [piece("1}")],
        [piece("", index=1, call_id="b", name="read")],
        [piece("{}", index=1)],
    ) == [("a", "read", '{"p":1}'), ("b", "read", "{}")]


def test_interleaved_calls() -> None:
    """R26: pieces of two calls may alternate."""
    assert sort(
        [piece("", call_id="a", name="x"), piece("", index=1, call_id="b", name="y")],
        [piece("{", index=1), piece("[", index=0)],
        [piece("]", index=0), piece("}", index=1)],
    ) == [("a", "x", "[]"), ("b", "y", "{}")]


@pytest.mark.parametrize("index", [0, None, "absent"])
def test_every_call_has_the_same_index(index: Any) -> None:
    """R26: parallel calls that all say index 0, or none, are told apart by their ids."""
    pieces = [piece(f'{{"n":{n}}}', index=index, call_id=f"c{n}", name="add") for n in range(3)]
    if index == "absent":
        for item in pieces:
            del item["index"]
    assert sort(*([item] for item in pieces)) == [(f"c{n}", "add", f'{{"n":{n}}}') for n in range(3)]


def test_same_index_and_no_ids() -> None:
    """R26: whole calls without ids get one each."""
    assert sort(
        [piece('{"n":1}', name="add")], [piece('{"n":2}', name="add")], [piece('{"n":3}', name="add")]
    ) == [("made_1", "add", '{"n":1}'), ("made_2", "add", '{"n":2}'), ("made_3", "add", '{"n":3}')]


def test_empty_and_doubled_ids_are_replaced() -> None:
    """R26: unique ids in the history, whatever the provider gives; the arguments stay as they are."""
    assert sort(
        [piece('{"n":1}', index=0, call_id="same", name="a")],
        [piece('{"n":2}', index=1, call_id="same", name="a")],
        [piece('{"n":3}', index=2, call_id="", name="b")],
    ) == [("same", "a", '{"n":1}'), ("made_1", "a", '{"n":2}'), ("made_2", "b", '{"n":3}')]


def test_doubled_ids_in_interleaved_pieces() -> None:
    """R26: the index wins where there is one, even when two calls share an id."""
    assert sort(
        [piece("", index=0, call_id="same", name="a"), piece("", index=1, call_id="same", name="a")],
        [piece('{"n":1}', index=0)],
        [piece('{"n":2}', index=1)],
    ) == [("same", "a", '{"n":1}'), ("made_1", "a", '{"n":2}')]


def test_an_id_of_the_conversation_is_not_given_twice() -> None:
    """R26: some servers number the calls of each reply anew."""
    assert sort([piece("{}", call_id="call_0", name="a")], used=("call_0",)) == [("made_1", "a", "{}")]


def test_a_resend_is_not_a_new_call() -> None:
    """R26: the whole call once more at the end, with the same id or index or another, changes nothing."""
    whole = piece('{"n":1}', call_id="a", name="add")
    again = piece('{"n":1}', index=5, call_id="a", name="add")
    assert sort([piece("", call_id="a", name="add")], [piece('{"n":1}')], [whole], [again]) == [
        ("a", "add", '{"n":1}')
    ]


def test_id_and_name_in_every_piece() -> None:
    """R26: a name that is repeated isn't a longer name."""
    assert sort(
        [piece('{"a"', call_id="x", name="add")],
        [piece(":1", call_id="x", name="add")],
        [piece("}", call_id="x", name="add")],
    ) == [("x", "add", '{"a":1}')]


def test_another_id_in_each_piece_of_one_call() -> None:
    """R26: the first id counts; only a piece with a name begins another call."""
    assert sort(
        [piece("", call_id="x1", name="add")], [piece("{", call_id="x2")], [piece("}", call_id="x3")]
    ) == [("x1", "add", "{}")]


def test_other_fields_of_a_piece_stay() -> None:
    """R29: opaque fields beside id and function are kept."""
    slots = CallSlots(used_ids=(), new_id=lambda: "made")
    (sorted_piece,) = slots.sort([piece("{}", name="a", call_id="x") | {"extra_content": {"s": "sig"}}])
    assert sorted_piece["extra_content"] == {"s": "sig"}


def test_arguments_that_come_as_an_object() -> None:
    """R31: an object in place of its text is that object's text."""
    assert sort([{"index": 0, "id": "x", "function": {"name": "a", "arguments": {"k": "é"}}}]) == [
        ("x", "a", '{"k": "é"}')
    ]


@pytest.mark.parametrize(
    "bad",
    [
        "text",
        7,
        None,
        {"function": "x"},
        {"function": {"name": 3}},
        {"id": [1]},
        {"function": {"arguments": 3}},
    ],
)
def test_garbage_is_told(bad: Any) -> None:
    """R31: what isn't a call is an error of the reply, never a call."""
    with pytest.raises(ChunkShapeError):
        sort([bad])
