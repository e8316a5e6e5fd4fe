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
    making = target.with_name(f"{target.name}.unfinished")
    shutil.rmtree(making, ignore_errors=True)
    # Git makes the other folders when it needs them.
    for name in ("objects/info", "refs", "info"):
        (making / name).mkdir(parents=True)
    for name in ("HEAD", "config", "packed-refs", "shallow", "info/attributes", "info/exclude"):
        with suppress(FileNotFoundError):
            (making / name).write_bytes((template / name).read_bytes())
    if (template / "index").is_file():
        shutil.copy2(template / "index", making / "index")  # with its time: git trusts what is older
    write_alternates(making, [template / "objects"])
    os.rename(making, target)
    return target


def write_alternates(folder: Path, stores: Sequence[Path]) -> None:
    """Name the object stores that a git folder reads from, by absolute path."""
    lines = "".join(f"{_quote_alternate(str(store))}\n" for store in stores)
    (folder / "objects/info/alternates").write_text(lines, "utf-8", "surrogateescape")


def _quote_alternate(path: str) -> str:
    if "\n" in path:  # a line that begins with a quote is read as a C string
        return '"' + path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return path
