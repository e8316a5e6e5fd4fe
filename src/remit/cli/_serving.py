"""What `remit serve` does: composes a host and its doors, and ends both in good order."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from remit.api import LOOPBACK_NAMES, ServedHost
from remit.cli._first_key import FirstKey, ensure_first_key
from remit.cli._place import folder_named, start_folder
from remit.cli._ready import raise_file_limit
from remit.cli._signals import Signals
from remit.cli._words import log_to_stderr, say
from remit.config import Config, find_repository_root, load_config, with_default_model
from remit.errors import ConfigError, NotFound
from remit.host import Host, keep_audit_short, record_settings
from remit.node_agent import forget_spare, fork_first_node
from remit.requests import parse_duration_ms
from remit.storage import take_serve_lock
from remit.workspaces import check_root, choose_sandbox

_LAST_WORDS_S: Final = 1.0
"""How long viewers of ended runs may take to get the terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What was typed."""

    listen: str | None
    workspace: str | None
    config_file: Path | None
    drain: str | None
    allow_plain_http: bool
    allow_unconfined: bool


def run_server(options: ServeOptions) -> int:
    """Serve until a signal comes; returns the exit code.

    Raises:
        ConfigError: The settings don't allow it, or the server's libraries aren't installed.
        PreconditionFailed: Another `remit serve` uses the data folder.
    """
    _require_server()
    for name in ("remit.api._app", "remit.api._server"):
        import_module(name)  # what is loaded before the fork is shared
    fork_first_node()
    try:
        return _serve(options)
    finally:
        forget_spare()


def _serve(options: ServeOptions) -> int:
    log_to_stderr()
    if not sys.stderr.isatty():  # for who collects logs; at a terminal `remit audit` shows them
        logging.getLogger("remit.audit").setLevel(logging.INFO)
    config = serve_settings(options)
    certificate = _certificate(config)
    _refuse_open_door(config, has_tls=certificate is not None)
    raise_file_limit()
    with take_serve_lock(config.make_data()):
        return asyncio.run(_Serving(config, certificate).run())


_NEEDED = ("httptools", "jinja2", "pygments", "starlette", "uvicorn")
"""What `remit.api` and its dashboard import; some of it may be there for another program's sake."""


def _require_server() -> None:
    if any(find_spec(name) is None for name in _NEEDED):
        raise ConfigError("`remit serve` needs the server extra: pip install 'remit[server]'")


# ---- settings


def serve_settings(options: ServeOptions) -> Config:
    """What a host of this command line is made of: the configuration, and the folder around it."""
    table: dict[str, Any] = {}
    if options.listen is not None:
        table["listen"] = options.listen
    if options.drain is not None:
        table["drain_ms"] = parse_duration_ms(options.drain)
    if options.allow_plain_http:
        table["allow_plain_http"] = True
    here = start_folder()
    named = folder_named(options.workspace, here)
    if options.workspace is not None and named is None:
        raise NotFound(f"there is no folder {options.workspace}", param="workspace")
    repository = find_repository_root(named or here)
    config = load_config(
        environment=os.environ,
        folder=here,
        repository=repository,
        named=options.config_file,
        overrides={"host": table} if table else None,
        allow_unconfined=options.allow_unconfined,
    )
    config = _with_workspace(config, repository or named or here, wanted=named is not None)
    needs_pool = any(
        stage.model is None and stage.pool in (None, "default")
        for binding in config.bindings.values()
        for stage in (binding.plan, binding.work, binding.review)
    )
    return with_default_model(config) if needs_pool else config


def _with_workspace(config: Config, root: Path, *, wanted: bool) -> Config:
    """The settings with the folder as a workspace, where none is configured or it was asked for.

    Bindings that name no workspace get the one that there is, so that a caller needn't.

    Raises:
        ConfigError: The folder can't be worked in.
    """
    if wanted or not config.workspaces:
        check_root(root)
        config, _ = config.with_folder(root)
    if len(config.workspaces) != 1:
        return config
    ref = next(iter(config.workspaces))
    bound = {
        name: binding
        if binding.workspace is not None or binding.profile == "answer"
        else binding.model_copy(update={"workspace": ref})
        for name, binding in config.bindings.items()
    }
    return replace(config, bindings=bound)


def _certificate(config: Config) -> ssl.SSLContext | None:
    chain, key = config.host.tls_certificate, config.host.tls_key
    if chain is None and key is None:
        return None
    if chain is None or key is None:
        raise ConfigError("TLS needs both: [host] tls_certificate and tls_key", param="host.tls_certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(chain, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the TLS certificate can't be used: {error}", param="host.tls_certificate"
        ) from None
    return context


