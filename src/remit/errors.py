"""Everything that can go wrong, drawn by whose move is next.

    RemitError
    ├── RequestError        the caller must change what was asked          (4xx, exit 2)
    │   ├── InvalidRequest          a field is wrong; `param` names it
    │   ├── MalformedRequest        it can't be read at all
    │   ├── Unauthenticated         no key, or none that counts
    │   ├── Forbidden               the key, or the place it comes from, doesn't allow it
    │   ├── MethodNotAllowed, UnsupportedMedia, UnknownHost, TooSlow     what HTTP has words of its own for
    │   ├── ConfigError             a setting is wrong; names the line or the dotted path
    │   ├── PriceUnknown            a money cap, and a model nobody priced
    │   ├── CapSpent                the key has spent all that it may
    │   ├── PayloadTooLarge         bigger than the stated bound
    │   ├── NotFound                no such run, binding, workspace (or not yours)
    │   ├── IdempotencyConflict     the same key, another body
    │   └── PreconditionFailed      right request, wrong moment (undo after an edit, a run not ended)
    ├── AdmissionError      come back later                                (429/503, exit 75)
    │   ├── QueueFull
    │   ├── QuotaExceeded
    │   ├── SessionBusy
    │   └── Draining
    ├── RunError            an admitted run ended otherwise than completed
    │   ├── RunFailed
    │   ├── RunCancelled
    │   │   └── RunExpired              the caller's own deadline ended it: a TimeoutError, too
    │   └── RunIndeterminate
    ├── ProviderError       a model request failed for good (`reason` = a provider code)
    ├── LimitReached        a bound of the run was reached (`limit_code` = a budget code)
    ├── NodeError           a node couldn't do what it was asked (`reason` = a workspace code)
    ├── HostUnreachable     the host that was named doesn't answer         (exit 69)
    ├── OwnershipError      somebody else owns this run now
    │   ├── StaleGeneration
    │   └── AlreadyDecided
    ├── StorageError        the store couldn't keep it
    │   ├── StorageFull
    │   ├── StorageBusy
    │   └── SchemaTooNew
    ├── MisuseError         the program that calls us is wrong
    └── InternalError       we are wrong: an invariant doesn't hold

A leaf carries a stable `code`, an HTTP `status`, and `retryable`. All of them survive pickle and
JSON. What is expected is a value and not here; what a model is to see is a value of its own.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "AdmissionError",
    "AlreadyDecided",
    "CapSpent",
    "ConfigError",
    "Draining",
    "Forbidden",
    "HostUnreachable",
    "IdempotencyConflict",
    "InternalError",
    "InvalidRequest",
    "LimitReached",
    "MalformedRequest",
    "MethodNotAllowed",
    "MisuseError",
    "NodeError",
    "NotFound",
    "OwnershipError",
    "PayloadTooLarge",
    "PreconditionFailed",
    "PriceUnknown",
    "ProviderError",
    "QueueFull",
    "QuotaExceeded",
    "RemitError",
    "RequestError",
    "RunCancelled",
    "RunError",
    "RunExpired",
    "RunFailed",
    "RunIndeterminate",
    "SchemaTooNew",
    "SessionBusy",
    "StaleGeneration",
    "StorageBusy",
    "StorageError",
    "StorageFull",
    "TooSlow",
    "Unauthenticated",
    "UnknownHost",
    "UnsupportedMedia",
]


class RemitError(Exception):
    """Anything that Remit raises on purpose.

    Args:
        message: One sentence that says what happened and what to do.
        fields: Typed details, JSON values only; they are part of the error's equality and pickle.
    """

    code: ClassVar[str] = "error"
    """Stable word for programs; never changes once released."""
    status: ClassVar[int] = 500
    """The HTTP status a door answers with."""
    retryable: ClassVar[bool] = False
    """Whether the same request may succeed later without being changed."""
    exit_code: ClassVar[int] = 1
    """What the CLI exits with."""

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.fields))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RemitError)
            and type(self) is type(other)
            and self.message == other.message
            and self.fields == other.fields
        )

    def __hash__(self) -> int:
        return hash((type(self), self.message))

    def to_json(self) -> dict[str, Any]:
        """The error as a JSON object: `{code, message, retryable, ...fields}`."""
        return {"code": self.code, "message": self.message, "retryable": self.retryable, **self.fields}


def _rebuild(kind: type[RemitError], message: str, fields: dict[str, Any]) -> RemitError:
    return kind(message, **fields)


class RequestError(RemitError):
    """The caller must change what was asked."""

    code = "request"
    status = 400
    exit_code = 2


class InvalidRequest(RequestError):
    """A field of the request is wrong; `fields["param"]` names it where one is to blame."""

    code = "invalid_request"
    status = 422


class MalformedRequest(RequestError):
    """The request can't be read: it isn't JSON, or not one that we take."""

    code = "malformed_request"


class Unauthenticated(RequestError):
    """No key came with the request, or none that counts."""

    code = "unauthenticated"
    status = 401


class Forbidden(RequestError):
    """The key doesn't allow this, or the page that the request comes from doesn't."""

    code = "forbidden"
    status = 403


class MethodNotAllowed(RequestError):
    """The path takes other methods; `fields["allow"]` names them."""

    code = "method_not_allowed"
    status = 405


class TooSlow(RequestError):
    """The request's body didn't come in time."""

    code = "too_slow"
    status = 408


class UnsupportedMedia(RequestError):
    """The body is of a type that isn't taken: only JSON is."""

    code = "unsupported_media"
    status = 415


