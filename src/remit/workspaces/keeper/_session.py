"""A keeper: opens one checkout, serves its commands and file operations, and takes it down."""

from __future__ import annotations

import base64
import itertools
import os
import signal
import socket
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final

from remit.workspaces.keeper import _syscalls
from remit.workspaces.keeper._channel import Channel
from remit.workspaces.keeper._commands import Command, cpu_seconds
from remit.workspaces.keeper._confinement import Confined, WhenEnded
from remit.workspaces.keeper._context import CheckoutContext, set_current_checkout
from remit.workspaces.keeper._dialogues import Dialogue
from remit.workspaces.keeper._forsaken import mark_of
from remit.workspaces.keeper._jail import Jail, JailOrder
from remit.workspaces.keeper._landlock import Confinement
from remit.workspaces.keeper._loop import Loop
from remit.workspaces.keeper._opening import Opened, OpenRefused, close_checkout, open_checkout
from remit.workspaces.keeper._plain import PlainOrder, PlainProcesses
from remit.workspaces.keeper._plan import CheckoutPlan, CommandOrder
from remit.workspaces.keeper._protocol import Frame
from remit.workspaces.keeper._workers import Job, Operation, Workers

_DEFAULT_GRACE_S: Final = 2.0
_OPEN: Final = 0
"""The number of the frame that answers the opening."""


def keep(
    link: socket.socket, plan: CheckoutPlan, operations: Mapping[str, Operation], *, zygote: int
) -> None:
    """The keeper's whole life, after the fork. Returns when the checkout is closed or the node is gone."""
    loop = Loop()
    try:
        opened = open_checkout(plan, check=lambda: _check_link(link))
    except NodeGone:
        return
    except OpenRefused as refusal:
        _tell(link, {"error": {"kind": refusal.kind, "message": str(refusal)}})
        return
    except OSError as error:
        _tell(link, {"error": {"kind": "unavailable", "message": f"the checkout can't be opened: {error}"}})
        return
    # Again: the kernel may forget it when a process enters a user namespace.
    _syscalls.die_with_parent(signal.SIGKILL, parent=zygote)
    Session(loop, link, plan, opened, operations, mark=mark_of(zygote)).run()


class NodeGone(Exception):
    """The node has closed its end while the checkout was being opened."""


def _check_link(link: socket.socket) -> None:
    try:
        if link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"":
            raise NodeGone
    except BlockingIOError:
        return


def _tell(link: socket.socket, body: dict[str, Any]) -> None:
    loop = Loop()
    channel = Channel(loop, link, on_frame=lambda frame: None, on_closed=loop.stop)
    channel.send(_OPEN, body)
    channel.close_when_sent()


