"""The git folder of one checkout: a copy of what its base was pinned with, that writes its own objects."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


def copy_private_git(template: Path, target: Path) -> Path:
    """Make the git folder of one checkout: it writes its own objects and reads the pin's.

    Args:
        template: The git folder of the pin.
        target: Where; must not exist.

    Raises:
        OSError: It can't be made; nothing stands at `target` then.
    """
    # Whoever copies a checkout that is open must find a whole one, or none.
    making = f"{target}.unfinished"
    if os.path.lexists(making):
        shutil.rmtree(making)
    os.makedirs(making)
    # Git makes the other folders when it needs them.
    for name in ("objects", "objects/info", "refs", "info"):
        os.mkdir(f"{making}/{name}")
    for name in ("HEAD", "config", "packed-refs", "shallow", "info/attributes", "info/exclude", "index"):
        with suppress(FileNotFoundError):
            _copy_file(f"{template}/{name}", f"{making}/{name}")
    write_alternates(Path(making), [template / "objects"])
    os.rename(making, target)
    return target


def _copy_file(source: str, target: str) -> None:
    """Bytes and times: git trusts what is older than its index. Plain calls, since a fork runs cold."""
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        info = os.fstat(reading)
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, info.st_mode & 0o777)
        try:
            while piece := os.read(reading, 1 << 20):
                view = memoryview(piece)
                while view:
                    view = view[os.write(writing, view) :]
            os.utime(writing, ns=(info.st_atime_ns, info.st_mtime_ns))
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def write_alternates(folder: Path, stores: Sequence[Path]) -> None:
    """Name the object stores that a git folder reads from, by absolute path."""
    lines = "".join(f"{_quote_alternate(str(store))}\n" for store in stores)
    (folder / "objects/info/alternates").write_text(lines, "utf-8", "surrogateescape")


def _quote_alternate(path: str) -> str:
    if "\n" in path:  # a line that begins with a quote is read as a C string
        return '"' + path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return path
