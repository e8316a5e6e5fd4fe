"""A Ctrl-C that a library makes an error of its own of."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_core import SchemaError

from remit.cli import _program
from remit.cli._failing import was_interrupted


def wrapped(inner: BaseException) -> Exception:
    try:
        try:
            raise inner
        except BaseException as error:
            raise RuntimeError("a module can't be loaded") from error
    except RuntimeError as error:
        return error


def ringed(*links: BaseException) -> Exception:
    """Errors of which each is the next one's cause, and the last one the first one's."""
    for at, link in enumerate(links):
        link.__cause__ = links[at - 1]
    assert isinstance(links[0], Exception)
    return links[0]


def beside(cause: BaseException, context: BaseException) -> Exception:
    """An error that has a cause, and came up while another one was dealt with."""
    error = RuntimeError("both")
    error.__cause__, error.__context__ = cause, context
    return error


INTERRUPTED = (
    SchemaError("Error building `literal` serializer: KeyboardInterrupt: "),
    wrapped(KeyboardInterrupt()),
    wrapped(SchemaError("Error building `model`: KeyboardInterrupt: ")),
    ringed(ValueError("x"), KeyboardInterrupt(), ValueError("y")),
    beside(ValueError("x"), KeyboardInterrupt()),
    beside(KeyboardInterrupt(), ValueError("x")),
)
FAULTS = (
    SchemaError("unknown type"),
    ValueError("KeyboardInterrupt"),
    wrapped(ValueError("x")),
    ringed(ValueError("x")),
    ringed(ValueError("x"), ValueError("y")),
)


@pytest.mark.parametrize("error", INTERRUPTED)
def test_an_interrupt_in_another_form_is_one(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """R9: Ctrl-C while modules are loaded: `stopped`, exit 130, and nothing like a fault of ours."""

    def fail(**_: Any) -> int:
        raise error

    monkeypatch.setattr(_program.program, "main", fail)
    assert _program.main(["run", "x"]) == 130
    assert capsys.readouterr().err == "remit: stopped\n"


@pytest.mark.parametrize("error", FAULTS)
def test_a_fault_stays_one(error: Exception) -> None:
    """A word in a message doesn't make an interrupt."""
    assert not was_interrupted(error)
