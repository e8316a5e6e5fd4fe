"""What `remit trust` does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rich.text import Text

from remit.cli._place import start_folder
from remit.cli._screen import console_on, glyphs_of
from remit.cli._words import one_line, plain, say
from remit.config import (
    FILE_NAME,
    ConfigFile,
    TrustStore,
    data_folder,
    find_repository_root,
    make_data_folder,
    read_config_file,
    refuse_data_inside,
    untrusted_keys,
)
from remit.errors import ConfigError, NotFound


def trust_file(wanted: Path | None, *, only_show: bool) -> int:
    """Show what a file sets, and trust it.

    Raises:
        ConfigError: There is no such file, or it can't be read.
    """
    file = read_config_file(_path(wanted))
    keys = untrusted_keys(file)
    _show(file, keys)
    data = data_folder(os.environ)
    is_trusted = TrustStore(data).is_trusted(file)
    if is_trusted:
        say("it is trusted as it is")
    elif not keys:
        say("it sets nothing that needs trust")
    elif only_show:
        say(f"it isn't trusted; `remit trust {file.path}` does that")
    else:
        refuse_data_inside(data, [file.path.parent])
        TrustStore(make_data_folder(data)).trust(file)
        say("trusted as it is now; a change makes it untrusted again")
    return 0


def _path(wanted: Path | None) -> Path:
    if wanted is not None:
        if wanted.is_dir():
            raise ConfigError(f"{wanted} is a folder; name the file, such as {wanted / FILE_NAME}")
        return wanted.absolute()
    here = start_folder()
    root = find_repository_root(here)
    for folder in (here, *here.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
        if folder == root:
            break
    raise NotFound(f"no {FILE_NAME} from here up to the root of the repository; name one")


def _show(file: ConfigFile, keys: tuple[str, ...]) -> None:
    console, glyphs = console_on(sys.stdout), glyphs_of(sys.stdout)
    console.print(Text(one_line(str(file.path)), style="bold"), soft_wrap=True)
    for line in plain(file.text.decode("utf-8", "replace")).rstrip().split("\n"):
        console.print(Text(f"  {line}", style="dim" if line.lstrip().startswith("#") else ""), soft_wrap=True)
    if keys:
        console.print(Text("counts only when trusted:", style="bold"))
        for key in keys:
            console.print(Text(f"  {glyphs.dot} {one_line(key)}", style="yellow"), soft_wrap=True)
