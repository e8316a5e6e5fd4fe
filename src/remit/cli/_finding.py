"""Finds the run that is meant, in the user's data folder, and changes nothing there."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from remit.config import data_folder
from remit.errors import InvalidRequest, NotFound
from remit.runs import StoredRun
from remit.storage import StoreReader

_SHORTEST_PREFIX = 6
_LOOKED_AT = 500


@contextmanager
def open_reader() -> Generator[StoreReader | None]:
    """The data folder, to be read; None where nothing was ever stored."""
    reader = StoreReader.open(data_folder(os.environ))
    if reader is None:
        yield None
        return
    with reader:
        yield reader


def find_run(reader: StoreReader | None, wanted: str | None) -> StoredRun:
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
        return runs[0]
    return reader.find_run(wanted) or _by_prefix(reader, wanted)


def _by_prefix(reader: StoreReader, wanted: str) -> StoredRun:
    runs, _ = reader.list_runs(limit=_LOOKED_AT)
    found = [run for run in runs if run.view.id.startswith(wanted)]
    if not found or len(wanted) < _SHORTEST_PREFIX:
        raise NotFound(f"no run {wanted}; `remit ps` lists the runs that there are")
    if len(found) > 1:
        raise InvalidRequest(f"{len(found)} runs begin with {wanted}; give more of the id")
    return found[0]
