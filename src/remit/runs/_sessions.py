"""Threads of runs: what a later run is told of the earlier ones, and whose turn it is.

A run in a session sees the earlier runs' requests, outputs, terminals and finished tool results, bounded, as
text: nothing of their conversations is replayed, so a call that was cut off can't spoil a later request.
At most one root run of a session is active; who comes later waits, in order of admission.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from remit.admission import SessionFacts
from remit.contract import RunStatus
from remit.events import TranscriptEntry
from remit.runs._ports import RunStore, StoredRun

MAX_CONTEXT_CHARS: Final = 24_000
"""Of all earlier runs together; the newest are kept."""
_MAX_RUNS: Final = 20
_MAX_REQUEST_CHARS: Final = 2_000
_MAX_OUTPUT_CHARS: Final = 4_000
_MAX_RESULT_CHARS: Final = 500
_MAX_RESULTS: Final = 8
_LIVE: Final = tuple(status.value for status in RunStatus if not status.ended)
_ENDED: Final = tuple(status.value for status in RunStatus if status.ended)


class StoreSessions:
    """The sessions of a store. Implements `remit.admission.Sessions`."""

    def __init__(self, store: RunStore) -> None:
        self._store = store

    async def look(self, *, session_id: str | None, continues: str | None, tenant: str) -> SessionFacts:
        """The facts that a request's `session_id` and `continues` call for."""
        continued = await self._store.find_run(continues, tenant=tenant) if continues else None
        session = continued.view.session_id if continued is not None else session_id
        active = await self._active(session, tenant) if session else ()
        return SessionFacts(
            active_run_id=active[0].view.id if active else None,
            continued=continued.view if continued is not None else None,
            continued_workspace=continued.request.workspace if continued is not None else None,
        )

    async def wait_turn(self, run: StoredRun) -> None:
        """Return once no earlier run of the session is active. Cancellation: the wait just ends."""
        while before := await self._before(run):
            await self._store.wait_for_events(before.view.id, after=before.last_seq, tenant=run.tenant)

    async def context_of(self, run: StoredRun) -> str | None:
        """What a run is told of its session; None when it is the session's first."""
        if run.view.session_id == run.view.id:
            return None
        found, _ = await self._store.list_runs(
            tenant=run.tenant, session_id=run.view.session_id, statuses=_ENDED, limit=_MAX_RUNS
        )
        parts: list[str] = []
        left = MAX_CONTEXT_CHARS
        for stored in found:  # newest first
            if stored.view.id == run.view.id or stored.view.parent_run_id is not None:
                continue
            transcript = await self._store.read_transcript(stored.view.id, tenant=run.tenant)
            part = describe_run(stored, transcript)
            if len(part) > left:
                break
            left -= len(part)
            parts.append(part)
        parts.reverse()
        if run.view.continues is not None:
            parts.append(f"The checkout starts with all that run {run.view.continues} left in its own.")
        return "\n\n".join(parts) or None

    async def _active(self, session_id: str, tenant: str) -> list[StoredRun]:
        """The session's unfinished root runs, in order of admission."""
        found, _ = await self._store.list_runs(
            tenant=tenant, session_id=session_id, statuses=_LIVE, limit=200
        )
        roots = [stored for stored in found if stored.view.parent_run_id is None]
        return sorted(roots, key=_order)

    async def _before(self, run: StoredRun) -> StoredRun | None:
        if run.view.parent_run_id is not None:
            return None
        for other in await self._active(run.view.session_id, run.tenant):
            if other.view.id != run.view.id and _order(other) < _order(run):
                return other
        return None


def describe_run(stored: StoredRun, transcript: Sequence[TranscriptEntry]) -> str:
    """An ended run as a later one of its session is told of it. Pure, and the same text every time."""
    view = stored.view
    lines = [
        f"## Run {view.id}: {view.status}",
        "",
        "Request:",
        _clip(stored.request.text(), _MAX_REQUEST_CHARS),
    ]
    if view.output:
        lines += ["", "Result:", _clip(view.output, _MAX_OUTPUT_CHARS)]
    if view.terminal is not None and view.terminal.message:
        without = "" if view.output else " without a result"
        lines += ["", f"It ended{without}: {view.terminal.message}"]
    if results := _tool_results(transcript):
        lines += ["", "What its tools found, the last ones:", *results]
    return "\n".join(lines)


def _tool_results(transcript: Sequence[TranscriptEntry]) -> list[str]:
    found: list[str] = []
    for entry in transcript:
        if entry.role != "tool":
            continue
        results: list[dict[str, Any]] = entry.body.get("results", [])
        for result in results:
            if result.get("status") == "success":
                text = _clip(str(result.get("content", "")), _MAX_RESULT_CHARS)
                found.append(f"- {result.get('name', 'tool')}: {text}")
    return found[-_MAX_RESULTS:]


def _clip(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def _order(stored: StoredRun) -> tuple[Any, str]:
    return stored.view.created_at, stored.view.id
