"""From any released schema to the present one: numbered steps, forward only, one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from remit.errors import SchemaTooNew, StorageError
from remit.storage._schema import SCHEMA_V1, SCHEMA_V2, SCHEMA_V3, SCHEMA_V4, SCHEMA_V5, SCHEMA_V6, SCHEMA_V7

APPLICATION_ID: Final = 0x524D_4954
"""Marks the file as ours ("RMIT")."""

OTHERS_DATABASE: Final = (
    "the data folder's database belongs to another program; set REMIT_HOME to another folder"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One step. Once it is released it never changes."""

    number: int
    """The schema's number after it."""
    apply: Callable[[sqlite3.Connection], None]


def _create(connection: sqlite3.Connection) -> None:
    for statement in SCHEMA_V1:
        connection.execute(statement)


def _add_tombstones(connection: sqlite3.Connection) -> None:
    for statement in SCHEMA_V2:
        connection.execute(statement)


def _add_keys(connection: sqlite3.Connection) -> None:
    for statement in SCHEMA_V3:
        connection.execute(statement)


def _add_parents(connection: sqlite3.Connection) -> None:
    for statement in SCHEMA_V4:
        connection.execute(statement)


def _add_key_ids(connection: sqlite3.Connection) -> None:
    for statement in SCHEMA_V5:
        connection.execute(statement)


def _add_audit(connection: sqlite3.Connection) -> None:
    for statement in SCHEMA_V6:
        connection.execute(statement)


def _let_old_acts_go(connection: sqlite3.Connection) -> None:
    for statement in SCHEMA_V7:
        connection.execute(statement)


MIGRATIONS: Final = (
    Migration(number=1, apply=_create),
    Migration(number=2, apply=_add_tombstones),
    Migration(number=3, apply=_add_keys),
    Migration(number=4, apply=_add_parents),
    Migration(number=5, apply=_add_key_ids),
    Migration(number=6, apply=_add_audit),
    Migration(number=7, apply=_let_old_acts_go),
)
"""All of them, in order."""


def migrate(connection: sqlite3.Connection, *, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """Bring the schema up to date, all or nothing; returns how many steps that took.

    The caller holds the schema lock, so that hosts that start at once don't do it twice.

    Raises:
        SchemaTooNew: A newer Remit has been here.
        StorageError: The file is another program's database.
    """
    newest = migrations[-1].number
    if _present_number(connection, newest) == newest:
        return 0  # what is up to date needs no lock, which somebody may hold just now
    connection.execute("BEGIN IMMEDIATE")
    try:
        present = _present_number(connection, newest)
        todo = [migration for migration in migrations if migration.number > present]
        for migration in todo:
            migration.apply(connection)
        if todo:
            connection.execute(f"PRAGMA user_version = {newest:d}")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return len(todo)


def check_owner(connection: sqlite3.Connection, *, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Refuse a file that isn't ours, or that a newer Remit wrote; writes nothing.

    Raises:
        SchemaTooNew: A newer Remit has been here.
        StorageError: The file is another program's database.
    """
    _present_number(connection, migrations[-1].number)


def _present_number(connection: sqlite3.Connection, newest: int) -> int:
    number = int(connection.execute("PRAGMA user_version").fetchone()[0])
    mark = int(connection.execute("PRAGMA application_id").fetchone()[0])
    filled = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0
    if mark != APPLICATION_ID and (mark or number or filled):
        raise StorageError(OTHERS_DATABASE)
    if number > newest:
        raise SchemaTooNew(
            f"a newer Remit wrote the data folder (schema {number}; this one knows {newest}): install "
            "that one, or set REMIT_HOME to another folder",
            schema=number,
            known=newest,
        )
    return number
