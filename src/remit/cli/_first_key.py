"""The first key of a data folder: made once, kept in a file that only its owner can read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from remit.contract import SCOPES, ApiKey
from remit.errors import StorageError
from remit.primitives import Clock, Ids

FILE: Final = "api-key"
_UNBORN: Final = "api-key.new"
NAME: Final = "first"


class KeyStore(Protocol):
    """Where keys are kept."""

    async def add_key(self, key: ApiKey, *, key_hash: str) -> None:
        """Keep a key."""
        ...

    async def find_key(self, key_hash: str) -> ApiKey | None:
        """The key of a hash, or None."""
        ...

    async def list_keys(self, *, tenant: str | None = None) -> tuple[ApiKey, ...]:
        """All keys."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstKey:
    """Where the key is."""

    path: Path | None
    """None: there are keys, and no file holds one."""
    created: bool

    @property
    def sentence(self) -> str:
        """The same, to be said."""
        if self.path is None:
            return "keys: `remit keys list` shows them; the CLI takes one from REMIT_API_KEY"
        made = "made just now" if self.created else "there already"
        return f"key: in {self.path} ({made}; readable by you alone)"


async def ensure_first_key(store: KeyStore, data: Path, *, clock: Clock, ids: Ids) -> FirstKey:
    """Find the file with the first key, or make key and file where no key is there at all.

    A start that died half way is taken up: the file gets its name only when the key counts.

    Raises:
        StorageError: The file can't be written.
    """
    from remit.api import hash_secret, new_secret  # noqa: PLC0415 - an optional extra comes with it

    path, unborn = data / FILE, data / _UNBORN
    try:
        if path.exists():
            return FirstKey(path=path, created=False)
        left = _read(unborn)
        if left is not None and await store.find_key(hash_secret(left)) is not None:
            unborn.rename(path)
            return FirstKey(path=path, created=True)
        unborn.unlink(missing_ok=True)
        if await store.list_keys():
            return FirstKey(path=None, created=False)
        secret = new_secret()
        _write(unborn, secret)
        key = ApiKey(id=ids.new("key"), name=NAME, scopes=SCOPES, created_at=clock.now())
        await store.add_key(key, key_hash=hash_secret(secret))
        unborn.rename(path)
    except OSError as error:
        raise StorageError(f"the first key can't be kept in {data}: {error.strerror}") from error
    return FirstKey(path=path, created=True)


def find_secret(data: Path, environment: Mapping[str, str]) -> str | None:
    """The key that the command line uses: REMIT_API_KEY, else the data folder's; None: there is none."""
    given = environment.get("REMIT_API_KEY", "").strip()
    return given or _read(data / FILE)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _write(path: Path, secret: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(file, "w", encoding="ascii") as opened:
        opened.write(secret + "\n")
        opened.flush()
        os.fsync(opened.fileno())
