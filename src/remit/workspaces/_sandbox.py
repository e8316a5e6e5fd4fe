"""Plans a checkout: which folders, which view of the machine, which environment its commands get."""

from __future__ import annotations

import base64
import os
import pwd
from functools import lru_cache
from pathlib import Path
from typing import Final

from remit.contract import SandboxLevel
from remit.workspaces._bubblewrap import (
    SYSTEM_FOLDERS,
    SYSTEM_PATH,
    SandboxView,
    offline_options,
    online_options,
    view_options,
)
from remit.workspaces._checkout_request import CheckoutRequest
from remit.workspaces._etc import etc_folder, user_name
from remit.workspaces._failures import WorkspaceRefused
from remit.workspaces._landlock_view import landlock_plan
from remit.workspaces._probe import Probe
from remit.workspaces._seccomp import seccomp_program
from remit.workspaces.keeper._plan import CheckoutPlan

__all__ = ["check_root", "plan_checkout", "prepare_etc", "trial_options"]

_NEUTRAL_HOME: Final = Path("/home/remit")
_UNATTENDED: Final = {
    "CI": "1",
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "SUDO_ASKPASS": "false",
    "GCM_INTERACTIVE": "never",
    "EDITOR": "false",
    "VISUAL": "false",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}
"""Nobody is there to answer: what would ask must fail at once."""


def plan_checkout(request: CheckoutRequest, *, probe: Probe, sandbox: SandboxLevel) -> CheckoutPlan:
    """Everything the keeper needs to know.

    Raises:
        WorkspaceRefused: the folder can't be a workspace.
    """
    root, data = request.root, request.data.resolve()
    lower = request.lower or root
    check_root(root)
    isolation = "overlay" if request.isolation == "auto" else request.isolation
    may_copy = request.isolation == "auto"
    storage = request.storage.resolve()
    home = home_for(root)
    if sandbox != "bubblewrap":
        home = storage / "home"
    within, _ = _split_caches(request, home)
    return CheckoutPlan(
        checkout_id=request.checkout_id,
        root=str(root),
        lower=str(lower),
        storage=str(storage),
        isolation=isolation,
        may_copy=may_copy,
        is_git=request.is_git,
        git_dir=str(request.git_dir) if request.git_dir else None,
        git_template=str(request.git_template) if request.git_template else None,
        carry=request.carry,
        read_only=request.read_only,
        caches=tuple((str(cache), str(cache.relative_to(home))) for cache in within),
        setup=str(request.setup) if request.setup is not None else None,
        keep_home=request.keep_home,
        hidden=(str(data),),
        sandbox=sandbox,
        bubblewrap=str(probe.bubblewrap or ""),
        sandbox_options=_options(request, storage=storage, data=data, home=home)
        if sandbox == "bubblewrap"
        else (),
        offline_options=offline_options(),
        online_options=online_options(),
        seccomp=base64.b64encode(seccomp_program()).decode("ascii") if sandbox == "bubblewrap" else "",
        landlock=landlock_plan(request) if sandbox == "landlock" else None,
        cgroup=probe.cgroup,
        environment=_environment(
            request,
            home=home,
            scratch=storage / "scratch" if sandbox == "landlock" else Path("/tmp"),  # noqa: S108  the view's
        ),
        limits=request.limits,
    )


def _options(request: CheckoutRequest, *, storage: Path, data: Path, home: Path) -> tuple[str, ...]:
    return view_options(
        SandboxView(
            tree=storage / "merged",
            root=request.root,
            home=home,
            storage=storage,
            etc=etc_folder(data, home=home),
            hidden=(data,),
            read_only=(*request.toolchains.read_only, *_split_caches(request, home)[1]),
            writable=request.toolchains.writable,
            masked=request.toolchains.masked,
            object_stores=request.object_stores,
            shared_memory_bytes=request.limits.shared_memory_bytes,
            in_place=request.isolation == "in_place",
        )
    )


def _split_caches(request: CheckoutRequest, home: Path) -> tuple[list[Path], list[Path]]:
    """Those inside the home folder that commands see, which are theirs to change, and the others."""
    caches = request.toolchains.caches
    within = [cache for cache in caches if cache.is_relative_to(home)]
    return within, [cache for cache in caches if cache not in within]


def prepare_etc(data: Path) -> None:
    """Makes what most checkouts will need, ahead of the first."""
    etc_folder(data.resolve(), home=home_for(None))


def _environment(request: CheckoutRequest, *, home: Path, scratch: Path) -> dict[str, str]:
    path = [*request.toolchains.path, *(folder for folder in SYSTEM_PATH if os.path.isdir(folder))]
    name = user_name()
    return {
        "PATH": ":".join(dict.fromkeys(path)),
        "HOME": str(home),
        "USER": name,
        "LOGNAME": name,
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TMPDIR": str(scratch),  # the checkout's own
        **_UNATTENDED,
        **request.toolchains.environment,
        **request.environment,
    }


def check_root(root: Path) -> None:
    """Refuses folders that can't be a workspace.

    Raises:
        WorkspaceRefused: it isn't an absolute path of a readable folder, or it is `/` or a home folder.
    """
    if not root.is_absolute() or root != Path(os.path.realpath(root)):
        raise WorkspaceRefused(f"{root}: a workspace root must be an absolute path without links")
    if not root.is_dir():
        raise WorkspaceRefused(f"{root} isn't a folder")
    if not os.access(root, os.R_OK | os.X_OK):
        raise WorkspaceRefused(f"{root} can't be read")
    if root == Path("/"):
        raise WorkspaceRefused("/ can't be a workspace; name the folder of one project")
    if _is_home(root):
        raise WorkspaceRefused(f"{root} is a home folder; name the folder of one project in it")


def _is_home(root: Path) -> bool:
    homes = {*_homes_of_users(_changed_at_ns("/etc/passwd"), os.getuid()), os.path.expanduser("~")}
    homes |= {"/root", "/home", "/Users"}
    return any(os.path.isdir(home) and os.path.samefile(root, home) for home in homes if home)


@lru_cache(maxsize=4)
def _homes_of_users(_changed_at_ns: int, own_uid: int) -> tuple[str, ...]:
    """Home folders of people, and of the user that this runs as; asked again when that file changed."""
    return tuple(entry.pw_dir for entry in pwd.getpwall() if entry.pw_uid == own_uid or entry.pw_uid >= 1000)


def _changed_at_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def home_for(root: Path | None) -> Path:
    """Where commands see their own, empty home: at the user's path, so that a toolchain's `~/…` is right."""
    home = Path(os.path.realpath(os.path.expanduser("~")))
    system = [Path(folder) for folder in (*SYSTEM_FOLDERS, "/etc", "/proc", "/dev")]
    unfit = home in (Path("/"), Path("/tmp")) or any(home.is_relative_to(folder) for folder in system)  # noqa: S108 - looked for, not written to
    if unfit or (root is not None and home.is_relative_to(root)):
        return _NEUTRAL_HOME
    return home


def trial_options() -> tuple[str, ...]:
    """What bubblewrap is tried with: the same namespaces as for a command, and nothing of a workspace."""
    return (
        *("--die-with-parent", "--new-session", "--unshare-user", "--disable-userns", "--unshare-ipc"),
        *("--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL"),
        *("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--size", "4096", "--tmpfs", "/tmp"),  # noqa: S108 - the sandbox's own
        *("--", "true"),
    )
