"""The operations that a keeper does on a checkout's files, by name.

Each is a plain function of the root's handle and its arguments. It returns JSON values, among them `content`
(what a model may see), `truncated`, and `changed` (paths from the root) where it changes files; or it raises
`OperationRefused(status, message)` and has changed nothing. They may run for some seconds and may be killed
at any time: each runs in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from remit.workspaces.keeper._apply_patch import apply_patch
from remit.workspaces.keeper._edit import edit_file
from remit.workspaces.keeper._files import delete_file, move_file, read_file, write_file
from remit.workspaces.keeper._listing import list_files
from remit.workspaces.keeper._search import search
from remit.workspaces.keeper._take_over import take_over

Operation = Callable[[int, Mapping[str, object]], dict[str, object]]

OPERATIONS: Final[dict[str, Operation]] = {
    "list_files": list_files,
    "read_file": read_file,
    "search": search,
    "write_file": write_file,
    "edit_file": edit_file,
    "apply_patch": apply_patch,
    "move_file": move_file,
    "delete_file": delete_file,
    "take_over": take_over,
}
