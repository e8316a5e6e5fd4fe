"""Loading SDKs early: in a thread that has ended with its block, and without a word where it can't."""

from __future__ import annotations

import sys
import threading
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from remit.models import _early, loading_early


def test_what_is_asked_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds that share an SDK load it once; those without one, and unknown ones, load nothing."""
    warmed: list[str] = []

    def warm_up() -> None:
        warmed.append(threading.current_thread().name)

    monkeypatch.setitem(sys.modules, "made_up_sdk", SimpleNamespace(warm_up=warm_up))
    monkeypatch.setattr(_early, "_MODULES", {"one": "made_up_sdk", "two": "made_up_sdk"})
    with loading_early(["one", "scripted", "two", "nonsense"]):
        pass
    assert warmed == ["remit-models-early"]
    assert "remit-models-early" not in [thread.name for thread in threading.enumerate()]
    with loading_early(["scripted"]):
        assert "remit-models-early" not in [thread.name for thread in threading.enumerate()]


def test_what_cant_be_loaded_is_told_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """An SDK that isn't installed is named by the adapter that needs it, so nothing is said here."""
    monkeypatch.setattr(_early, "_MODULES", {"one": "no_such_sdk_anywhere"})
    with loading_early(["one"]):
        pass


def test_each_kind_of_sdk_has_its_module() -> None:
    """The table names modules that there are."""
    for name in _early._MODULES.values():
        assert find_spec(name) is not None
