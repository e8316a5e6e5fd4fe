"""The only way out for a command whose workspace names hosts: a proxy outside of its network namespace.

    command ── 127.0.0.1:7431 in the sandbox's own network ── [this process] ── the hosts of the list
            ── listed ports of localhost, at the same place ──     "     ── the machine's localhost

A helper enters the sandbox's network namespace, opens the listening socket there and hands it back: a socket
stays where it was made, so this process accepts inside and connects outside, and nothing else of the machine
can be reached from within. It speaks HTTP only: CONNECT, and requests with a whole address. No program asks a
proxy for `localhost`, so ports that the list names there are passed on as they are, whatever is spoken. It
lives as long as the command, and is a process of its own since names are looked up by calls that wait.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from remit.workspaces.keeper import _syscalls
from remit.workspaces.keeper._loop import Loop
from remit.workspaces.keeper._network_rules import (
    Denied,
    NetworkRules,
    Target,
    nearby_ports,
    split_authority,
)
from remit.workspaces.keeper._plan import PROXY_PORT
from remit.workspaces.keeper._workers import close_all_but

_MAX_CONNECTIONS: Final = 256
_MAX_HEAD_BYTES: Final = 65_536
_HEAD_TIMEOUT_S: Final = 30.0
_CONNECT_TIMEOUT_S: Final = 20.0
_IDLE_S: Final = 600.0
_CHUNK_BYTES: Final = 65_536
_MAX_DENIALS: Final = 20
_MAX_DENIAL_CHARS: Final = 400
_MAX_NEARBY: Final = 64
"""Ports of localhost that are shown; the HTTP proxy reaches the others too."""
_DROPPED: Final = ("proxy-connection", "proxy-authorization", "connection", "keep-alive", "host")


class ProxyProcess:
    """The proxy of one command, from the keeper's side."""

    def __init__(self, loop: Loop, hosts: Sequence[str]) -> None:
        self._loop = loop
        self._hosts = tuple(hosts)
        self._pid = 0
        self._pipe = -1
        self._said = b""
        self._ready: Callable[[str | None], None] | None = None
        self.denials: list[str] = []
        """What was refused, each once."""

    def start(self, init_pid: int, *, when_ready: Callable[[str | None], None]) -> None:
        """Starts it for the sandbox of that init; `when_ready` is told None, or why it can't be."""
        self._ready = when_ready
        self._pipe, report = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._pipe, False)
        parent = os.getpid()
        try:
            self._pid = os.fork()
            if self._pid == 0:
                _live(report, init_pid, self._hosts, parent)
        finally:
            os.close(report)
        self._loop.watch(self._pipe, readable=self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._pipe, 65_536)
        except BlockingIOError:
            return
        if not data:
            self._loop.unwatch(self._pipe)
            self._tell("the proxy has ended")
            return
        self._said += data
        *lines, self._said = self._said.split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, said: dict[str, Any]) -> None:
        if "denied" in said and len(self.denials) < _MAX_DENIALS:
            if said["denied"] not in self.denials:
                self.denials.append(str(said["denied"]))
        elif "ready" in said:
            self._tell(said["problem"])

    def _tell(self, problem: str | None) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            ready(problem)

    @property
    def pid(self) -> int:
        """Its process id; 0 when it doesn't run."""
        return self._pid

    def end(self) -> None:
        """Ends it; what it still had to say is heard."""
        if not self._pid:
            return
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._pid = 0
        self._ready = None
        with suppress(BlockingIOError, OSError):
            while data := os.read(self._pipe, 65_536):
                self._said += data
        for line in self._said.split(b"\n")[:-1]:
            self._take(json.loads(line))
        self._loop.unwatch(self._pipe)
        os.close(self._pipe)


# ---- the process


def _live(report: int, init_pid: int, hosts: tuple[str, ...], parent: int) -> NoReturn:
    problem = None
    try:
        os.setsid()
        _syscalls.die_with_parent(signal.SIGKILL, parent=parent)
        close_all_but({0, 1, 2, report})
        nearby = nearby_ports(hosts)[:_MAX_NEARBY]
        listener, *others = _listen_inside(init_pid, nearby)
        _say(report, {"ready": True, "problem": None})
        _Proxy(NetworkRules(hosts), nearby, report).serve(listener, others)
    except BaseException as error:  # noqa: BLE001  the keeper's code must not run on here
        problem = f"{type(error).__name__}: {error}"
    finally:
        with suppress(OSError):
            _say(report, {"ready": True, "problem": problem})
        sys.stderr.flush()
        os._exit(0)


def _say(report: int, body: dict[str, Any]) -> None:
    os.write(report, json.dumps(body).encode() + b"\n")


