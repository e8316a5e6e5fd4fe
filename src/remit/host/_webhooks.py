"""The webhooks of a host: each is sent after its run's terminal, and tried again until it was taken.

What has come of it stands in the run's host log. Which are owed stands in a folder, a small file each, under
the epoch of the host that owes it: the next host takes over those of dead ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from remit.config import Config
from remit.contract import RunRequest, WorkKind
from remit.errors import InvalidRequest, MisuseError, RemitError
from remit.host._webhook_sending import Tried, send_webhook
from remit.primitives import Clock, format_time, is_run_id, parse_time
from remit.results import (
    RETRY_AFTER_S,
    Network,
    WebhookTarget,
    check_target,
    read_target,
    read_webhook_secret,
    webhook_body,
    webhook_headers,
    webhook_id,
)
from remit.runs import HistoryEntry, RunControl, RunStore, StoredRun, name_in_host
from remit.work import DeliveryHandle, ObservedStage, Observer, WorkRegistry, WorkSpec

_log = logging.getLogger(__name__)
_CLOSE_WITHIN_S: Final = 5.0
_LOOK_AGAIN_S: Final = 30.0
_SUFFIX: Final = ".json"

Send: TypeAlias = Callable[..., Awaitable[Tried]]


def webhook_settings(config: Config) -> WebhookSettings:
    """What the operator has said of webhooks, with the secret.

    Raises:
        ConfigError: The secret that is named isn't there, or isn't one.
    """
    secret = config.find_webhook_secret()
    return WebhookSettings(
        key=None if secret is None else read_webhook_secret(secret.reveal()),
        networks=tuple(ip_network(one) for one in config.host.webhook_networks),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """What the operator has said of webhooks."""

    key: bytes | None = field(default=None, repr=False)
    """They are signed with it; None: none are sent."""
    networks: tuple[Network, ...] = ()
    """What they may reach beside the public network."""


@dataclass(frozen=True, slots=True)
class _Owed:
    """A webhook that isn't done with."""

    tenant: str
    run_id: str

    @property
    def name(self) -> str:
        return name_in_host(self.tenant, self.run_id)

    @property
    def id(self) -> str:
        return webhook_id(self.name)


