"""What a node has done: one receipt per tool call and delivery, so that nothing is done twice.

A call that changes something is written down before it starts and again when it has ended. Asked again, the
node answers from the receipt; a call that goes on is joined; one whose process died in between is
`outcome_unknown`, for ever. A call that only reads is written down at its end, and simply done again where
that got lost.

    (nothing) -> started -> ended          started: what it did is unknown unless this process is doing it
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from remit.errors import PayloadTooLarge, StaleGeneration, StorageError
from remit.primitives import Clock, Ids, format_time
from remit.workspaces._receipt_shapes import (
    Artifact,
    CallKey,
    DeliveryReceipt,
    Intent,
    Outcome,
    Receipted,
)
from remit.workspaces._receipt_writer import ReceiptWriter

__all__ = ["Artifact", "CallKey", "DeliveryReceipt", "Intent", "Outcome", "Receipted", "Receipts"]

MAX_ARTIFACT_BYTES: Final = 4_194_304


@dataclass(slots=True)
class _Running:
    intent: Intent
    done: asyncio.Future[Receipted] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


@dataclass(frozen=True, slots=True)
class _Row:
    receipt_id: str
    name: str
    arguments_sha256: str
    outcome: str | None


class Receipts:
    """The receipts of one node. Open it once per process; several processes may share the file."""

    def __init__(self, writer: ReceiptWriter, *, clock: Clock, ids: Ids) -> None:
        self._writer = writer
        self._clock = clock
        self._ids = ids
        self._running: dict[CallKey, _Running] = {}

    @classmethod
    async def open(cls, path: Path, *, clock: Clock, ids: Ids) -> Self:
        """Opens or makes the file.

        Raises:
            StorageError: it can't be used; StorageFull, StorageBusy, SchemaTooNew where that is why.

        Cancellation: it is closed again, and its thread has ended.
        """
        writer = ReceiptWriter(path)
        try:
            await writer.wait_ready()
        except asyncio.CancelledError:
            await writer.aclose()
            raise
        return cls(writer, clock=clock, ids=ids)

    async def aclose(self) -> None:
        """Stores what was handed over and closes the file."""
        await self._writer.aclose()

    # ---- tool calls

    async def run_once(self, intent: Intent, work: Callable[[str], Awaitable[Outcome]]) -> Receipted:
        """Does a tool call unless it was done before, and answers with its outcome.

        Args:
            intent: the call.
            work: does it, given the receipt id; called at most once per key and process, and never again
                for a call that changes something.

        Raises:
            StaleGeneration: a later generation of the run was seen; nothing was done.
            StorageError: the intent couldn't be stored (nothing was done), or the outcome couldn't.

        Cancellation: `work` is cancelled; the receipt then says `cancelled`.
        """
        running = self._running.get(intent.key)
        if running is not None:
            return await self._join(intent, running)
        running = self._running[intent.key] = _Running(intent)
        try:
            receipted = await self._once(intent, work)
            running.done.set_result(receipted)
            return receipted
        except BaseException as error:
            failure = error if isinstance(error, Exception) else None
            _refuse(running.done, failure)
            raise
        finally:
            del self._running[intent.key]

    async def _join(self, intent: Intent, running: _Running) -> Receipted:
        if _is_other(intent, running.intent.name, running.intent.arguments_sha256):
            return _mismatch("")
        receipted = await asyncio.shield(running.done)
        return Receipted(receipted.receipt_id, receipted.outcome, repeated=True)

    async def _once(self, intent: Intent, work: Callable[[str], Awaitable[Outcome]]) -> Receipted:
        receipt_id = self._ids.new("rcp")
        try:
            row = await self._writer.do(lambda connection: self._begin(connection, intent, receipt_id))
            if row is not None:
                known = _known(intent, row)
                if known is not None:
                    return known
                receipt_id = row.receipt_id
            outcome = await work(receipt_id)
        except asyncio.CancelledError:
            if intent.effect != "read":
                # Where this can't be stored the receipt says `outcome_unknown`, which is no lie.
                with suppress(StorageError):
                    await self._finish(intent, receipt_id, _cancelled_outcome())
            raise
        await self._finish(intent, receipt_id, outcome)
        return Receipted(receipt_id, outcome, repeated=False)

    def _begin(self, connection: sqlite3.Connection, intent: Intent, receipt_id: str) -> _Row | None:
        """Notes the call; what was known of it before, None for nothing."""
        _fence(connection, intent.run_id, intent.generation)
        found = connection.execute(
            "SELECT receipt_id, name, arguments_sha256, outcome FROM tool_calls"
            " WHERE run_id = ? AND stage_id = ? AND tool_call_id = ?",
            intent.key,
        ).fetchone()
        if found is not None:
            row = _Row(*found)
            if row.outcome is None and intent.effect != "read":
                unknown = _unknown_outcome().model_dump_json()
                self._end(connection, intent.key, unknown)
                return _Row(row.receipt_id, row.name, row.arguments_sha256, unknown)
            return row
        if intent.effect != "read":
            self._insert(connection, intent, receipt_id)
        return None

    def _insert(self, connection: sqlite3.Connection, intent: Intent, receipt_id: str) -> None:
        connection.execute(
            "INSERT OR IGNORE INTO tool_calls (run_id, stage_id, tool_call_id, receipt_id, name, effect,"
            " arguments_sha256, generation, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *intent.key,
                receipt_id,
                intent.name,
                intent.effect,
                intent.arguments_sha256,
                intent.generation,
                self._now(),
            ),
        )

    def _end(self, connection: sqlite3.Connection, key: CallKey, outcome: str) -> None:
        connection.execute(
            "UPDATE tool_calls SET outcome = ?, ended_at = ? WHERE run_id = ? AND stage_id = ?"
            " AND tool_call_id = ? AND outcome IS NULL",
            (outcome, self._now(), *key),
        )

    async def _finish(self, intent: Intent, receipt_id: str, outcome: Outcome) -> None:
        text = outcome.model_dump_json()

        def operation(connection: sqlite3.Connection) -> None:
            if intent.effect == "read":
                self._insert(connection, intent, receipt_id)
            self._end(connection, intent.key, text)

        if intent.effect == "read":
            # Nothing hangs on it: where it gets lost, the call is made again.
            self._writer.submit(operation)
        else:
            await self._writer.do(operation)

    async def find_call(
        self, run_id: str, tool_call_id: str, *, stage_id: str
    ) -> tuple[CallKey, Outcome] | None:
        """A finished call of a run: the one of this stage, else the latest of any; None: there is none."""

        def operation(connection: sqlite3.Connection) -> tuple[str, str] | None:
            return connection.execute(
                "SELECT stage_id, outcome FROM tool_calls WHERE run_id = ? AND tool_call_id = ?"
                " AND outcome IS NOT NULL ORDER BY stage_id = ? DESC, ended_at DESC LIMIT 1",
                (run_id, tool_call_id, stage_id),
            ).fetchone()

        found = await self._writer.do(operation)
        if found is None:
            return None
        return (run_id, found[0], tool_call_id), Outcome.model_validate_json(found[1])

    async def find_receipt(self, key: CallKey) -> Receipted | None:
        """What is on record of a call, without doing anything; None: nothing, or it is going on here."""

        def operation(connection: sqlite3.Connection) -> tuple[str, str | None] | None:
            return connection.execute(
                "SELECT receipt_id, outcome FROM tool_calls"
                " WHERE run_id = ? AND stage_id = ? AND tool_call_id = ?",
                key,
            ).fetchone()

        found = await self._writer.do(operation)
        if found is None or key in self._running:
            return None
        outcome = _unknown_outcome() if found[1] is None else Outcome.model_validate_json(found[1])
        return Receipted(found[0], outcome, repeated=True)

    # ---- generations

    async def fence(self, run_id: str, generation: int) -> None:
        """Notes a run's generation; from now on lower ones are refused.

        Raises:
            StaleGeneration: a higher one was seen.
        """
        await self._writer.do(lambda connection: _fence(connection, run_id, generation))

    # ---- artifacts

    async def store_artifact(self, run_id: str, name: str, text: str) -> Artifact:
        """Keeps a named text of a run; the same name again replaces it.

        Raises:
            PayloadTooLarge: it has over 4 MiB.
        """
        data = text.encode("utf-8", "replace")
        if len(data) > MAX_ARTIFACT_BYTES:
            raise PayloadTooLarge(f"the artifact has {len(data)} bytes; at most {MAX_ARTIFACT_BYTES}")
        artifact = Artifact(name, data.decode(), hashlib.sha256(data).hexdigest())

        def operation(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT OR REPLACE INTO artifacts VALUES (?, ?, ?, ?, ?)",
                (run_id, name, artifact.sha256, artifact.text, self._now()),
            )

        await self._writer.do(operation)
        return artifact

    async def find_artifact(self, run_id: str, name: str) -> Artifact | None:
        """The named text of a run; None: there is none."""

        def operation(connection: sqlite3.Connection) -> tuple[str, str, str] | None:
            return connection.execute(
                "SELECT name, text, sha256 FROM artifacts WHERE run_id = ? AND name = ?", (run_id, name)
            ).fetchone()

        found = await self._writer.do(operation)
        return None if found is None else Artifact(*found)

    async def list_artifacts(self, run_id: str) -> tuple[str, ...]:
        """The names of a run's texts, sorted."""

        def operation(connection: sqlite3.Connection) -> tuple[str, ...]:
            rows = connection.execute("SELECT name FROM artifacts WHERE run_id = ? ORDER BY name", (run_id,))
            return tuple(name for (name,) in rows)

        return await self._writer.do(operation)

    # ---- deliveries

    async def begin_delivery(self, run_id: str, patch_sha256: str, *, generation: int) -> DeliveryReceipt:
        """Notes that a patch is about to be delivered, unless that was noted before.

        Raises:
            StaleGeneration: a later generation of the run was seen.
        """

        def operation(connection: sqlite3.Connection) -> DeliveryReceipt:
            _fence(connection, run_id, generation)
            found = _find_delivery(connection, run_id, patch_sha256)
            if found is None:
                connection.execute(
                    "INSERT INTO deliveries (run_id, patch_sha256, started_at) VALUES (?, ?, ?)",
                    (run_id, patch_sha256, self._now()),
                )
                return DeliveryReceipt("new", None)
            return found

        return await self._writer.do(operation)

    async def finish_delivery(self, run_id: str, patch_sha256: str, result: str) -> None:
        """Notes what came of it, once; a later result changes nothing.

        Args:
            run_id: the run.
            patch_sha256: the patch.
            result: JSON.
        """

        def operation(connection: sqlite3.Connection) -> None:
            connection.execute(
                "UPDATE deliveries SET result = ?, ended_at = ? WHERE run_id = ? AND patch_sha256 = ?"
                " AND result IS NULL",
                (result, self._now(), run_id, patch_sha256),
            )

        await self._writer.do(operation)

    async def find_delivery(self, run_id: str, patch_sha256: str) -> DeliveryReceipt | None:
        """What is known of a delivery; None: nothing."""
        return await self._writer.do(lambda connection: _find_delivery(connection, run_id, patch_sha256))

    # ---- the end

    async def forget_run(self, run_id: str) -> None:
        """Drops everything about a run, once nobody can ask for it any more."""

        def operation(connection: sqlite3.Connection) -> None:
            for table in ("tool_calls", "artifacts", "deliveries", "runs"):
                connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608  a fixed name

        await self._writer.do(operation)

    def _now(self) -> str:
        return format_time(self._clock.now())


