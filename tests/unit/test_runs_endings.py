"""What an error makes of a run."""

from __future__ import annotations

import asyncio

import pytest

from remit.errors import InternalError, LimitReached, NodeError, ProviderError, StorageFull
from remit.runs._endings import classify_error
from remit.stages._ports import StageFailure

CASES = [
    (StageFailure("invalid_output", "work"), "invalid_output", "work"),
    (ProviderError("no", reason="auth"), "provider", "auth"),
    (NodeError("no", reason="lost"), "workspace", "lost"),
    (StorageFull("full"), "workspace", "storage_full"),
    (LimitReached("no", limit_code="tokens", kind="max_total_tokens", value=9, cap=8), "budget", "tokens"),
    (ZeroDivisionError(), "internal", "invariant"),
    (asyncio.CancelledError(), "provider", "unavailable"),
]


@pytest.mark.parametrize(("error", "class_", "code"), CASES)
def test_each_error_has_its_terminal(error: BaseException, class_: str, code: str) -> None:
    """S61, S62: the class comes from the type; a raw cancellation below a live parent is the provider's."""
    terminal = classify_error(error, stage_id="work-1")
    assert (terminal.kind, terminal.class_, terminal.code) == ("failed", class_, code)
    assert terminal.stage == "work-1"


def test_of_several_errors_the_one_with_precedence_wins() -> None:
    """Budget comes before provider, and provider before workspace."""
    group = ExceptionGroup(
        "both",
        [
            NodeError("no", reason="lost"),
            ExceptionGroup("inner", [ProviderError("no", reason="cut")]),
            LimitReached("no", limit_code="cost", kind="max_cost_usd", value=2.0, cap=1.0),
        ],
    )
    assert classify_error(group, stage_id=None).class_ == "budget"


def test_upstream_text_does_not_reach_the_terminal() -> None:
    """S73: a terminal has its fixed sentence; a provider's text stays in the attempt's record."""
    terminal = classify_error(ProviderError("key sk-123 refused", reason="auth"), stage_id="plan")
    assert "sk-123" not in (terminal.message or "")


def test_an_unknown_code_is_our_own_fault() -> None:
    """Codes are a closed set."""
    with pytest.raises(InternalError):
        classify_error(ProviderError("no", reason="bored"), stage_id=None)
