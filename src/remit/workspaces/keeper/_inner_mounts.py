"""What is mounted into a checkout's tree and home: its git folder, carried folders, caches, other mounts."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from remit.workspaces.keeper import _mounts
from remit.workspaces.keeper._copy import CopyBounds, copy_tree
from remit.workspaces.keeper._git_folder import copy_private_git
from remit.workspaces.keeper._ownership import show_as_own
from remit.workspaces.keeper._plan import CheckoutPlan
from remit.workspaces.keeper._storage import Storage


def is_foreign(folder: Path) -> bool:
    """Whether root works on another user's tree."""
    return os.geteuid() == 0 and folder.stat().st_uid != 0


def is_folder(path: Path) -> bool:
    """Whether something may be mounted there."""
    return path.is_dir() and not path.is_symlink()  # nothing may be mounted where a link leads


def take_facts(source: Path, target: Path) -> None:
    """Give a folder the mode of another one."""
    info = source.stat()
    os.chmod(target, stat.S_IMODE(info.st_mode) & 0o777)


def find_owed_git(plan: CheckoutPlan, storage: Storage) -> Callable[[], None] | None:
    """What still has to be done before `.git` is the checkout's own; None: nothing.

    A git folder is a dozen new files, and many a checkout is never looked into: it is made when one is.
    """
    if plan.git_dir is None or plan.isolation == "in_place":
        return None
    if plan.git_template is not None and not os.path.isdir(plan.git_dir):
        return lambda: _mount_git(plan, storage)
    _mount_git(plan, storage)
    return None


def make_git(plan: CheckoutPlan) -> str | None:
    """The checkout's own git folder, made where it isn't there yet; None: it has none."""
    if plan.git_dir is not None and plan.git_template is not None and not os.path.isdir(plan.git_dir):
        copy_private_git(Path(plan.git_template), Path(plan.git_dir))
    return plan.git_dir


def _mount_git(plan: CheckoutPlan, storage: Storage) -> None:
    git_dir = make_git(plan)
    if git_dir is None:
        return
    target = storage.merged / ".git"
    if not is_folder(target):
        target.unlink(missing_ok=True)
        target.mkdir()
    _mounts.bind(Path(git_dir), target)


def carry(
    plan: CheckoutPlan, storage: Storage, notes: list[str], *, privileged: bool, overlaid: bool
) -> None:
    """Shows folders of the root that the base lacks (ignored ones: `.venv`, `node_modules`)."""
    if os.path.samefile(plan.lower, plan.root):
        return  # they are in the tree already
    for relative in plan.carry:
        source = _inside(Path(plan.root), relative)
        target = _inside(storage.merged, relative)
        if source is None or target is None or not source.is_dir() or not _is_free(target):
            continue
        target.mkdir(parents=True, exist_ok=True)
        if overlaid:
            name = hashlib.sha256(os.fsencode(relative)).hexdigest()[:16]  # the same when it is opened again
            with suppress(OSError):
                _carry_over(
                    source,
                    target,
                    storage.carried / name,
                    above=setup_part(plan, f"carried/{name}/upper"),
                    privileged=privileged,
                )
                continue
        _mounts.bind(source, target, read_only=True)
        notes.append(f"{relative} is shown read-only")


def setup_part(plan: CheckoutPlan, name: str) -> Path | None:
    """A part of what setup commands have made."""
    return Path(plan.setup) / name if plan.setup is not None else None


def mount_home(plan: CheckoutPlan, storage: Storage, *, privileged: bool) -> None:
    """Starts the commands' home folder with what setup commands have put there; each run changes its own."""
    made = setup_part(plan, "home")
    if made is None or not made.is_dir():
        return
    try:
        _carry_over(made, storage.home, storage.carried / "home", privileged=privileged)
    except OSError:
        copy_home(made, storage)


def copy_home(made: Path, storage: Storage) -> None:
    """Put a setup's home folder where nothing was put yet."""
    if not any(storage.home.iterdir()):
        storage.home.rmdir()
        copy_tree(made, storage.home, bounds=CopyBounds())


def _is_free(target: Path) -> bool:
    """Whether nothing lies there but, in a checkout that is opened again, the folder to mount on."""
    return not os.path.lexists(target) or (is_folder(target) and not any(target.iterdir()))


def _carry_over(
    source: Path, target: Path, folder: Path, *, above: Path | None = None, privileged: bool
) -> None:
    upper, work, lower = folder / "upper", folder / "work", folder / "lower"
    for part in (upper, work, lower):
        part.mkdir(mode=0o700, parents=True, exist_ok=True)
    if is_foreign(source):
        show_as_own(source, lower)
        source = lower
    take_facts(source, upper)
    overlay = _mounts.Overlay(lower=source, upper=upper, work=work, target=target, above=above)
    _mounts.mount_overlay(overlay, privileged=privileged)


def show_caches(plan: CheckoutPlan, storage: Storage, notes: list[str], *, privileged: bool) -> None:
    """Shows downloads in the commands' home folder: what they add is the checkout's own."""
    for source, relative in plan.caches:
        target = storage.home / relative
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = "home-" + hashlib.sha256(os.fsencode(relative)).hexdigest()[:16]
        try:
            _carry_over(
                Path(source),
                target,
                storage.carried / name,
                above=setup_part(plan, f"carried/{name}/upper"),
                privileged=privileged,
            )
        except OSError as error:
            _mounts.bind(Path(source), target, read_only=True)
            notes.append(f"~/{relative} is shown read-only: {error.strerror or error}")


def show_inner_mounts(plan: CheckoutPlan, storage: Storage, notes: list[str]) -> None:
    """What is mounted inside the root isn't part of the file system that an overlay or a copy is made of."""
    root = Path(plan.root)
    for point in _mounts.mounts_below(root):
        relative = point.relative_to(root)
        target = _inside(storage.merged, str(relative))
        hidden = any(
            point.is_relative_to(folder) or Path(folder).is_relative_to(point) for folder in plan.hidden
        )
        if (
            hidden
            or relative.parts[0] == ".git"
            or not point.is_dir()
            or target is None
            or not target.is_dir()
        ):
            continue
        try:
            _mounts.bind(point, target, read_only=True)
        except OSError as error:
            notes.append(f"{relative} is a mount of its own and isn't shown: {error.strerror}")
        else:
            notes.append(f"{relative} is a mount of its own and is shown read-only")


def protect(merged: Path, relative: str) -> None:
    """Let nobody write below a path of the tree."""
    target = _inside(merged, relative)
    if target is not None and target.exists():
        _mounts.bind(target, target)
        _mounts.make_read_only(target)


def _inside(folder: Path, relative: str) -> Path | None:
    """The path below `folder` that `relative` names; None when a link or `..` leads it elsewhere."""
    path = folder / relative
    real = Path(os.path.realpath(path))
    return path if real == Path(os.path.realpath(folder)) / relative and real != folder else None
