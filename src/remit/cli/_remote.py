"""A host's runs, read over HTTP as if they lay in the data folder."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from remit.cli._first_key import find_secret
from remit.client import Client
from remit.config import data_folder
from remit.contract import AttemptEnded, AttemptStarted, RunRequest, RunView
from remit.errors import InvalidRequest, NotFound, PreconditionFailed
from remit.events import Artifact, Event, payload_of
from remit.primitives import parse_time
from remit.runs import AttemptRow, HistoryEntry, StoredRun

_PAGE = 1_000
_LOOKS_LIKE_A_KEY = re.compile(r"rk_[!-~]+")


def secret_for_host() -> str:
    """The key that goes with `--host`.

    Raises:
        InvalidRequest: There is none, or what REMIT_API_KEY holds can't be one.
    """
    secret = find_secret(data_folder(os.environ), os.environ)
    if secret is None:
        raise InvalidRequest(
            "no key for the host: set REMIT_API_KEY (`remit keys create` makes one where the host runs)"
        )
    if not _LOOKS_LIKE_A_KEY.fullmatch(secret):
        holder = (
            "REMIT_API_KEY" if os.environ.get("REMIT_API_KEY", "").strip() else "the data folder's api-key"
        )
        raise InvalidRequest(
            f"{holder} holds no key of a host: those begin with `rk_`; `remit keys create` makes one for "
            "REMIT_API_KEY"
        )
    return secret


class RemoteReader:
    """What `remit.storage.StoreReader` is for the data folder, for a host. Its methods block."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @classmethod
    def open(cls, host: str) -> Self:
        """Reach a host, with the key that is there."""
        return cls(Client(host, api_key=secret_for_host()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def find_run(self, run_id: str, *, tenant: str = "local") -> StoredRun | None:
        """A run, or None."""
        try:
            return self._stored(self._client.get(run_id))
        except NotFound:
            return None

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
        status = ",".join(statuses) or None
        views, cursor = self._client.list(status=status, cursor=after, limit=limit)
        return tuple(self._stored(view) for view in views), cursor

    def _stored(self, view: RunView) -> StoredRun:
        """The run with its request, which stands in its first event."""
        (queued,) = self._page(view.id, after=0, limit=1)["data"]
        data = queued["data"]
        return StoredRun(
            view=view,
            request=RunRequest.model_validate(data["request"]),
            fingerprint=data["fingerprint"],
            tenant="local",
            epoch="",
            generation=0,
            last_seq=0,
        )

    def _page(self, run_id: str, *, after: int, limit: int) -> dict[str, Any]:
        return self._client.read_events(run_id, after=after, limit=limit)

    def read_events(self, run_id: str, *, tenant: str = "local") -> tuple[Event, ...]:
        """All stored events of a run."""
        events: list[Event] = []
        while True:
            page = self._page(run_id, after=len(events), limit=_PAGE)
            events += [Event.model_validate(one) for one in page["data"]]
            if page["next_cursor"] is None:
                return tuple(events)

    def read_attempts(self, run_id: str, *, tenant: str = "local") -> tuple[AttemptRow, ...]:
        """The run's ledger, as its events tell it."""
        rows: dict[str, AttemptRow] = {}
        for event in self.read_events(run_id):
            if not event.type.startswith("attempt."):
                continue
            match payload_of(event):
                case AttemptStarted() as started:
                    rows[started.attempt_id] = AttemptRow(
                        run_id=run_id, started=started, started_at=event.at, ended=None, ended_at=None
                    )
                case AttemptEnded() as ended:
                    row = rows[ended.attempt_id]
                    rows[ended.attempt_id] = AttemptRow(
                        run_id=run_id,
                        started=row.started,
                        started_at=row.started_at,
                        ended=ended,
                        ended_at=event.at,
                    )
                case _:
                    pass
        return tuple(rows.values())

    def read_artifact(self, run_id: str, name: str, *, tenant: str = "local") -> Artifact | None:
        """The run's patch; a host's other artifacts aren't asked for here."""
        try:
            return Artifact(name=name, text=self._client.patch(run_id)) if name == "patch" else None
        except (NotFound, PreconditionFailed):
            return None

    def read_history(self, run_id: str, *, tenant: str = "local") -> tuple[HistoryEntry, ...]:
        """The run's host log."""
        lines = self._client.read(f"runs/{run_id}/history")["data"]
        return tuple(
            HistoryEntry(at=parse_time(line["at"]), type=line["type"], data=line["data"]) for line in lines
        )

    def is_alive(self, epoch_id: str) -> bool:
        """The host that was asked lives."""
        return True
