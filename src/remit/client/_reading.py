"""From a host's answers to shapes and errors. What a newer host adds is ignored."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast

import httpx2
from pydantic import ValidationError

from remit.contract import CancelReceipt, Model, RunStatus, Terminal
from remit.errors import HostUnreachable, InternalError, RemitError
from remit.events import Event

_Shape = TypeVar("_Shape", bound=Model)
_MOST_UNKNOWN = 20


class RunEnd(Model):
    """How a run stands, in short."""

    id: str
    status: RunStatus
    terminal: Terminal | None = None


class CancelAnswer(Model):
    """What a cancel did."""

    changed: bool
    """False: the run had ended, or was committed to its end; nothing changed."""
    run: RunEnd
    receipt: CancelReceipt | None = None
    """Each piece of work, how it was stopped and how fast; None where no cancel counts."""


def read_shape(shape: type[_Shape], data: Any) -> _Shape:
    """Data as a shape; keys that this version doesn't know are left out.

    Raises:
        HostUnreachable: It isn't that shape: what answers is no host, or one of another age.
    """
    for _ in range(_MOST_UNKNOWN):
        try:
            return shape.model_validate(data)
        except ValidationError as error:
            unknown = [found["loc"] for found in error.errors() if found["type"] == "extra_forbidden"]
            if not unknown:
                raise HostUnreachable(
                    f"what answers sends no {shape.__name__} that this version reads"
                ) from None
            data = json.loads(json.dumps(data))
            for place in unknown:
                _remove(data, place)
    raise _unreadable(shape)


def _unreadable(shape: type[Model]) -> HostUnreachable:
    return HostUnreachable(f"what answers sends no {shape.__name__} that this version reads")


def _remove(data: Any, place: tuple[int | str, ...]) -> None:
    for step in place[:-1]:
        data = data[step]
    data.pop(place[-1], None)


def read_answer(response: httpx2.Response) -> Any:
    """The JSON of a good answer.

    Raises:
        RemitError: The host refused, or failed; of the kind that its code names.
        HostUnreachable: What answers is no host.
    """
    try:
        data = json.loads(response.content) if response.content else None
    except ValueError:
        data = None
    if response.is_success:
        if data is None and response.status_code != 204:
            raise HostUnreachable("what answers isn't a Remit host: it sent no JSON")
        return data
    raise error_of(response.status_code, data, response.headers)


def error_of(status: int, data: Any, headers: Mapping[str, str]) -> RemitError:
    """The error that an answer stands for."""
    if not isinstance(data, dict) or "code" not in data:
        return HostUnreachable(
            f"what answers isn't a Remit host: status {status} without a reason", status=status
        )
    problem = cast("dict[str, Any]", data)
    kind = _kinds(RemitError).get(str(problem["code"]), InternalError)
    fields: dict[str, Any] = {"status": status}
    if problem.get("param"):
        fields["param"] = problem["param"]
    if problem.get("request_id"):
        fields["request_id"] = problem["request_id"]
    after = headers.get("retry-after", "")
    if after.isdigit():
        fields["retry_after_ms"] = int(after) * 1000
    return kind(str(problem.get("detail") or problem["code"]), **fields)


def _kinds(kind: type[RemitError]) -> dict[str, type[RemitError]]:
    found = {kind.code: kind}
    for below in kind.__subclasses__():
        for code, one in _kinds(below).items():
            found.setdefault(code, one)
    return found


class FrameReader:
    """Server-sent events out of bytes, however they are cut. Lines end with CR, LF or CRLF alone."""

    def __init__(self) -> None:
        self._rest = b""
        self._lines: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events that are whole now."""
        self._rest = (self._rest + piece).replace(b"\r\n", b"\n")
        if self._rest.endswith(b"\r"):
            whole, held = self._rest[:-1], b"\r"
        else:
            whole, held = self._rest, b""
        *lines, rest = whole.replace(b"\r", b"\n").split(b"\n")
        self._rest = rest + held
        for line in lines:
            if line:
                self._lines.append(line)
                continue
            event = self._event()
            self._lines.clear()
            if event is not None:
                yield event

    def _event(self) -> Event | None:
        data = [line[5:].removeprefix(b" ") for line in self._lines if line.startswith(b"data:")]
        if not data:
            return None
        try:
            return read_shape(Event, json.loads(b"\n".join(data)))
        except ValueError:
            raise HostUnreachable("what answers sends events that this version can't read") from None
