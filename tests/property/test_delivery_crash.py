"""A delivery that dies at any step leaves the base or the result, byte for byte."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings

from delivery_bench import Fault, Killed, make_order
from remit.errors import NodeError
from remit.workspaces._delivery import Deliveries, DeliveryOrder
from tree_model import Tree, pairs, read_back

CLASHES = (
    ({"a": ("100644", b"x")}, {"a/b": ("100755", b"y")}),
    ({"a/b": ("100644", b"x"), "a/c/d": ("100644", b"x")}, {"a": ("120000", b"t")}),
    ({"a/b/c": ("100644", b"x"), "e": ("100755", b"")}, {"e": ("100644", b"")}),
    ({"a": ("120000", b"t"), "b/c": ("100644", b"1")}, {"a": ("100644", b"t"), "b/c": ("120000", b"1")}),
)


def names_left(folder: Path) -> list[str]:
    """Spare names of ours in a tree."""
    return [path.name for path in folder.rglob(".remit-*")]


def count_steps(base: Tree, result: Tree) -> int:
    """How many steps an undisturbed delivery has."""
    with tempfile.TemporaryDirectory() as name:
        fault = Fault()
        order = make_order(Path(name), base, result)
        outcome = Deliveries(Path(name) / "data", fault=fault).deliver(order)
        assert outcome.status in ("delivered", "empty")
        assert read_back(order.root) == result
        return len(fault.steps)


@settings(max_examples=5)
@given(pair=pairs())
@example(pair=CLASHES[0])
@example(pair=CLASHES[1])
@example(pair=CLASHES[2])
@example(pair=CLASHES[3])
def test_killed_at_every_step(pair: tuple[Tree, Tree]) -> None:
    """R60: after a kill at any step the next remit makes the tree base or result; nothing is left over."""
    base, result = pair
    for at in range(count_steps(base, result)):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            order = make_order(folder, base, result)
            with pytest.raises(Killed):
                Deliveries(folder / "data", fault=Fault(at)).deliver(order)
            found = Deliveries(folder / "data").recover()
            assert len(found) <= 1
            now = read_back(order.root)
            done = bool(found) and found[0].how != "back"
            assert now == (result if done else base)
            assert names_left(folder / "root") == []
            outcome = Deliveries(folder / "data").deliver(order)
            assert (outcome.status, outcome.repeated) == ("delivered", done)
            assert read_back(order.root) == result


@settings(max_examples=4)
@given(pair=pairs())
@example(pair=CLASHES[0])
@example(pair=CLASHES[1])
def test_killed_again_while_it_is_taken_back(pair: tuple[Tree, Tree]) -> None:
    """R60: a recovery that dies is taken up by the next one."""
    base, result = pair
    steps = count_steps(base, result)
    for at in range(1, steps, max(1, steps // 5)):
        for again in range(0, 40, 3):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                order = make_order(folder, base, result)
                with pytest.raises(Killed):
                    Deliveries(folder / "data", fault=Fault(at)).deliver(order)
                fault = Fault(again)
                try:
                    Deliveries(folder / "data", fault=fault).recover()
                except Killed:
                    Deliveries(folder / "data").recover()
                assert read_back(order.root) in (base, result)
                assert names_left(folder / "root") == []
            if len(fault.steps) <= again:
                break


def attempt(folder: Path, order: DeliveryOrder, fault: Fault) -> NodeError | None:
    """Deliver; the error it ended with, if any."""
    try:
        Deliveries(folder / "data", fault=fault).deliver(order)
    except NodeError as error:
        return error
    return None


@settings(max_examples=5)
@given(pair=pairs())
@example(pair=CLASHES[0])
@example(pair=CLASHES[1])
@example(pair=CLASHES[3])
def test_an_error_at_any_step_changes_nothing(pair: tuple[Tree, Tree]) -> None:
    """R60: no space or no permission in the middle: all is rolled back at once, and the error says so."""
    base, result = pair
    for at in range(count_steps(base, result)):
        for number, reason in ((errno.ENOSPC, "storage_full"), (errno.EACCES, "refused")):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                order = make_order(folder, base, result)
                fault = Fault(at, OSError(number, "no"))
                failed = attempt(folder, order, fault)
                if failed:
                    assert failed.reason == reason
                    assert read_back(order.root) == base
                    assert names_left(folder / "root") == []
                    assert Deliveries(folder / "data").recover() == ()
                else:  # it failed while tidying up: it is done all the same
                    assert fault.steps[at].startswith(("clean", "tidy"))
                    assert [found.how for found in Deliveries(folder / "data").recover()] == ["cleaned"]
                    assert read_back(order.root) == result


@settings(max_examples=5)
@given(pair=pairs())
@example(pair=CLASHES[0])
@example(pair=CLASHES[1])
@example(pair=CLASHES[3])
def test_undo_is_the_way_back(pair: tuple[Tree, Tree]) -> None:
    """Undo restores the base byte for byte, at every kill too; doing it twice does nothing."""
    base, result = pair
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        order = make_order(folder, base, result)
        deliveries = Deliveries(folder / "data")
        if deliveries.deliver(order).status == "empty":
            return
        assert deliveries.find_delivered(order.run_id) == (order.content_hash,)
        fault = Fault()
        assert (
            Deliveries(folder / "data", fault=fault).undo(order.run_id, order.content_hash).status == "undone"
        )
        assert read_back(order.root) == base
        again = deliveries.undo(order.run_id, order.content_hash)
        assert (again.status, again.repeated) == ("undone", True)
        assert deliveries.find_delivered(order.run_id) == ()
        for at in range(len(fault.steps)):
            assert deliveries.deliver(order).repeated is False
            with pytest.raises(Killed):
                Deliveries(folder / "data", fault=Fault(at)).undo(order.run_id, order.content_hash)
            found = deliveries.recover()
            back = bool(found) and found[0].how != "back"
            assert read_back(order.root) == (base if back else result)
            assert deliveries.undo(order.run_id, order.content_hash).repeated is back
            assert read_back(order.root) == base