def _refuse_open_door(config: Config, *, has_tls: bool) -> None:
    """An address that others can reach isn't served in the clear unless that was said."""
    host = config.host.listen.rpartition(":")[0].strip("[]")
    if has_tls or config.host.allow_plain_http or _is_loopback(host):
        return
    raise ConfigError(
        f"{config.host.listen} can be reached by others, and keys would go over it in the clear: set [host] "
        "tls_certificate and tls_key, or say --allow-plain-http where something in front has TLS",
        param="host.listen",
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


# ---- serving


class _Serving:
    """One `remit serve`."""

    def __init__(self, config: Config, certificate: ssl.SSLContext | None) -> None:
        self._config = config
        self._certificate = certificate
        self._stop = asyncio.Event()
        self._signals = Signals(stop=self._stop.set)

    async def run(self) -> int:
        """Open everything, wait for a signal, and end it."""
        from remit.api import App, DoorServer, listen_on  # noqa: PLC0415 - an optional extra

        with self._signals.handled():
            listener = listen_on(self._config.host.listen)
            port: int = listener.getsockname()[1]
            try:
                async with Host(self._config, drain_ms=0, node_process=True) as host:
                    sandboxes = await self._find_sandboxes(host)
                    door = host.door()
                    first = await ensure_first_key(
                        door.store, self._config.data, clock=host.clock, ids=host.ids
                    )
                    await record_settings(host.store, self._config)
                    app = App(door, self._door_settings(port))
                    async with DoorServer(app, listener, certificate=self._certificate):
                        self._tell(door, first, sandboxes, port)
                        await self._until_stopped(host)
                        say(f"{self._signals.name}: taking no more work")
                        host.request_drain()
                        app.streams.tell_draining()
                        await host.drain(within_ms=self._config.host.drain_ms)
                        await app.streams.wait_empty(within_s=_LAST_WORDS_S)
            finally:
                listener.close()
        say("stopped: everything has ended and is stored")
        return 0

    async def _until_stopped(self, host: Host) -> None:
        """Wait for the first signal, and do meanwhile what a served host does beside its runs."""
        async with asyncio.TaskGroup() as group:
            days = self._config.host.audit_days
            trimming = group.create_task(keep_audit_short(host.store, host.clock, days=days), name="audit")
            await self._stop.wait()
            trimming.cancel()

    def _door_settings(self, port: int) -> Any:
        from remit.api import DoorSettings, host_names  # noqa: PLC0415 - an optional extra

        table = self._config.host
        scheme = "http" if self._certificate is None else "https"
        names = {*table.allowed_hosts}
        host = table.listen.rpartition(":")[0]
        if _is_loopback(host.strip("[]")):
            names |= {*LOOPBACK_NAMES}
        if host.strip("[]") not in {"0.0.0.0", "::"}:  # noqa: S104 - not what is listened on
            names.add(host)
        return DoorSettings(
            hosts=host_names(names, port, scheme=scheme),
            origins=frozenset(table.allowed_origins),
            scheme=scheme,
            max_body_bytes=table.max_body_bytes,
        )

    async def _find_sandboxes(self, host: Host) -> dict[str, str]:
        """What confines each workspace's commands, found out before anything is promised.

        Raises:
            SandboxUnavailable: Nothing does; the message says what to do.
        """
        node = host.local_node
        self._signals.zygote_pid = lambda: node.pid
        probe = (await node.look()).probe
        found: dict[str, str] = {}
        for ref, workspace in self._config.workspaces.items():
            level = choose_sandbox(workspace.sandbox, probe, allow_unconfined=self._config.allow_unconfined)
            overlay = "overlay" if probe.overlay_problem is None else "copy"
            isolation = overlay if workspace.isolation == "auto" else workspace.isolation
            found[ref] = f"sandbox {level}, isolation {isolation}"
        return found

    # ---- what it says

    def _tell(self, door: ServedHost, first: FirstKey, sandboxes: dict[str, str], port: int) -> None:
        host = self._config.host.listen.rpartition(":")[0]
        scheme = "http" if self._certificate is None else "https"
        for line in self._lines(door, first, sandboxes):
            say(line)
        shown = "127.0.0.1" if host in {"0.0.0.0", "[::]"} else host  # noqa: S104 - shown, not listened on
        address = f"{scheme}://{shown}:{port}"
        say(f"OpenAI's clients: {address}/v1; Anthropic's and browsers: {address}")
        say("each takes a key, and a binding's name as model")
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()

    def _lines(self, door: ServedHost, first: FirstKey, sandboxes: dict[str, str]) -> Iterator[str]:
        yield from self._config.notes
        yield first.sentence
        for name, binding in sorted(door.bindings.items()):
            if binding.profile == "answer":
                yield f"binding {name}: answer, one plain request without a workspace"
                continue
            where = (
                f"workspace {binding.workspace}"
                if binding.workspace
                else "a workspace that the request names"
            )
            yield f"binding {name}: {binding.profile}, {where}, delivery {binding.delivery}"
        for ref, found in sandboxes.items():
            yield f"workspace {ref} ({self._config.workspaces[ref].root}): {found}"
        for node in door.nodes():
            yield f"node {node.id}: process {node.pid}, {node.state}"
        if not sandboxes:
            yield "no workspace is configured yet"
