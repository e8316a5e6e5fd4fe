"""Opens a checkout: its tree as an overlay, a copy or the place itself, and what is mounted into it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from remit.workspaces.keeper import _mounts
from remit.workspaces.keeper._copy import CopyBounds, TreeTooLarge, copy_tree, merge_tree
from remit.workspaces.keeper._inner_mounts import (
    carry,
    copy_home,
    find_owed_git,
    is_folder,
    is_foreign,
    make_git,
    mount_home,
    protect,
    setup_part,
    show_caches,
    show_inner_mounts,
    take_facts,
)
from remit.workspaces.keeper._ownership import show_as_own
from remit.workspaces.keeper._plan import CheckoutPlan
from remit.workspaces.keeper._storage import Storage, remove_tree

_FULL = (errno.ENOSPC, errno.EDQUOT)


class OpenRefused(Exception):
    """The checkout can't be opened.

    Attributes:
        kind: `unavailable`, `storage_full`, `refused` or `busy`.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(slots=True, kw_only=True)
class Opened:
    """A checkout that is open in this process."""

    storage: Storage
    root: str
    """Where commands see the tree."""
    isolation: str
    root_fd: int
    lock_fd: int
    bound: bool
    """Whether a command's own mount namespace must show the tree at `root`."""
    caches: tuple[tuple[str, str], ...] = ()
    """What is mounted in the home folder: source and where."""
    keep_home: bool = False
    """Whether the home folder stays when the checkout is kept."""
    notes: list[str] = field(default_factory=list[str])
    """What the user should know, in words."""
    owed: Callable[[], None] | None = None
    """What must be done before anybody looks into the tree."""

    def complete(self) -> None:
        """Make the tree fit to be looked into. Every door to it comes through here first.

        Raises:
            OSError: It can't be made so; the next call tries again.
        """
        if self.owed is not None:
            self.owed()
            self.owed = None


def open_checkout(plan: CheckoutPlan, *, check: Callable[[], None] = lambda: None) -> Opened:
    """Makes the checkout's tree and mounts it in this process's own namespace.

    Args:
        plan: what to open.
        check: is called now and then while a tree is copied; what it raises ends the opening.

    Raises:
        OpenRefused: it can't be, and why.
        OSError: something unforeseen.
    """
    storage = Storage(Path(plan.storage))
    storage.make()
    try:
        lock_fd = storage.lock()
    except BlockingIOError:
        raise OpenRefused("busy", f"the checkout {plan.checkout_id} is open in another process") from None
    try:
        return _open_locked(plan, storage, lock_fd, check)
    except BaseException:
        os.close(lock_fd)  # before the refusal is told: the caller may try again at once
        raise


def _open_locked(plan: CheckoutPlan, storage: Storage, lock_fd: int, check: Callable[[], None]) -> Opened:
    try:
        privileged = _mounts.enter_mount_namespace()
    except OSError as error:
        return _open_without_namespace(plan, storage, lock_fd, error, check)
    notes: list[str] = []
    mount_home(plan, storage, privileged=privileged)
    isolation = _make_tree(plan, storage, notes, check, privileged=privileged)
    owed = find_owed_git(plan, storage)
    if isolation != "in_place":
        carry(plan, storage, notes, privileged=privileged, overlaid=isolation == "overlay")
        show_inner_mounts(plan, storage, notes)
    for relative in plan.read_only:
        protect(storage.merged, relative)
    show_caches(plan, storage, notes, privileged=privileged)
    _mounts.mount_scratch(storage.scratch, size_bytes=plan.limits.scratch_bytes)
    return Opened(
        storage=storage,
        root=plan.root,
        isolation=isolation,
        root_fd=os.open(storage.merged, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC),
        lock_fd=lock_fd,
        bound=isolation != "in_place",
        caches=plan.caches,
        keep_home=plan.keep_home,
        notes=notes,
        owed=owed,
    )


def close_checkout(opened: Opened, *, keep: bool) -> list[str]:
    """Takes the mounts off and, unless `keep`, removes what was stored; returns what couldn't be done."""
    problems: list[str] = []
    os.close(opened.root_fd)
    storage = opened.storage
    # What is mounted inside goes with it, but not in the home folder: that one is a plain folder.
    inner = [storage.home / relative for _, relative in opened.caches]
    for target in (*inner, storage.home, storage.scratch, storage.merged, storage.lower):
        with suppress(OSError):  # EINVAL: nothing is mounted there
            while True:
                _mounts.unmount(target)
    if keep:
        # Only the tree is of use later; the kernel's scratch folder of an overlay must not be used twice.
        for part in (storage.scratch, *(() if opened.keep_home else (storage.home,))):
            _try(lambda part=part: remove_tree(part), problems)
    else:
        _try(lambda: remove_tree(storage.folder), problems)
    os.close(opened.lock_fd)
    return problems


def _try(action: Callable[[], None], problems: list[str]) -> None:
    try:
        action()
    except OSError as error:
        problems.append(str(error))


# ---- the tree


