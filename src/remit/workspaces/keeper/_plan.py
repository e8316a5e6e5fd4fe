"""What a node asks of a keeper, and the bounds that hold for every command of a checkout."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

PROXY_PORT: Final = 7431
"""Where a sandbox with a list of hosts finds its proxy: on its own loopback, so it is free in each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one command, and of what the checkout shares."""

    max_processes: int = 4_096
    """Processes and threads of one command at a time."""
    max_file_bytes: int = 8 * 1024**3
    """Size of a single file that a command writes."""
    scratch_bytes: int = 1024**3
    """Size of the checkout's /tmp, which is kept in memory."""
    shared_memory_bytes: int = 256 * 1024**2
    """Size of a command's /dev/shm."""
    max_copy_bytes: int = 1024**3
    """Largest tree that is copied, when it isn't a git work tree."""
    max_copy_files: int = 100_000
    """Most files that are copied, when it isn't a git work tree."""
    close_grace_ms: int = 200
    """From TERM to KILL for what still runs when the checkout is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutPlan:
    """Everything a keeper needs to open one checkout. Sent as JSON, so all values are plain."""

    checkout_id: str
    root: str
    """The workspace root; commands see the checkout's tree at this path."""
    lower: str
    """The folder whose content is the base; it is only read."""
    storage: str
    isolation: str
    """`overlay`, `copy` or `in_place`."""
    may_copy: bool
    """Whether an overlay that is refused may become a copy."""
    is_git: bool
    """A git work tree may be copied whatever its size."""
    git_dir: str | None
    """Shown as the tree's `.git`; None: the tree's own is left as it is."""
    git_template: str | None
    """What `git_dir` is made from where it isn't there; None: it is."""
    carry: tuple[str, ...]
    """Relative folders taken from the root when the base is another folder."""
    read_only: tuple[str, ...]
    """Relative paths that nobody can write."""
    caches: tuple[tuple[str, str], ...]
    """Folders of downloads, and where in the commands' home folder each is shown, copy-on-write."""
    setup: str | None
    """Folder of what setup commands have made on such a base, shown below what the checkout changes."""
    keep_home: bool
    """Whether the home folder stays, too, when the checkout is closed and kept: it is a setup's own."""
    hidden: tuple[str, ...]
    """Absolute folders that a copy leaves out (the data folder)."""
    sandbox: str
    """`bubblewrap`, `landlock`, `external` or `none`."""
    bubblewrap: str
    """Path of the program; empty without it."""
    sandbox_options: tuple[str, ...]
    """Bubblewrap's options that hold for each command of the checkout."""
    offline_options: tuple[str, ...]
    """Those added for a command without network, or with a list of hosts."""
    online_options: tuple[str, ...]
    """Those added for a command with network."""
    seccomp: str
    """The filter program, base64; empty without one."""
    landlock: dict[str, Any] | None
    """At that level: what may be read, listed and written beside the checkout, and the call filters."""
    cgroup: str | None
    """A folder of the pids controller in which groups may be made; None: not bounded that way."""
    environment: dict[str, str]
    """What each command's environment starts from."""
    limits: Limits

    def to_json(self) -> dict[str, Any]:
        """The plan as it is sent; its values are shared, since it goes straight into JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {"limits": {field.name: getattr(self.limits, field.name) for field in fields(Limits)}}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CheckoutPlan:
        """The plan as it was sent."""
        values = {field.name: data[field.name] for field in fields(cls)}
        for name in ("carry", "read_only", "hidden", "sandbox_options", "offline_options", "online_options"):
            values[name] = tuple(values[name])
        values["caches"] = tuple((source, inside) for source, inside in data["caches"])
        values["limits"] = Limits(**values["limits"])
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOrder:
    """One command to run."""

    call_id: str
    argv: tuple[str, ...]
    cwd: str
    """Relative to the root."""
    environment: dict[str, str]
    timeout_ms: int
    max_output_bytes: int
    network: bool | tuple[str, ...]
    """Hosts: those alone, through a proxy."""
    streamed: bool
    """Whether output is sent while the command runs, as far as the node keeps up."""
    confined: bool
    """False: outside the checkout's sandbox, with no environment but this order's own."""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CommandOrder:
        """The order as it was sent."""
        values = {field.name: data[field.name] for field in fields(cls)}
        values["argv"] = tuple(values["argv"])
        if not isinstance(values["network"], bool):
            values["network"] = tuple(str(host) for host in values["network"])
        return cls(**values)

    @property
    def label(self) -> str:
        """The command as a person would name it."""
        shell = len(self.argv) == 3 and self.argv[1] == "-c"
        words = self.argv[2] if shell else " ".join(self.argv)
        shown = "".join(character if character.isprintable() else " " for character in words)
        return shown if len(shown) <= 200 else shown[:199] + "…"
