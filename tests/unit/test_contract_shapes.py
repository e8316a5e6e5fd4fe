"""The shapes of the contract."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError

from remit import contract
from remit.contract import CLI_EXIT, CODES, LimitRequest, Limits, RunRequest, RunView, Terminal

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def view(**more: Any) -> RunView:
    values = {
        "id": "run_1",
        "session_id": "run_1",
        "root_run_id": "run_1",
        "binding": "reviewed",
        "profile": "reviewed",
        "created_at": NOW,
        "limits": Limits(),
    }
    return RunView.model_validate({**values, **more})


def test_a_run_has_the_same_keys_always() -> None:
    """R16: the keys of interfaces, section 1, all of them, null where there is no value."""
    keys = [
        "id",
        "session_id",
        "parent_run_id",
        "root_run_id",
        "continues",
        "binding",
        "profile",
        "status",
        "cancel_requested",
        "created_at",
        "started_at",
        "deadline_at",
        "ended_at",
        "workspace",
        "limits",
        "metadata",
        "terminal",
        "output",
        "review",
        "checks",
        "patch",
        "delivery",
        "usage",
        "cost_usd",
        "estimated_max_cost_usd",
        "cancel",
        "abandoned",
        "queue_position",
    ]
    assert list(view().to_json()) == keys
    assert list(view(terminal=Terminal.of("provider", "auth"), output="x").to_json()) == keys
    assert view().to_json()["created_at"] == "2026-11-30T00:00:00.000000Z"


@pytest.mark.parametrize("class_", list(CODES))
def test_every_code_has_its_terminal(class_: Any) -> None:
    """S73: kind, class, code, and one fixed sentence; each class has its exit code."""
    assert set(CLI_EXIT) == {*CODES, None}
    for code, sentence in CODES[class_].items():
        terminal = Terminal.of(class_, code)
        assert terminal.message == sentence
        assert sentence.endswith(".")
        assert terminal.kind == {
            "cancelled": "cancelled",
            "usage": "indeterminate",
            "lost": "indeterminate",
        }.get(class_, "failed")


def test_unknown_codes_are_refused() -> None:
    """Codes are a closed set."""
    with pytest.raises(KeyError):
        Terminal.of("provider", "bored")


@pytest.mark.parametrize("value", [0, -1, 1.5, "3", True, 2**53, float("nan")])
def test_limits_are_positive_numbers(value: object) -> None:
    """R55, R84: 0 or less, NaN, text, fractions and booleans aren't limits."""
    with pytest.raises(ValidationError):
        LimitRequest.model_validate({"wall_clock_ms": value})


def test_unknown_limits_are_refused_and_10_ms_is_legal() -> None:
    """S76, R55: an unknown limit is an error, 10 ms is not."""
    with pytest.raises(ValidationError):
        LimitRequest.model_validate({"max_tokens": 5})
    assert LimitRequest.model_validate({"wall_clock_ms": 10}).wall_clock_ms == 10


def test_requests_are_closed() -> None:
    """Unknown fields are refused, prompt and content exclude one another, ids are checked."""
    for wrong in (
        {},
        {"prompt": "x", "content": []},
        {"prompt": "x", "promt": "y"},
        {"prompt": "x", "id": "a/b"},
    ):
        with pytest.raises(ValidationError):
            RunRequest.model_validate(wrong)
    request = RunRequest.model_validate({"prompt": "x", "delivery": "apply"})
    assert request.delivery is not None
    assert request.delivery.mode == "apply"


def test_times_without_a_zone_are_refused() -> None:
    """A moment names its zone."""
    with pytest.raises(ValidationError):
        view(created_at=datetime(2026, 1, 1))


def test_every_name_is_exported_once() -> None:
    """`__all__` is what there is."""
    assert len(set(contract.__all__)) == len(contract.__all__)
    for name in contract.__all__:
        assert hasattr(contract, name)


@pytest.mark.parametrize("text", ["5", "0.1", "0.000001", "123456789.123456", "1E+3"])
def test_money_is_a_number_in_json_and_exact_inside(text: str) -> None:
    """Interfaces 2, 6: a cap is a number wherever JSON goes out, and comes back to the same amount."""
    limits = Limits.model_validate({"max_cost_usd": text})
    assert limits.max_cost_usd == Decimal(text)
    shown = view(limits=limits).to_json()["limits"]["max_cost_usd"]
    assert type(shown) is float
    assert Limits.model_validate_json(limits.model_dump_json()) == limits
    assert Limits.model_validate({"max_cost_usd": shown}) == limits


def test_money_with_more_digits_than_a_number_carries_is_refused() -> None:
    """Interfaces 2: no cap is silently another one."""
    with pytest.raises(ValidationError, match="15 digits"):
        LimitRequest.model_validate({"max_cost_usd": "1.000000000000001"})