def _make_tree(
    plan: CheckoutPlan,
    storage: Storage,
    notes: list[str],
    check: Callable[[], None],
    *,
    privileged: bool,
) -> str:
    if plan.isolation == "in_place":
        _bind_place(Path(plan.root), storage.merged, notes)
        return "in_place"
    if plan.isolation == "overlay" and not storage.tree.exists():
        try:
            _overlay_tree(plan, storage, privileged=privileged)
        except OSError as error:
            if error.errno in _FULL:
                raise OpenRefused("storage_full", "the disk under the data folder is full") from error
            if not plan.may_copy:
                reason = f"an overlay over {plan.lower} is refused: {error.strerror or error}"
                raise OpenRefused("unavailable", f'{reason}; isolation = "copy" works without one') from error
            notes.append(f"copied instead of overlaid: {error.strerror or error}")
        else:
            return "overlay"
    _copied_tree(plan, storage, notes, check)
    _mounts.bind(storage.tree, storage.merged)
    return "copy"


def _bind_place(root: Path, merged: Path, notes: list[str]) -> None:
    if is_foreign(root):
        try:
            show_as_own(root, merged)  # what is made through it belongs to the tree's owner
        except OSError as error:
            reason = error.strerror or error
            notes.append(f"the tree is another user's, and root's commands can't change it ({reason})")
        else:
            return
    _mounts.bind(root, merged)


def _overlay_tree(plan: CheckoutPlan, storage: Storage, *, privileged: bool) -> None:
    lower = Path(plan.lower)
    if any(Path(folder).is_relative_to(lower) for folder in plan.hidden):
        # The kernel doesn't mind, but the tree would then hold what is stored of every checkout.
        raise OSError(errno.ELOOP, "the data folder lies inside the workspace")
    storage.upper.mkdir(mode=0o700, exist_ok=True)
    storage.work.mkdir(mode=0o700, exist_ok=True)
    if is_foreign(lower):
        storage.lower.mkdir(mode=0o700, exist_ok=True)
        show_as_own(lower, storage.lower)
        lower = storage.lower
    take_facts(lower, storage.upper)  # the merged root has the owner and mode of the upper one
    if plan.git_dir is not None and not is_folder(lower / ".git"):
        (storage.upper / ".git").mkdir(exist_ok=True)  # a linked worktree's file, or nothing
    overlay = _mounts.Overlay(
        lower=lower,
        upper=storage.upper,
        work=storage.work,
        target=storage.merged,
        above=setup_part(plan, "upper"),
    )
    _mounts.mount_overlay(overlay, privileged=privileged)
    if os.statvfs(storage.merged).f_flag & os.ST_RDONLY:
        _mounts.unmount(storage.merged)
        raise OSError(errno.EROFS, "the kernel would mount it read-only")


def _copied_tree(plan: CheckoutPlan, storage: Storage, notes: list[str], check: Callable[[], None]) -> None:
    if storage.tree.exists():  # a kept checkout, opened again
        return
    skip = {Path(folder) for folder in plan.hidden}
    if plan.git_dir is not None:
        skip.add(Path(plan.lower) / ".git")
    limits = plan.limits
    bounds = CopyBounds()
    if not plan.is_git:
        bounds = CopyBounds(max_files=limits.max_copy_files, max_bytes=limits.max_copy_bytes)
    making = storage.folder / "tree.partial"
    remove_tree(making)
    try:
        report = copy_tree(Path(plan.lower), making, bounds=bounds, skip=skip, check=check)
    except BaseException as error:
        remove_tree(making)
        if isinstance(error, TreeTooLarge):
            raise OpenRefused("refused", f"{plan.root} is too large to copy: {error}") from None
        if isinstance(error, OSError) and error.errno in _FULL:
            raise OpenRefused("storage_full", "the disk under the data folder is full") from error
        raise
    delta = setup_part(plan, "delta")
    if delta is not None and delta.is_dir():
        merge_tree(delta, making)
    os.rename(making, storage.tree)
    if report.skipped:
        shown = ", ".join(report.skipped[:5])
        notes.append(
            f"not copied (pipes, sockets, devices, unreadable): {len(report.skipped)}, such as {shown}"
        )


# ---- without namespaces


def _open_without_namespace(
    plan: CheckoutPlan, storage: Storage, lock_fd: int, error: OSError, check: Callable[[], None]
) -> Opened:
    """A container may allow no mount: then the tree is the place itself, or a copy at another path."""
    if plan.sandbox == "bubblewrap":
        raise OpenRefused("unavailable", f"no mount namespace can be made: {error.strerror}") from error
    notes = [f"no mount namespace can be made here ({error.strerror})"]
    root, isolation = plan.root, "in_place"
    if plan.isolation != "in_place":
        if not plan.may_copy and plan.isolation == "overlay":
            raise OpenRefused("unavailable", f"no overlay can be mounted: {error.strerror}") from error
        _copied_tree(plan, storage, notes, check)
        made = setup_part(plan, "home")
        if made is not None and made.is_dir():
            copy_home(made, storage)
        root, isolation = str(storage.tree), "copy"
        notes.append(f"the checkout is at {root}, not at the workspace's own path")
        git_dir = make_git(plan)
        if git_dir is not None:
            git = storage.tree / ".git"
            if not git.exists():
                git.write_text(f"gitdir: {git_dir}\n")
    return Opened(
        storage=storage,
        root=root,
        isolation=isolation,
        root_fd=os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC),
        lock_fd=lock_fd,
        bound=False,
        keep_home=plan.keep_home,
        notes=notes,
    )