class Webhooks:
    """Owns the tasks that send them. Closing it waits a moment for what is being sent; the rest stays owed.

    Args:
        store: Where runs and their host logs are.
        registry: Where each is a piece of work, under the host.
        settings: What the operator has said.
        folder: Where what is owed stands.
        epoch: This start of the host.
        is_alive: Whether the host of an epoch lives.
        clock: Where time comes from.
        send: Tries once.
    """

    def __init__(
        self,
        store: RunStore,
        *,
        registry: WorkRegistry,
        settings: WebhookSettings,
        folder: Path,
        epoch: str,
        is_alive: Callable[[str], bool],
        clock: Clock,
        send: Send = send_webhook,
    ) -> None:
        self._store = store
        self._registry = registry
        self._settings = settings
        self._folder = folder
        self._epoch = epoch
        self._is_alive = is_alive
        self._clock = clock
        self._send = send
        self._group: asyncio.TaskGroup | None = None
        self._tasks: dict[_Owed, asyncio.Task[None]] = {}
        self._sending: set[_Owed] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._closing = False

    async def __aenter__(self) -> Self:
        self._group = await asyncio.TaskGroup().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        group, self._group = self._group, None
        if group is None:
            return
        await asyncio.sleep(0)  # what waited for a terminal that is there now begins
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN_S):
                await self._quiet.wait()
        self._closing = True
        for task in self._tasks.values():
            task.cancel()
        await group.__aexit__(None, None, None)  # an error of the block's stays what it is

    # ---- at the door

    def check(self, request: RunRequest) -> None:
        """Refuse a request whose webhook can't be sent.

        Raises:
            InvalidRequest: No secret is set, or the address is none that may be reached.
        """
        if request.webhook is None:
            return
        if self._settings.key is None:
            raise InvalidRequest(
                "this host sends no webhooks: its operator can set [host] webhook_secret_env", param="webhook"
            )
        check_target(read_target(request.webhook), self._settings.networks)

    # ---- what is owed

    def expect(self, stored: StoredRun, control: RunControl) -> None:
        """A run that this host drives: its webhook, if it has one, is owed from here on."""
        if stored.request.webhook is None or self._settings.key is None:
            return
        owed = _Owed(stored.tenant, stored.view.id)
        self._note(owed)
        self._begin(owed, control.durable)

    def adopt(self, ended: Sequence[StoredRun]) -> None:
        """Take over what dead hosts owed, and what is owed of runs that were ended for them."""
        if self._settings.key is None:
            return
        for owed in self._owed_by_the_dead():
            self._begin(owed, None)
        for stored in ended:
            owed = _Owed(stored.tenant, stored.view.id)
            if stored.request.webhook is not None and owed not in self._tasks:
                self._note(owed)
                self._begin(owed, None)

    def _owed_by_the_dead(self) -> list[_Owed]:
        found: list[_Owed] = []
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            epoch, _, rest = path.name.partition(".")
            if not is_run_id(epoch) or self._is_alive(epoch):
                continue
            ours = self._folder / f"{self._epoch}.{rest}"
            try:
                path.rename(ours)  # whoever comes second finds nothing
                said = json.loads(ours.read_text())
                found.append(_Owed(said["tenant"], said["run_id"]))
            except (OSError, ValueError, KeyError, TypeError):
                _log.warning("a note of a webhook that is owed can't be read: %s", path.name)
        return found

    def _path(self, owed: _Owed) -> Path:
        return self._folder / f"{self._epoch}.{owed.id}{_SUFFIX}"

    def _note(self, owed: _Owed) -> None:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            path = self._path(owed)
            unborn = path.with_suffix(".new")
            with unborn.open("w") as note:
                note.write(json.dumps({"tenant": owed.tenant, "run_id": owed.run_id}))
                note.flush()
                os.fsync(note.fileno())
            os.replace(unborn, path)
            _sync_folder(self._folder)
        except OSError as error:
            _log.warning("the webhook of run %s won't outlive this host: %s", owed.run_id, error.strerror)

    def _forget(self, owed: _Owed) -> None:
        with contextlib.suppress(OSError):
            self._path(owed).unlink(missing_ok=True)

    # ---- sending

    def _begin(self, owed: _Owed, durable: asyncio.Event | None) -> None:
        if self._group is None:
            raise MisuseError("the host is closed")
        if owed in self._tasks:
            return
        task = self._group.create_task(self._live(owed, durable), name=f"webhook of {owed.name}")
        self._tasks[owed] = task
        task.add_done_callback(lambda _: self._tasks.pop(owed, None))

    async def _live(self, owed: _Owed, durable: asyncio.Event | None) -> None:
        try:
            if durable is not None:
                await durable.wait()
            stored = await self._ended(owed)
            if stored is not None:
                await self._work(owed, stored)
            self._forget(owed)
        except RemitError as error:
            _log.warning("the webhook of run %s is left for later: %s", owed.run_id, error.message)
        finally:
            self._settle(owed)

    async def _ended(self, owed: _Owed) -> StoredRun | None:
        """The run, once it has ended; None: there is none any more."""
        while True:
            stored = await self._store.find_run(owed.run_id, tenant=owed.tenant)
            if stored is None or stored.view.status.ended:
                return stored
            await self._clock.sleep(_LOOK_AGAIN_S)

    async def _work(self, owed: _Owed, stored: StoredRun) -> None:
        """As a piece of work under the host, which a cancel gives up."""
        assert self._group is not None or self._closing, "it was begun"
        session = name_in_host(owed.tenant, self._epoch)
        async with asyncio.TaskGroup() as group:
            trying = group.create_task(self._try_all(owed, stored), name="tries")
            spec = WorkSpec(
                work_id=owed.id,
                kind=WorkKind.EVENT_DELIVERY,
                label=f"webhook of {owed.run_id}",
                handle=DeliveryHandle(abort=trying.cancel),
            )
            self._registry.register(session, spec)
            try:
                await asyncio.wait({trying})
            finally:
                self._registry.finish(session, owed.id, "closed")
        if trying.cancelled():
            await self._say(owed, "webhook.failed", {"webhook_id": owed.id, "reason": "cancelled"})

    async def _try_all(self, owed: _Owed, stored: StoredRun) -> None:
        history = await self._store.read_history(owed.run_id, tenant=owed.tenant)
        if any(entry.type in ("webhook.delivered", "webhook.failed") for entry in history):
            return
        tries = [entry for entry in history if entry.type == "webhook.tried"]
        seen = Observer(self._registry, name_in_host(owed.tenant, self._epoch), owed.id)
        seen.see(ObservedStage.DISPATCH)
        await self._wait_until(_next_of(tries))
        address, body = stored.request.webhook, webhook_body(stored.view)
        assert address is not None, "it is owed"
        for number in range(len(tries) + 1, len(RETRY_AFTER_S) + 2):
            seen.see(ObservedStage.RECEIPT_WAIT)
            tried = await self._try(owed, read_target(address), body)
            seen.see(ObservedStage.RETIREMENT)
            if await self._tell(owed, number, tried):
                return
            seen.see(ObservedStage.DISPATCH)
            await self._clock.sleep(RETRY_AFTER_S[number - 1])

    async def _try(self, owed: _Owed, target: WebhookTarget, body: bytes) -> Tried:
        key = self._settings.key
        assert key is not None, "none is sent without"
        self._sending.add(owed)
        self._quiet.clear()
        headers = webhook_headers(owed.id, at=self._clock.now(), body=body, key=key)
        return await self._send(target, headers=headers, body=body, networks=self._settings.networks)

    async def _tell(self, owed: _Owed, number: int, tried: Tried) -> bool:
        """Put a try on record; returns whether it was the last."""
        now = self._clock.now()
        data: dict[str, Any] = {"webhook_id": owed.id, "attempt": number, "status": tried.status}
        if tried.reason is None:
            await self._say(owed, "webhook.delivered", data)
            return True
        over = tried.is_final or number > len(RETRY_AFTER_S)
        data["reason"] = tried.reason
        if not over:
            next_at = now + timedelta(seconds=RETRY_AFTER_S[number - 1])
            await self._say(owed, "webhook.tried", {**data, "next_try_at": format_time(next_at)})
        else:
            await self._say(owed, "webhook.failed", data)
        self._settle(owed)
        return over

    async def _say(self, owed: _Owed, type_: str, data: Mapping[str, Any]) -> None:
        await self._store.log(owed.run_id, type_, dict(data), tenant=owed.tenant)

    async def _wait_until(self, moment: datetime | None) -> None:
        if moment is not None:
            await self._clock.sleep(max(0.0, (moment - self._clock.now()).total_seconds()))

    def _settle(self, owed: _Owed) -> None:
        self._sending.discard(owed)
        if not self._sending:
            self._quiet.set()


def _next_of(tries: Sequence[HistoryEntry]) -> datetime | None:
    """When the next try is due; None: at once."""
    said = tries[-1].data.get("next_try_at") if tries else None
    return None if said is None else parse_time(said)


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder outlive a loss of power."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
