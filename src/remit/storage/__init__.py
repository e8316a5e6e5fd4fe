"""Where runs are kept: an append-only log with its projections, on SQLite.

A data folder belongs to one user and may be shared by several hosts of theirs. `SqliteStore` is what the runs
need of it (`remit.runs.RunStore`); `Epochs` tells which hosts are alive.
"""

from remit.storage._epochs import Epoch, Epochs, take_serve_lock
from remit.storage._hooks import Commit, CommitHook, CommitMoment
from remit.storage._locks import FileLock
from remit.storage._opening import StoreSettings
from remit.storage._reader import StoreReader
from remit.storage._sqlite import SqliteStore

__all__ = [
    "Commit",
    "CommitHook",
    "CommitMoment",
    "Epoch",
    "Epochs",
    "FileLock",
    "SqliteStore",
    "StoreReader",
    "StoreSettings",
    "take_serve_lock",
]
