"""What every keeper does, done beforehand in the zygote, as far as it leaves no trace.

A forked process gets a copy of each page that it writes to, one fault a page, and an interpreter writes
wherever it runs: it counts references, fills caches of types, and rewrites code that has run a few times.
What has run in the zygote often enough is written already, and every keeper forked later shares it.
"""

from __future__ import annotations

import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from remit.workspaces.keeper import _mounts
from remit.workspaces.keeper._context import set_current_checkout
from remit.workspaces.keeper._loop import Loop
from remit.workspaces.keeper._opening import Opened
from remit.workspaces.keeper._plan import CheckoutPlan, Limits
from remit.workspaces.keeper._protocol import Decoder, encode
from remit.workspaces.keeper._session import Session
from remit.workspaces.keeper._storage import Storage

_TURNS: Final = 16
"""The interpreter rewrites code from its eighth run on."""
_NOWHERE: Final = "/proc/self/nowhere"
"""Nothing can be made there."""


def rehearse() -> None:
    """Goes through the life of a keeper that does nothing. Blocking, for some milliseconds."""
    try:
        for _ in range(_TURNS):
            _rehearse_once()
    finally:
        set_current_checkout(None)


def _rehearse_once() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(encode(1, {"open": _plan().to_json()}))
        for frame in Decoder().feed(theirs.recv(65_536)):
            plan = CheckoutPlan.from_json((frame.body or {})["open"])
            storage = Storage(Path(plan.storage))
            _look_around(storage)
            ours.sendall(encode(2, {"method": "stop", "params": {"call_id": None, "grace_ms": 0}}))
            ours.shutdown(socket.SHUT_WR)
            _serve(theirs, plan, storage)


def _serve(link: socket.socket, plan: CheckoutPlan, storage: Storage) -> None:
    opened = Opened(
        storage=storage, root=plan.root, isolation=plan.isolation, root_fd=-1, lock_fd=-1, bound=True
    )
    Session(Loop(), link, plan, opened, {}, mark="").run()


def _look_around(storage: Storage) -> None:
    """The calls by which a tree is opened and taken down, where they find nothing."""
    os.path.realpath(storage.folder)
    _mounts.mounts_below(storage.merged)
    for folder in (storage.home, storage.scratch, storage.merged, storage.lower, storage.upper, storage.work):
        with suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
        folder.is_dir()
    with suppress(OSError):
        shutil.rmtree(storage.folder)
    os.listdir("/proc/self/fd")


def _plan() -> CheckoutPlan:
    """One as large as they mostly are."""
    options = tuple(f"--option-{number}" for number in range(120))
    values: dict[str, Any] = dict.fromkeys(("git_dir", "git_template", "setup", "landlock", "cgroup"))
    return CheckoutPlan(
        checkout_id="rehearsal",
        root=_NOWHERE,
        lower=_NOWHERE,
        storage=_NOWHERE,
        isolation="overlay",
        may_copy=False,
        is_git=True,
        carry=(),
        read_only=(),
        caches=(),
        keep_home=False,
        hidden=(_NOWHERE,),
        sandbox="bubblewrap",
        bubblewrap="",
        sandbox_options=options,
        offline_options=(),
        online_options=(),
        seccomp="",
        environment={f"NAME_{number}": "value" for number in range(30)},
        limits=Limits(),
        **values,
    )