class UnknownHost(RequestError):
    """The request names a host that isn't this one."""

    code = "unknown_host"
    status = 421


class ConfigError(RequestError):
    """A setting is wrong; the message names file and line, or the dotted path of the key."""

    code = "config"
    status = 422


class PriceUnknown(RequestError):
    """A money cap was given, and the model has no price."""

    code = "price_unknown"
    status = 422


class CapSpent(RequestError):
    """The key has spent what all its runs together may cost."""

    code = "cap_spent"
    status = 402


class PayloadTooLarge(RequestError):
    """Something sent is larger than the stated bound."""

    code = "payload_too_large"
    status = 413


class NotFound(RequestError):
    """Nothing of that name exists for this caller."""

    code = "not_found"
    status = 404


class IdempotencyConflict(RequestError):
    """The same key came with another body."""

    code = "idempotency_conflict"
    status = 409


class PreconditionFailed(RequestError):
    """The request is right, but the moment isn't: the thing it acts on is in another state."""

    code = "precondition_failed"
    status = 409


class AdmissionError(RemitError):
    """Not now. `fields["retry_after_ms"]` says when to come back, where that is known."""

    code = "admission"
    status = 503
    retryable = True
    exit_code = 75


class QueueFull(AdmissionError):
    """As many runs wait as the host allows."""

    code = "queue_full"


class QuotaExceeded(AdmissionError):
    """The caller's own share is used up."""

    code = "quota_exceeded"
    status = 429


class SessionBusy(AdmissionError):
    """The session has an active root run, and the request said `on_busy = "reject"`."""

    code = "session_busy"
    status = 409


class Draining(AdmissionError):
    """The host takes no more work."""

    code = "draining"


class RunError(RemitError):
    """A run ended otherwise than completed.

    `fields`: `run_id`, `kind`, `class` and `reason`, the terminal's own.
    """

    code = "run"
    status = 502

    @property
    def run_id(self) -> str | None:
        """The run; None where there was none."""
        return self.fields.get("run_id")

    @property
    def reason(self) -> str | None:
        """The terminal's code, such as `deadline`, `wall_clock` or `checks_failed`."""
        return self.fields.get("reason")


class RunFailed(RunError):
    """The run ended `failed`."""

    code = "run_failed"


class RunCancelled(RunError):
    """The run ended `cancelled`."""

    code = "run_cancelled"
    status = 499
    exit_code = 4


class RunExpired(RunCancelled, TimeoutError):
    """The run ended `cancelled`, code `deadline`: the caller's own deadline passed."""

    code = "run_expired"


class RunIndeterminate(RunError):
    """How the run ended, or what it cost, can't be proven."""

    code = "run_indeterminate"
    status = 500
    exit_code = 6


class ProviderError(RemitError):
    """A model request failed, and trying again won't help or isn't allowed.

    `fields`: `reason` (one of the provider codes: rate_limited auth unavailable context_length
    content_filter refusal empty_result protocol cut), `detail` (what the provider said, masked;
    for the attempt's record only).
    """

    code = "provider"
    status = 502

    @property
    def reason(self) -> str:
        """The provider code that a run ends with when nothing wins over it."""
        return str(self.fields.get("reason", "unavailable"))


class LimitReached(RemitError):
    """A bound of the run was reached.

    `fields`: `limit_code` (one of the budget codes), `kind` (the limit's name), `value`, `cap`.
    """

    code = "limit_reached"
    status = 504
    exit_code = 3

    @property
    def limit_code(self) -> str:
        """The budget code that a run ends with."""
        return str(self.fields["limit_code"])


class NodeError(RemitError):
    """A node couldn't do what it was asked.

    `fields["reason"]` is one of the workspace codes: `unavailable`, `lost`, `storage_full`, `refused`.
    """

    code = "node"
    status = 503

    @property
    def reason(self) -> str:
        """The workspace code that a run ends with when nothing wins over it."""
        return str(self.fields.get("reason", "unavailable"))


class HostUnreachable(RemitError):
    """The host that was named doesn't answer, or what answers isn't one."""

    code = "host_unreachable"
    status = 502
    retryable = True
    exit_code = 69


class OwnershipError(RemitError):
    """Somebody else owns this run now; the caller must stop its own copy."""

    code = "ownership"
    status = 409


class StaleGeneration(OwnershipError):
    """The write carried a generation that has been superseded; nothing was stored."""

    code = "stale_generation"


class AlreadyDecided(OwnershipError):
    """The run's terminal, or its decision, is already stored; nothing was changed."""

    code = "already_decided"


class StorageError(RemitError):
    """The store couldn't keep what it was given."""

    code = "storage"
    status = 503


class StorageFull(StorageError):
    """The disk under the data folder is full."""

    code = "storage_full"


class StorageBusy(StorageError):
    """Another process held the database longer than we may wait."""

    code = "storage_busy"
    retryable = True
    exit_code = 75


class SchemaTooNew(StorageError):
    """The data folder was written by a newer Remit."""

    code = "schema_too_new"
    exit_code = 2


class MisuseError(RemitError):
    """The program that calls us broke a rule of the API."""

    code = "misuse"


class InternalError(RemitError):
    """An invariant of ours doesn't hold."""

    code = "internal"
