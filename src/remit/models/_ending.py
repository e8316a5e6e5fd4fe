"""How an attempt came to its end, as the ledger is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from remit.models._attempt import NOTHING_SENT, AttemptCall, Broken, Completed, Exchange, Outcome
from remit.models._port import AttemptFinish

_MAX_DETAIL = 2_000


@dataclass(slots=True, kw_only=True)
class Ending:
    """How an attempt came to its end."""

    call: AttemptCall
    exchange: Exchange
    waited_ms: int
    sent: bool = False
    stopped: Literal["cancelled", "failed"] = "cancelled"
    """Why there is no outcome."""
    outcome: Outcome | None = None

    def finish(self, duration_ms: int) -> AttemptFinish:
        """The record of it."""
        base: dict[str, Any] = {
            "attempt_id": self.call.attempt_id,
            "finish": self.exchange.finish_word,
            "provider_request_id": self.exchange.provider_request_id,
            "duration_ms": duration_ms,
            "waited_ms": self.waited_ms,
        }
        match self.outcome:
            case None:
                usage = self.exchange.usage_so_far() if self.sent else NOTHING_SENT
                code = "protocol" if self.stopped == "failed" else None
                return AttemptFinish(status=self.stopped, usage=usage, code=code, **base)
            case Completed(usage=usage):
                return AttemptFinish(status="completed", usage=usage, **base)
            case Broken(status=status, usage=usage, reason=reason, detail=detail):
                detail = detail[:_MAX_DETAIL]
                return AttemptFinish(status=status, usage=usage, code=reason, detail=detail, **base)
