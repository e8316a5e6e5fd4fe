"""May it run, now: bindings, what a request may change of them, prices, sessions, places.

A decision is `Admitted`, `Deferred` (the same request may be admitted later) or `Rejected` (it must be
changed). Whether an id or key was used before is the store's to say, in one transaction with the run's row.
"""

from remit.admission._admission import Admission, AdmissionSettings, queue_full
from remit.admission._bindings import (
    ALL_OVERRIDES,
    DEFAULT_OVERRIDES,
    STAGES_OF,
    Binding,
    Override,
    StageBinding,
)
from remit.admission._decision import DEFAULT_POOL, Admitted, Decision, Deferred, Rejected, decide, models_of
from remit.admission._effective import effective_binding
from remit.admission._permits import (
    PermitAnswer,
    PermitGranted,
    PermitQueued,
    PermitRefused,
    Permits,
    Place,
    Share,
)
from remit.admission._ports import Caller, Catalog, SessionFacts, Sessions

__all__ = [
    "ALL_OVERRIDES",
    "DEFAULT_OVERRIDES",
    "DEFAULT_POOL",
    "STAGES_OF",
    "Admission",
    "AdmissionSettings",
    "Admitted",
    "Binding",
    "Caller",
    "Catalog",
    "Decision",
    "Deferred",
    "Override",
    "PermitAnswer",
    "PermitGranted",
    "PermitQueued",
    "PermitRefused",
    "Permits",
    "Place",
    "Rejected",
    "SessionFacts",
    "Sessions",
    "Share",
    "StageBinding",
    "decide",
    "effective_binding",
    "models_of",
    "queue_full",
]
