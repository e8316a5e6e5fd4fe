"""Which names a branch may have: pure."""

from __future__ import annotations

import re

from remit.errors import InvalidRequest

MAX_BRANCH_BYTES = 200
# What `git check-ref-format --branch` takes, and no name that git or a shell would read as something else.
_NAME = re.compile(r"(?!.*(?:\.\.|//|@\{|/\.|\.lock(?:/|\Z)))(?![-./])[^\x00-\x20\x7f~^:?*\[\\]+(?<![./])\Z")
_RESERVED = frozenset({"HEAD", "@", "FETCH_HEAD", "ORIG_HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD"})
_COMMIT = re.compile(r"[0-9a-fA-F]{40}(?:[0-9a-fA-F]{24})?\Z")


def check_branch_name(name: str, *, param: str = "delivery.branch") -> str:
    """The name, where git would take it for a branch.

    Raises:
        InvalidRequest: It wouldn't, or the name would be read as something else.
    """
    size = len(name.encode("utf-8", "surrogatepass"))
    if size > MAX_BRANCH_BYTES:
        raise InvalidRequest(f"a branch's name has at most {MAX_BRANCH_BYTES} bytes", param=param)
    taken = name.isprintable() and _NAME.match(name) and name not in _RESERVED and not _COMMIT.match(name)
    if not taken or name.startswith("refs/"):
        raise InvalidRequest(
            f"{name[:100]!r} can't be a branch's name; take letters, digits, `-`, `_`, `.` and `/`, such as "
            "`remit/fix-total`",
            param=param,
        )
    return name


def default_branch(run_id: str) -> str:
    """The branch of a run that names none."""
    return f"remit/{run_id}"