def _known(intent: Intent, row: _Row) -> Receipted | None:
    """The answer to a repeated call; None where it is to be made again, as it only reads."""
    if _is_other(intent, row.name, row.arguments_sha256):
        return _mismatch(row.receipt_id)
    if row.outcome is None:
        return None
    return Receipted(row.receipt_id, Outcome.model_validate_json(row.outcome), repeated=True)


def _is_other(intent: Intent, name: str, arguments_sha256: str) -> bool:
    return (intent.name, intent.arguments_sha256) != (name, arguments_sha256)


def _mismatch(receipt_id: str) -> Receipted:
    content = "this tool call id was used for another call; nothing was done"
    return Receipted(receipt_id, Outcome(status="conflict", content=content), repeated=True)


def _cancelled_outcome() -> Outcome:
    return Outcome(status="cancelled", content="the call was cancelled")


def _unknown_outcome() -> Outcome:
    content = (
        "the process doing this call died, so what it did isn't known; it isn't done again by itself: "
        "look at the files before you repeat it"
    )
    return Outcome(status="outcome_unknown", content=content)


def _fence(connection: sqlite3.Connection, run_id: str, generation: int) -> None:
    found = connection.execute("SELECT generation FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if found is not None and found[0] > generation:
        raise StaleGeneration(
            "a later owner of this run is known here", run_id=run_id, generation=generation, known=found[0]
        )
    if found is None or found[0] < generation:
        connection.execute("INSERT OR REPLACE INTO runs VALUES (?, ?)", (run_id, generation))


def _find_delivery(connection: sqlite3.Connection, run_id: str, patch_sha256: str) -> DeliveryReceipt | None:
    found = connection.execute(
        "SELECT result FROM deliveries WHERE run_id = ? AND patch_sha256 = ?", (run_id, patch_sha256)
    ).fetchone()
    if found is None:
        return None
    return DeliveryReceipt("started" if found[0] is None else "ended", found[0])


def _refuse(done: asyncio.Future[Receipted], error: Exception | None) -> None:
    """Tells those who joined; nobody need have."""
    if error is None:
        done.set_result(Receipted("", _cancelled_outcome(), repeated=True))
    else:
        done.set_exception(error)
        done.exception()
