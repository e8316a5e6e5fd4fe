"""The data folder: whose it is, and who may read it."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from remit.errors import StorageError
from remit.storage._folder import DataFolder

if TYPE_CHECKING:
    from pathlib import Path


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def _loose_umask() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_new_folder_is_its_owners_alone(tmp_path: Path) -> None:
    """Interfaces, section 9: 0700, whatever the umask, with its parents."""
    folder = DataFolder.prepare(tmp_path / "a" / "data")
    assert mode_of(folder.path) == 0o700
    assert mode_of(folder.epochs) == 0o700
    folder.touch_database()
    assert mode_of(folder.database) == 0o600


def test_an_empty_folder_is_closed_to_others(tmp_path: Path) -> None:
    """A folder that was made beforehand becomes 0700 too, and so does one that holds our database."""
    (tmp_path / "data").mkdir(mode=0o755)
    folder = DataFolder.prepare(tmp_path / "data")
    folder.touch_database()
    folder.path.chmod(0o755)
    folder.database.chmod(0o644)
    DataFolder.prepare(tmp_path / "data").touch_database()
    assert mode_of(folder.path) == 0o700
    assert mode_of(folder.database) == 0o600


def test_a_folder_with_other_things_keeps_its_mode(tmp_path: Path) -> None:
    """A folder that was named by mistake isn't changed; one that others may write to isn't used."""
    other = tmp_path / "home"
    other.mkdir(mode=0o755)
    (other / "letter").write_text("x")
    DataFolder.prepare(other)
    assert mode_of(other) == 0o755
    shared = tmp_path / "tmp"
    shared.mkdir(mode=0o1777)
    (shared / "letter").write_text("x")
    shared.chmod(0o1777)
    with pytest.raises(StorageError, match="others may write"):
        DataFolder.prepare(shared)
    assert mode_of(shared) == 0o1777


def test_what_isnt_a_folder(tmp_path: Path) -> None:
    """One clear error, naming the path."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="file"):
        DataFolder.prepare(tmp_path / "file")


def test_a_link_in_place_of_the_database_is_refused(tmp_path: Path) -> None:
    """A file that is a link is never followed: it could lead out of the folder."""
    folder = DataFolder.prepare(tmp_path / "data")
    folder.database.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"symbolic links|too many"):
        folder.touch_database()
    assert not (tmp_path / "elsewhere").exists()
