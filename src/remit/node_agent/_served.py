"""A process that is a node and nothing else: it answers the host that started it, and ends with it.

python -P -m remit.node_agent FD PID      the socket that it was given, and who gave it
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from remit.errors import NodeError, RemitError
from remit.node_agent._embedded import EmbeddedNode
from remit.node_agent._setup import node_of
from remit.nodes.wire import (
    UNASKED,
    Answering,
    CallsListed,
    Drained,
    KeeperStarted,
    Looked,
    NodeSetup,
    Record,
    Unable,
    Unreadable,
    Wire,
    decode_from_host,
    encode,
)
from remit.primitives import SystemClock, SystemIds
from remit.workspaces.keeper._syscalls import die_with_parent

__all__ = ["main"]

_log = logging.getLogger(__name__)
_EXIT_NOT_STARTED: Final = 3
_EXIT_ABANDONED: Final = 4
_LAST_S: Final = 10.0
"""How long a delivery that was begun may take once the host is gone."""


def main(arguments: Sequence[str]) -> int:
    """Be a node until the host says so, or is gone; returns the exit code."""
    end, host_pid = socket.socket(fileno=int(arguments[0])), int(arguments[1])
    end.set_inheritable(False)
    _stay_till_told()
    if sys.platform == "linux":
        try:
            # A node that is stuck mustn't outlive its host either. Its keeper watches it, and ends the rest.
            die_with_parent(signal.SIGKILL, parent=host_pid)
        except OSError:
            return _EXIT_ABANDONED
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    return asyncio.run(_serve(end))


def _stay_till_told() -> None:
    """A signal to a whole service is the host's to answer: it drains, and needs its node for that.

    A handler, not `SIG_IGN`: what is ignored stays so in every command that is started from here.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stay)


def _stay(*_: object) -> None:
    """Do nothing."""


async def _serve(end: socket.socket) -> int:
    async with Wire(end) as wire:
        first = await _first_record(wire)
        if first is None:
            return _EXIT_ABANDONED
        number, setup = first
        async with AsyncExitStack() as stack:
            try:
                node = node_of(
                    setup,
                    clock=SystemClock(),
                    ids=SystemIds(),
                    on_keeper=lambda pid: wire.send(UNASKED, encode(KeeperStarted(pid=pid))),
                )
                await stack.enter_async_context(node)
            except (RemitError, OSError) as error:
                wire.send(number, encode(_unable(error)))
                await wire.flush()
                return _EXIT_NOT_STARTED
            for found in node.service.recovered:
                _log.warning(
                    "a delivery of run %s that was cut off was put right: %s", found.run_id, found.how
                )
            drained = await _answer(wire, node, number)
        wire.send(drained, encode(Drained()))
        await wire.flush()
    return 0


async def _first_record(wire: Wire) -> tuple[int, NodeSetup] | None:
    """What the host says first; None: it is gone, or speaks otherwise."""
    async for record in wire.records():
        try:
            said = decode_from_host(record.payload) if isinstance(record, Record) else None
        except Unreadable as error:
            wire.send(record.number, encode(Unable(reason="refused", message=error.message)))
            await wire.flush()
            return None
        return (record.number, said) if isinstance(said, NodeSetup) else None
    return None


async def _answer(wire: Wire, node: EmbeddedNode, number: int) -> int:
    """Answer until the host wants an end; ends the process where the host is gone.

    Returns:
        The number of the host's `drain`.
    """

    async def look() -> Looked:
        found = await node.look()
        return Looked(keeper_pid=found.keeper_pid, probe=found.probe)

    async def list_calls() -> CallsListed:
        return CallsListed(calls=await node.running_calls())

    async with Answering(wire, node, look=look, list_calls=list_calls) as answering:
        drained = await answering.run(ready_for=number)
        if drained is None:
            asyncio.get_running_loop().call_later(_LAST_S, os._exit, _EXIT_ABANDONED)
            await node.service.abandon()
    if drained is None:
        # Nothing is put away: what the runs had done is read by the host that comes next.
        logging.shutdown()
        os._exit(_EXIT_ABANDONED)
    return drained


def _unable(error: RemitError | OSError) -> Unable:
    if isinstance(error, NodeError) and error.reason == "storage_full":
        return Unable(reason="storage_full", message=error.message)
    said = error.message if isinstance(error, RemitError) else error.strerror or str(error)
    return Unable(message=said)
