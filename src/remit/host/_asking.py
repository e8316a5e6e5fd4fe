"""What a caller hands over with a request, looked at before anything is done with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from remit.contract import RunRequest
from remit.errors import MisuseError, RunCancelled, RunExpired
from remit.host._watching import OnEvent
from remit.primitives import Clock, check_length
from remit.requests import ParsedRequest, parse_request
from remit.runs import Deadline, RunTimes, Scope

_MAX_KEY_CHARS: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A call that may be carried out."""

    parsed: ParsedRequest
    idempotency_key: str | None
    on_event: OnEvent | None
    scope: Scope | None


def check_asked(
    request: RunRequest | Mapping[str, Any],
    idempotency_key: str | None,
    on_event: OnEvent | None,
    scope: Scope | None,
    deadline: Deadline | None,
    clock: Clock,
) -> Asked:
    """The call, checked.

    Raises:
        MisuseError: It isn't one; `param` names the argument.
        RequestError: The request must be changed.
        RunCancelled: The scope has ended already; `RunExpired` where its deadline has passed.
    """
    if not isinstance(request, RunRequest | Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise MisuseError("a request is a RunRequest, or a mapping with its fields", param="request")
    _check_key(idempotency_key)
    if on_event is not None and not callable(on_event):
        raise MisuseError("`on_event` is called with each event: it must be callable", param="on_event")
    if scope is not None and not isinstance(scope, Scope):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise MisuseError("a scope is a `Scope`", param="scope")
    if scope is not None:
        scope.check_loop()
    if scope is not None and deadline is not None:
        raise MisuseError("give a scope or a deadline: a scope may have one of its own", param="deadline")
    if deadline is not None:
        scope = Scope(deadline=deadline, clock=clock)
    parsed = parse_request(request)
    _refuse_ended(scope)
    return Asked(parsed=parsed, idempotency_key=idempotency_key, on_event=on_event, scope=scope)


def check_times(times: RunTimes) -> None:
    """How long the parts of an end may take.

    Raises:
        MisuseError: It isn't a `RunTimes`, or one of its lengths isn't one.
    """
    if not isinstance(times, RunTimes):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise MisuseError("`times` is a RunTimes", param="times")
    for field in fields(times):
        check_length(f"times.{field.name}", getattr(times, field.name))


def _check_key(key: str | None) -> None:
    if key is None:
        return
    if not isinstance(key, str) or not 0 < len(key) <= _MAX_KEY_CHARS:  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise MisuseError(
            f"an idempotency key is a text of 1 to {_MAX_KEY_CHARS} characters", param="idempotency_key"
        )


def _refuse_ended(scope: Scope | None) -> None:
    if scope is None or not scope.aborted:
        return
    if scope.ended is None or scope.ended.code == "deadline":
        raise RunExpired("the deadline had passed before the run was started", reason="deadline")
    raise RunCancelled("the scope had ended before the run was started", reason="caller")