class Session:
    """One open checkout."""

    def __init__(
        self,
        loop: Loop,
        link: socket.socket,
        plan: CheckoutPlan,
        opened: Opened,
        operations: Mapping[str, Operation],
        *,
        mark: str,
    ) -> None:
        self._loop = loop
        self._mark = mark
        self._plan = plan
        self._opened = opened
        self._seccomp = base64.b64decode(plan.seccomp)
        self._commands: dict[str, Command] = {}
        self._numbers = itertools.count(1)
        self._closing: Callable[[], None] | None = None
        set_current_checkout(
            CheckoutContext(
                root_fd=opened.root_fd,
                root=plan.root,
                lower=plan.lower,
                storage=opened.storage,
                isolation=opened.isolation,
            )
        )
        self._workers = Workers(loop, operations=operations, root_fd=opened.root_fd)
        self._channel = Channel(loop, link, on_frame=self._frame, on_closed=self._node_gone)
        self._requests: dict[str, Callable[[int, dict[str, Any]], None]] = {
            "run": self._run,
            "converse": self._converse,
            "say": self._say,
            "hear": self._hear,
            "call": self._call,
            "cancel_call": self._cancel_call,
            "pids": self._pids,
            "stop": self._stop,
            "close": self._close,
        }

    def run(self) -> None:
        """Serves until the checkout is closed or the node is gone."""
        result = {
            "isolation": self._opened.isolation,
            "root": self._opened.root,
            "notes": list(self._opened.notes),
            "pid": os.getpid(),
        }
        self._channel.send(_OPEN, {"result": result})
        self._loop.run()

    # ---- requests

    def _frame(self, frame: Frame) -> None:
        body = frame.body
        if body is None:
            self._fail(frame.number, "too_large", "the request is larger than a frame may be")
            return
        try:
            self._requests[body["method"]](frame.number, body["params"])
        except Exception as error:  # noqa: BLE001  a fault in one request must not end the others
            traceback.print_exc()
            self._fail(frame.number, "failed", f"{type(error).__name__}: {error}")

    def _answer(self, number: int, result: dict[str, Any]) -> None:
        self._channel.send(number, {"result": result})

    def _fail(self, number: int, status: str, message: str) -> None:
        self._channel.send(number, {"error": {"status": status, "message": message}})

    def _run(self, number: int, params: dict[str, Any]) -> None:
        order = CommandOrder.from_json(params)
        if self._may_start(number, order):
            command = Command(
                self._loop,
                order,
                confine=lambda when_ended: self._confine(order, when_ended),
                when_done=lambda command, result: self._ended(number, command, result),
                send_output=(lambda data: self._send_output(number, data)) if order.streamed else None,
                grace_s=_DEFAULT_GRACE_S,
            )
            self._start(command)

    def _may_start(self, number: int, order: CommandOrder) -> bool:
        """Whether a command may be started; what speaks against it is answered."""
        if order.call_id in self._commands:
            self._fail(number, "conflict", f"the call {order.call_id} is running already")
        elif order.cwd.startswith("/") or ".." in order.cwd.split("/"):
            self._fail(number, "denied", f"{order.cwd}: a working folder lies in the workspace")
        elif self._closing is not None:
            self._fail(number, "cancelled", "the checkout is being closed")
        else:
            self._opened.complete()
            return True
        return False

    def _start(self, command: Command) -> None:
        self._commands[command.order.call_id] = command
        command.start()

    def _ended(self, number: int, command: Command, result: dict[str, Any]) -> None:
        del self._commands[command.order.call_id]
        self._answer(number, result)
        if self._closing is not None and not self._commands:
            self._closing()

    # ---- programs that are talked to

    def _converse(self, number: int, params: dict[str, Any]) -> None:
        """Starts a program that is talked to; answered once it has ended."""
        order = CommandOrder.from_json(params)
        if self._may_start(number, order):
            dialogue = Dialogue(
                self._loop,
                order,
                confine=lambda when_ended: self._confine(order, when_ended),
                when_done=lambda command, result: self._ended(number, command, result),
                send_output=None,
                grace_s=_DEFAULT_GRACE_S,
            )
            self._start(dialogue)

    def _say(self, number: int, params: dict[str, Any]) -> None:
        dialogue = self._find_dialogue(number, params["call_id"])
        if dialogue is not None:
            dialogue.say(base64.b64decode(params["data"]), lambda body: self._channel.send(number, body))

    def _hear(self, number: int, params: dict[str, Any]) -> None:
        dialogue = self._find_dialogue(number, params["call_id"])
        if dialogue is not None:
            dialogue.hear(lambda body: self._channel.send(number, body))

    def _find_dialogue(self, number: int, call_id: str) -> Dialogue | None:
        found = self._commands.get(call_id)
        if isinstance(found, Dialogue):
            return found
        self._fail(number, "not_found", f"{call_id} isn't running")
        return None

    def _send_output(self, number: int, data: bytes) -> None:
        # A viewer that doesn't keep up loses some of it; the result has head and tail all the same.
        if not self._channel.slow:
            self._channel.send(number, {"output": base64.b64encode(data).decode("ascii")})

    def _confine(self, order: CommandOrder, when_ended: WhenEnded) -> Confined:
        plan = self._plan
        folder = self._folder_of(order)
        inherited = plan.environment if order.confined else {}
        environment = {**inherited, **order.environment, "PWD": folder}
        if plan.sandbox != "bubblewrap" or not order.confined:
            _syscalls.become_subreaper()  # what a command leaves that has killed its supervisor comes to us
            return PlainProcesses(
                self._loop,
                PlainOrder(
                    argv=order.argv,
                    folder=folder,
                    environment=environment,
                    limits=plan.limits,
                    cpu_seconds=cpu_seconds(order),
                    tree=str(self._opened.storage.merged),
                    root=self._opened.root,
                    bound=self._opened.bound,
                    confinement=self._confinement(order),
                ),
                when_ended,
                own_children=self._own_children,
            )
        online = order.network is True
        options = [*plan.sandbox_options, *(plan.online_options if online else plan.offline_options)]
        options += ["--chdir", folder, "--clearenv"]
        for name, value in environment.items():
            options += ["--setenv", name, value]
        return Jail(
            self._loop,
            JailOrder(
                program=plan.bubblewrap,
                options=tuple(options),
                argv=order.argv,
                seccomp=self._seccomp,
                limits=plan.limits,
                cpu_seconds=cpu_seconds(order),
                cgroup=plan.cgroup,
                name=f"{os.getpid()}-{next(self._numbers)}",
                mark=self._mark,
                hosts=order.network if isinstance(order.network, tuple) else None,
            ),
            when_ended,
        )

    def _own_children(self) -> set[int]:
        """The processes that this keeper has started and waits for."""
        commands = (pid for command in self._commands.values() for pid in command.own_children())
        return {*self._workers.own_children(), *commands}

    def _confinement(self, order: CommandOrder) -> Confinement | None:
        """What holds a command at the level `landlock`."""
        granted = self._plan.landlock
        if granted is None or not order.confined:
            return None
        storage = self._opened.storage
        own = (self._opened.root, str(storage.home), str(storage.scratch), str(storage.git))
        return Confinement(
            read=tuple(granted["read"]),
            listed=tuple(granted["listed"]),
            write=(*granted["write"], *own),
            seccomp=base64.b64decode(granted["online" if order.network else "offline"]),
        )

    def _folder_of(self, order: CommandOrder) -> str:
        """Where a command starts: in the tree; outside the sandbox it might run what lies there, so not."""
        if not order.confined:
            return "/"
        return os.path.join(self._opened.root, order.cwd) if order.cwd else self._opened.root

    def _call(self, number: int, params: dict[str, Any]) -> None:
        self._opened.complete()
        job = Job(
            number, params["operation"], params["arguments"], lambda body: self._channel.send(number, body)
        )
        self._workers.submit(job)

    def _cancel_call(self, number: int, params: dict[str, Any]) -> None:
        self._answer(number, {"cancelled": self._workers.cancel(params["number"])})

    def _pids(self, number: int, _: dict[str, Any]) -> None:
        self._answer(number, {call_id: list(command.pids()) for call_id, command in self._commands.items()})

    def _stop(self, number: int, params: dict[str, Any]) -> None:
        wanted = params["call_id"]
        commands = [c for c in self._commands.values() if wanted is None or c.order.call_id == wanted]
        stopped: list[dict[str, Any]] = []

        def tell(report: dict[str, Any]) -> None:
            stopped.append(report)
            if len(stopped) == len(commands):
                self._answer(number, {"stopped": stopped})

        if not commands:
            self._answer(number, {"stopped": []})
        for command in commands:
            command.stop(grace_s=params["grace_ms"] / 1000, tell=tell)

    # ---- the end

    def _close(self, number: int, params: dict[str, Any]) -> None:
        def close() -> None:
            self._closing = None
            self._workers.close()
            try:
                problems = close_checkout(self._opened, keep=params["keep"])
                self._answer(number, {"problems": problems})
            finally:
                self._channel.close_when_sent()

        self._closing = close
        for command in list(self._commands.values()):
            command.stop(grace_s=self._plan.limits.close_grace_ms / 1000, tell=lambda report: None)
        if not self._commands:
            close()

    def _node_gone(self) -> None:
        """The node closed its end or died: nothing may go on. Children die with this process."""
        self._loop.stop()


def adopt(parent: int) -> None:
    """What a freshly forked keeper does first: own session, and death with the zygote."""
    os.setsid()
    _syscalls.die_with_parent(signal.SIGKILL, parent=parent)
