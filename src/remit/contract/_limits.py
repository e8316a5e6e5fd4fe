"""The bounds of a run. One set of names for API, CLI and config."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from remit.contract._model import Model, Money

_Positive = Annotated[int, Field(gt=0, le=2**53 - 1, strict=True)]
_Count = Annotated[int, Field(ge=0, le=2**53 - 1, strict=True)]


class LimitRequest(Model):
    """Limits as a caller or a config file states them: only what is to be narrower.

    0 or less, NaN and unknown names are refused; 10 ms is legal. Of two statements of one limit
    the narrower counts.
    """

    wall_clock_ms: _Positive | None = None
    """Milliseconds from `started_at`; what is left when the run starts is stored as `deadline_at`."""
    max_queue_ms: _Positive | None = None
    """Milliseconds in the queue, after which the run ends `failed/budget` code `queue`."""
    stage_timeout_ms: _Positive | None = None
    """Milliseconds for each single stage."""
    max_tool_rounds: _Positive | None = None
    """Rounds with tools per stage; one more request, tools withheld, must then answer."""
    max_tool_calls_per_round: _Positive | None = None
    """Tool calls of one round that are executed; the others get an error result."""
    max_corrections: _Count | None = None
    """How often a stage is told that its answer was invalid."""
    max_revisions: _Count | None = None
    """How often a review may send the work back."""
    max_input_tokens: _Positive | None = None
    """Tokens sent, over the whole tree of the run. A stage's last request within it is for the answer."""
    max_output_tokens: _Positive | None = None
    """Tokens received, reasoning included, over the whole tree of the run; the same."""
    max_total_tokens: _Positive | None = None
    """Both together; the same."""
    max_cost_usd: Money | None = None
    """USD over the whole tree of the run; the same."""
    max_children: _Count | None = None
    """Child runs over the whole tree."""
    tool_timeout_ms: _Positive | None = None
    """Milliseconds for one tool call that asks for no time of its own."""
    max_tool_output_bytes: _Positive | None = None
    """Bytes of one tool result that the model is shown, head and tail."""
    working_limit_ms: _Positive | None = None
    """Milliseconds of work: waits for the queue and for rate limits don't count."""


class Limits(Model):
    """The limits that a run is held to. None means: no such limit."""

    wall_clock_ms: int = 3_600_000
    max_queue_ms: int | None = None
    stage_timeout_ms: int | None = None
    """None: the wall clock."""
    max_tool_rounds: int = 200
    max_tool_calls_per_round: int = 16
    max_corrections: int = 2
    max_revisions: int = 1
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_total_tokens: int | None = None
    max_cost_usd: Money | None = None
    max_children: int = 8
    tool_timeout_ms: int = 120_000
    max_tool_output_bytes: int = 16_384
    working_limit_ms: int | None = None
