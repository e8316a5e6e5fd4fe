"""What goes through the doors, counted for whoever looks after a host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager

from remit.primitives import Clock
from remit.work import Metrics

REQUESTS = "remit_http_requests_total"
REQUEST_MS = "remit_http_request_ms"


class Traffic:
    """Counts requests and open streams."""

    def __init__(self, clock: Clock) -> None:
        self.metrics = Metrics()
        self.open: Counter[str] = Counter()
        """Open requests by kind: `request`, and of them `stream`."""
        self._clock = clock

    @contextmanager
    def request(self) -> Generator[Callable[[str | None, int | None], None]]:
        """One request: call what is given with its operation and the status of its answer."""
        begun = self._clock.monotonic()
        self.open["request"] += 1

        def counted(operation: str | None, status: int | None) -> None:
            labels = {"operation": operation or "none"}
            took_ms = round((self._clock.monotonic() - begun) * 1000)
            self.metrics.count(REQUESTS, labels={**labels, "status": str(status or 0)})
            self.metrics.record_ms(REQUEST_MS, took_ms, labels=labels)

        try:
            yield counted
        finally:
            self.open["request"] -= 1

    @contextmanager
    def stream(self) -> Generator[None]:
        """One open stream."""
        self.open["stream"] += 1
        try:
            yield
        finally:
            self.open["stream"] -= 1
