"""The rehearsal of a zygote: it goes through a keeper's life and leaves nothing behind."""

from __future__ import annotations

import gc
import os
from typing import Any

import pytest

from remit.workspaces.keeper import _rehearsal
from remit.workspaces.keeper._context import current_checkout
from remit.workspaces.keeper._session import Session


def test_it_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A keeper's loop, frames and session have run; no descriptor and no open checkout is left of it."""
    answered: list[bool] = []
    stop = Session._stop

    def counted(self: Session, number: int, params: dict[str, Any]) -> None:
        stop(self, number, params)
        answered.append(True)

    monkeypatch.setattr(Session, "_stop", counted)
    before = os.listdir("/proc/self/fd")
    _rehearsal.rehearse()
    gc.collect()
    assert os.listdir("/proc/self/fd") == before
    assert len(answered) > 8
    with pytest.raises(LookupError):
        current_checkout()
