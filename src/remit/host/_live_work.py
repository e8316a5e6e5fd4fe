"""What goes on in a host now: the registry's record of each piece of work, joined with the supervisors'."""

from __future__ import annotations

from remit.api import WorkRow
from remit.contract import RunView
from remit.runs import name_in_host, tenant_of_name
from remit.work import WorkRegistry, WorkSnapshot, WorkSpec


class LiveWork:
    """Looks at the live work of one host; a work id begins with its run's id."""

    def __init__(self, registry: WorkRegistry) -> None:
        self._registry = registry

    def page(
        self, run: RunView, *, tenant: str, after: str | None, limit: int
    ) -> tuple[tuple[WorkRow, ...], str | None]:
        """A run's live work by work id beyond the cursor, and the next cursor.

        A run's work ids are its id, or begin with it and a dot: a session's other runs lie between them.
        """
        session = name_in_host(tenant, run.session_id)
        rows: list[WorkRow] = []
        for snapshot in self._registry.snapshot(session):
            is_seen = after is not None and snapshot.work_id <= after
            if is_seen or run_of_work(snapshot.work_id) != run.id:
                continue
            row = self._row(session, snapshot)
            if row is not None:
                rows.append(row)
            if len(rows) > limit:
                return tuple(rows[:limit]), rows[limit - 1].work_id
        return tuple(rows), None

    def all(self, *, tenant: str) -> tuple[WorkRow, ...]:
        """The live work of a tenant, by work id."""
        rows = [
            self._row(session, snapshot)
            for session, snapshot in self._registry.active_all()
            if tenant_of_name(session) == tenant
        ]
        return tuple(sorted((row for row in rows if row is not None), key=lambda row: row.work_id))

    def find(self, work_id: str, *, tenant: str) -> tuple[str, WorkRow] | None:
        """A piece of a tenant's work, and its session's name in the host; None: no such work goes on."""
        for session, snapshot in self._registry.active_all():
            if snapshot.work_id == work_id and tenant_of_name(session) == tenant:
                row = self._row(session, snapshot)
                return None if row is None else (session, row)
        return None

    def _row(self, session: str, snapshot: WorkSnapshot) -> WorkRow | None:
        spec = self._registry.find_spec(session, snapshot.work_id)
        return None if spec is None else _join(snapshot, spec)


def run_of_work(work_id: str) -> str:
    """The run that a piece of work belongs to."""
    return work_id.partition(".")[0]


def _join(snapshot: WorkSnapshot, spec: WorkSpec) -> WorkRow:
    seen = snapshot.observation
    return WorkRow(
        work_id=snapshot.work_id,
        parent=spec.parent_work_id,
        kind=snapshot.kind,
        label=snapshot.label,
        cancelling=snapshot.status == "cancelling",
        stage=None if seen is None else seen.stage,
        elapsed_ms=None if seen is None else seen.elapsed_ms,
        cancellable=snapshot.cancellable,
    )