def _listen_inside(init_pid: int, nearby: Sequence[tuple[str, int]]) -> list[socket.socket]:
    """Listening sockets in the network of the sandbox, made by a helper that stays there.

    Args:
        init_pid: Of the sandbox.
        nearby: Addresses and ports beside the proxy's own.

    Returns:
        The proxy's own socket, then those nearby that could be opened.

    Raises:
        OSError: the namespace can't be entered.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _syscalls.enter_namespace(f"/proc/{init_pid}/ns/net", _syscalls.CLONE_NEWNET)
            inside = [_listen("127.0.0.1", PROXY_PORT)]
            for place in nearby:
                with suppress(OSError):  # no IPv6 there, or the proxy's own port
                    inside.append(_listen(*place))
            socket.send_fds(theirs, [b"x"], [one.fileno() for one in inside])
            code = 0
        except OSError as error:
            with suppress(OSError):
                theirs.send(b"!" + str(error).encode()[:500])
        finally:
            os._exit(code)
    theirs.close()
    with ours:
        said, handles, _, _ = socket.recv_fds(ours, 1_000, 1 + len(nearby))
    os.waitpid(pid, 0)
    if not handles:
        raise OSError(f"the sandbox's network can't be entered: {said[1:].decode('utf-8', 'replace')}")
    return [socket.socket(fileno=handle) for handle in handles]


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=128)


class _Proxy:
    def __init__(self, rules: NetworkRules, nearby: Sequence[tuple[str, int]], report: int) -> None:
        self._rules = rules
        self._nearby = nearby
        self._report = report
        self._denied: set[str] = set()
        self._slots = threading.BoundedSemaphore(_MAX_CONNECTIONS)

    def serve(self, listener: socket.socket, others: Sequence[socket.socket]) -> None:
        for one in others:
            threading.Thread(target=self._accept, args=(one, self._pass_on), daemon=True).start()
        self._accept(listener, self._answer)

    def _accept(self, listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        while True:
            client, _ = listener.accept()
            self._slots.acquire()
            threading.Thread(target=self._serve_one, args=(client, serve), daemon=True).start()

    def _serve_one(self, client: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        try:
            with client:
                serve(client)
        except (OSError, ValueError):
            pass  # a client that went away, or a host that broke off: both see their socket close
        finally:
            self._slots.release()

    def _pass_on(self, client: socket.socket) -> None:
        """Joins a client with the machine's own port of that number, in whichever family somebody listens."""
        address, port = client.getsockname()[:2]
        others = [other for other, its_port in self._nearby if its_port == port and other != address]
        try:
            server = _connect(Target("localhost", port, (address, *others)))
        except OSError as error:
            self._note(f"localhost:{port} of this machine can't be reached: {error.strerror or error}")
            return
        with server:
            _relay(client, server)

    def _answer(self, client: socket.socket) -> None:
        client.settimeout(_HEAD_TIMEOUT_S)
        head, rest = _read_head(client)
        try:
            target, first = self._decide(head)
        except Denied as denied:
            self._note(str(denied)[:_MAX_DENIAL_CHARS])
            _refuse(client, "403 Forbidden", str(denied))
            return
        except ValueError as error:
            _refuse(client, "400 Bad Request", str(error))
            return
        try:
            server = _connect(target)
        except OSError as error:
            _refuse(client, "502 Bad Gateway", f"{target.name}:{target.port} can't be reached: {error}")
            return
        with server:
            if first is None:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                server.sendall(rest)
            else:
                server.sendall(first + rest)
            _relay(client, server)

    def _note(self, denial: str) -> None:
        """Tells the keeper, each once, and only so many: a command can ask as often as it likes."""
        if denial not in self._denied and len(self._denied) < _MAX_DENIALS:
            self._denied.add(denial)
            _say(self._report, {"denied": denial})

    def _decide(self, head: bytes) -> tuple[Target, bytes | None]:
        """Where a request may go, and what is sent there first; None: nothing, it is a tunnel."""
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise ValueError("this is an HTTP proxy")
        method, address, version = words
        if method == "CONNECT":
            return self._rules.decide(*split_authority(address)), None
        if not address.lower().startswith("http://"):
            raise ValueError("an HTTP proxy takes CONNECT, or a whole address that begins with http://")
        parts = urlsplit(address)
        host, port = split_authority(parts.netloc, default_port=80)
        target = self._rules.decide(host, port)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        kept = [line for line in lines[1:] if line and line.partition(":")[0].strip().lower() not in _DROPPED]
        if any(line[0] in " \t" for line in kept):
            raise ValueError("a folded header line")
        sent = [f"{method} {path} {version}", f"Host: {parts.netloc}", "Connection: close", *kept, "", ""]
        return target, "\r\n".join(sent).encode("latin-1")


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = client.recv(_CHUNK_BYTES)
        if not chunk or len(data) > _MAX_HEAD_BYTES:
            raise ValueError("no request")
        data += chunk
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def _refuse(client: socket.socket, status: str, why: str) -> None:
    body = f"remit: {why}\n".encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close"
    )
    client.sendall(head.encode() + b"\r\n\r\n" + body)


def _connect(target: Target) -> socket.socket:
    problem: OSError = OSError("no address")
    for address in target.addresses:
        try:
            return socket.create_connection((address, target.port), timeout=_CONNECT_TIMEOUT_S)
        except OSError as error:
            problem = error
    raise problem


def _relay(one: socket.socket, other: socket.socket) -> None:
    """Passes bytes both ways until both sides have ended, or nothing came for long."""
    for end in (one, other):
        end.settimeout(_IDLE_S)
    back = {one: other, other: one}
    open_ends = [one, other]
    while open_ends:
        ready, _, _ = select.select(open_ends, [], [], _IDLE_S)
        if not ready:
            return
        for end in ready:
            data = end.recv(_CHUNK_BYTES)
            if data:
                back[end].sendall(data)
                continue
            open_ends.remove(end)
            with suppress(OSError):
                back[end].shutdown(socket.SHUT_WR)
