"""Finds the run that is meant, in the user's data folder, and changes nothing there."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from remit.config import data_folder
from remit.errors import InvalidRequest, NotFound
from remit.events import Artifact, Event
from remit.runs import AttemptRow, HistoryEntry, StoredRun, may_be_delivered_later, with_newest_delivery
from remit.storage import StoreReader

_SHORTEST_PREFIX = 6
_LOOKED_AT = 500


class RunReader(Protocol):
    """Where runs are read from: the data folder, or a host."""

    def find_run(self, run_id: str, *, tenant: str = "local") -> StoredRun | None:
        """A run, or None."""
        ...

    def list_runs(
        self,
        *,
        tenant: str = "local",
        statuses: Sequence[str] = (),
        created_after: datetime | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> tuple[tuple[StoredRun, ...], str | None]:
        """Runs, newest first, and the cursor of the next page."""
        ...

    def read_events(self, run_id: str, *, tenant: str = "local") -> tuple[Event, ...]:
        """All stored events of a run."""
        ...

    def read_attempts(self, run_id: str, *, tenant: str = "local") -> tuple[AttemptRow, ...]:
        """The run's ledger."""
        ...

    def read_artifact(self, run_id: str, name: str, *, tenant: str = "local") -> Artifact | None:
        """A named text of the run."""
        ...

    def read_history(self, run_id: str, *, tenant: str = "local") -> tuple[HistoryEntry, ...]:
        """The run's host log."""
        ...

    def is_alive(self, epoch_id: str) -> bool:
        """Whether the host of an epoch still runs."""
        ...


@contextmanager
def open_reader(host: str | None = None) -> Generator[RunReader | None]:
    """The data folder, or a host, to be read; None where nothing was ever stored."""
    if host:
        from remit.cli._remote import RemoteReader  # noqa: PLC0415 - most readings need no client

        with RemoteReader.open(host) as remote:
            yield remote
        return
    reader = StoreReader.open(data_folder(os.environ))
    if reader is None:
        yield None
        return
    with reader:
        yield reader


def find_run(reader: RunReader | None, wanted: str | None) -> StoredRun:
    """A run by its id, by the unique beginning of one, or the newest.

    Raises:
        NotFound: There is none.
        InvalidRequest: Several begin so.
    """
    if reader is None:
        raise NotFound("there are no runs yet; `remit run` or `remit demo` makes one")
    if wanted is None:
        runs, _ = reader.list_runs(limit=1)
        if not runs:
            raise NotFound("there are no runs yet; `remit run` or `remit demo` makes one")
        return newest(reader, runs[0])
    return newest(reader, reader.find_run(wanted) or _by_prefix(reader, wanted))


def newest(reader: RunReader, run: StoredRun) -> StoredRun:
    """The run, with what was done with its patch by hand since it ended."""
    if not may_be_delivered_later(run.view):
        return run
    return replace(run, view=with_newest_delivery(run.view, reader.read_history(run.view.id)))


def _by_prefix(reader: RunReader, wanted: str) -> StoredRun:
    runs, _ = reader.list_runs(limit=_LOOKED_AT)
    found = [run for run in runs if run.view.id.startswith(wanted)]
    if not found:
        raise NotFound(f"no run `{wanted}`; `remit ps` lists the runs that there are")
    if len(wanted) < _SHORTEST_PREFIX:
        raise InvalidRequest(f"`{wanted}` is too little of an id; `remit ps` lists the runs that there are")
    if len(found) > 1:
        raise InvalidRequest(f"{len(found)} runs begin with {wanted}; give more of the id")
    return found[0]
