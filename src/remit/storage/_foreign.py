"""What other connections to the file have written meanwhile."""

from __future__ import annotations

import sqlite3

from remit.errors import SchemaTooNew
from remit.storage._held import RunRef


class ForeignChanges:
    """Compares SQLite's own change counter, which leaves out what this connection wrote itself."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._schema = self._number("PRAGMA user_version")
        self._version = self._number("PRAGMA data_version")
        self._newest = 0
        self.pass_over()

    def look(self) -> dict[RunRef, int] | None:
        """The runs that others have written to since the last look, with their last numbers.

        None: nobody has written anything at all.

        Raises:
            SchemaTooNew: A newer Remit has migrated the database under this one.
        """
        version = self._number("PRAGMA data_version")
        if version == self._version:
            return None
        if (schema := self._number("PRAGMA user_version")) != self._schema:
            raise SchemaTooNew(
                "a newer Remit has taken over the data folder; restart this one", schema=schema
            )
        self._version = version
        since = self._newest
        self.pass_over()
        rows = self._connection.execute(
            "SELECT r.tenant, r.id, max(e.seq) FROM events e JOIN runs r ON r.key = e.run"
            " WHERE e.id > ? AND e.id <= ? GROUP BY e.run",
            (since, self._newest),
        )
        return {RunRef(tenant, run_id): seq for tenant, run_id, seq in rows}

    def pass_over(self) -> None:
        """Take what stands in the log now as known."""
        self._newest = self._number("SELECT ifnull(max(id), 0) FROM events")

    def _number(self, query: str) -> int:
        return int(self._connection.execute(query).fetchone()[0])
