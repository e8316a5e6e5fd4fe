"""A host that is full or draining, and the ids that it gives."""

from __future__ import annotations

from typing import Any

from remit.admission import Admission, AdmissionSettings, Admitted, Binding, Deferred, Rejected
from remit.errors import Draining, InvalidRequest, QueueFull, RequestError
from remit.primitives import SystemIds
from remit.requests import parse_request
from work_kit import StillClock


class Models:
    """One pool, and a price for everything."""

    def models_of(self, pool: str) -> tuple[str, ...] | None:
        return ("openai:gpt-5.2",) if pool == "default" else None

    def refusal(self, model: str) -> RequestError | None:
        return None if model.startswith("openai:") else InvalidRequest("not here", param="model")

    def takes_images(self, model: str, *, pool: str | None) -> bool:
        return True

    def is_priced(self, model: str) -> bool:
        return self.refusal(model) is None


BINDINGS = {"reviewed": Binding(name="reviewed", workspace="app")}


def _admission(**settings: Any) -> Admission:
    return Admission(
        AdmissionSettings(default_binding="reviewed", **settings),
        BINDINGS,
        catalog=Models(),
        clock=StillClock(),
        ids=SystemIds(),
    )


def test_full_host_says_later() -> None:
    """A place is looked for after everything else: a wrong request is told so even when the host is full."""
    admission = _admission(max_running=1, max_queued=1)
    parsed = parse_request({"prompt": "x"})
    for _ in range(2):
        decision = admission.decide(parsed)
        assert isinstance(decision, Admitted)
        admission.permits.ask(decision.run.id)
    full = admission.decide(parsed)
    assert isinstance(full, Deferred)
    assert isinstance(full.error, QueueFull)
    assert full.error.fields["retry_after_ms"] > 0
    assert isinstance(admission.decide(parse_request({"prompt": "x", "binding": "nothing"})), Rejected)


def test_draining_host_takes_no_more_work() -> None:
    """R62: 503 and come back later."""
    admission = _admission()
    assert not admission.draining
    admission.drain()
    decision = admission.decide(parse_request({"prompt": "x"}))
    assert isinstance(decision, Deferred)
    assert isinstance(decision.error, Draining)
    assert decision.error.status == 503


def test_each_run_gets_an_id_of_its_own() -> None:
    """From the ids that were passed in."""
    admission = _admission()
    decisions = [admission.decide(parse_request({"prompt": "x"})) for _ in range(3)]
    assert len({decision.run.id for decision in decisions if isinstance(decision, Admitted)}) == 3
    assert set(admission.bindings) == set(BINDINGS)
