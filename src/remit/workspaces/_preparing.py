"""Prepares a workspace for a run: base pinned, checks found and run on it, brief written.

The checks are tried in a scratch checkout that isn't the run's; what they came to is kept by base, settings
and environment.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from remit.contract import Isolation, PrepareRequest
from remit.errors import NodeError
from remit.primitives import Clock, Ids
from remit.workspaces._base import Listing
from remit.workspaces._base_facts import BaseFacts, facts_key, find_facts, read_facts, write_facts
from remit.workspaces._brief import Brief, BriefFacts, write_brief
from remit.workspaces._continuing import KeptCheckout, find_kept
from remit.workspaces._in_place import in_place_notes, require_git_kept
from remit.workspaces._keeper import Keeper
from remit.workspaces._pinning import Bases, find_workspace_root
from remit.workspaces._prepared import BaseReader, PreparedWorkspace
from remit.workspaces._probe import choose_sandbox, require_network, sandbox_notes
from remit.workspaces._scratches import Scratches
from remit.workspaces._secrets import WorkspaceSecrets, read_secrets
from remit.workspaces._settings import WorkspaceSettings
from remit.workspaces._setup import (
    SetupDone,
    SetupInputs,
    find_setup,
    run_setup,
    setup_key,
    with_setup_environment,
)
from remit.workspaces._sharing import Shared
from remit.workspaces._shelf import NAMED_BY_REPOSITORY
from remit.workspaces._toolchains import Toolchains, find_toolchains
from remit.workspaces.keeper._tree import is_git_name

__all__ = ["Preparer"]

_TOOLCHAINS_S = 5.0
"""How long what was found of toolchains is believed: a burst of runs looks once, a person's next run anew."""

_SETUP_SHARE = 0.7
"""The part of a preparation's time that setup commands may take."""

_CHECKS_SHARE = 0.8
"""The part of a preparation's time that checks on the base may take."""


class Preparer:
    """Prepares workspaces of one node.

    Args:
        data: The node's data folder.
        bases: Pins bases.
        keeper: Gives the node's keeper, started when it is first needed.
        clock: Tells how old a look at the toolchains is.
        ids: Names scratch checkouts.
        environment: Of whoever works on this machine: PATH, HOME, VIRTUAL_ENV.
        allow_unconfined: Whether `sandbox = "none"` was allowed.
        owner: The node's process, by the name of its lock.
        programs: What a workspace starts beside its own commands.
    """

    def __init__(
        self,
        data: Path,
        *,
        bases: Bases,
        keeper: Callable[[], Awaitable[Keeper]],
        clock: Clock,
        ids: Ids,
        environment: Mapping[str, str],
        allow_unconfined: bool,
        owner: str,
        programs: Callable[[WorkspaceSettings], Sequence[str]] = lambda settings: (),
    ) -> None:
        self._data = data
        self._bases = bases
        self._keeper = keeper
        self._clock = clock
        self._environment = environment
        self._allow_unconfined = allow_unconfined
        self._programs = programs
        self._toolchains: dict[tuple[Path, str], tuple[float, Toolchains]] = {}
        self.scratches = Scratches(
            data,
            keeper=keeper,
            ids=ids,
            environment=environment,
            allow_unconfined=allow_unconfined,
            owner=owner,
        )
        """Checkouts of a base that are no run's."""
        self._setup_inputs = SetupInputs()
        self._setups: dict[str, Shared[SetupDone]] = {}
        self._facts: dict[str, Shared[BaseFacts]] = {}
        self._prepared: dict[tuple[object, ...], Shared[PreparedWorkspace]] = {}

    async def prepare(self, settings: WorkspaceSettings, request: PrepareRequest) -> PreparedWorkspace:
        """Prepare a workspace. Runs that ask for the same at the same time share one look at the tree.

        Raises:
            WorkspaceRefused: The folder can't be a workspace.
            SandboxUnavailable: Commands can't be confined here.
            NodeError: The base can't be pinned, a scratch checkout can't be opened, or there is nothing kept
                to go on with.

        Cancellation: a scratch checkout is closed first.
        """
        key = (settings.ref, request.base, request.subdir, request.isolation, request.continues)
        shared = self._prepared.setdefault(key, Shared[PreparedWorkspace]())
        try:
            async with asyncio.timeout(request.timeout_ms / 1000):
                return await shared.get(lambda: self._prepare(settings, request))
        finally:
            if not shared.wanted:
                self._prepared.pop(key, None)

    async def look(self, settings: WorkspaceSettings, request: PrepareRequest) -> PreparedWorkspace:
        """What `prepare` would give, with the checks found but not run, and without a brief. Keeps nothing.

        Raises:
            NodeError: As `prepare`.

        Cancellation: a scratch checkout is closed first.
        """
        async with asyncio.timeout(request.timeout_ms / 1000):
            workspace, notes = await self._begin(settings, request)
            workspace, said = await self._with_known_setup(workspace)
            facts = BaseFacts(checks=(), problems=(), cached=False)
            if settings.checks != () or settings.commands:
                async with self.scratches.opened(workspace) as checkout:
                    reader = BaseReader(self._bases, workspace.pin, workspace.listing)
                    facts = await find_facts(checkout, workspace, reader, timeout_ms=None)
        return replace(workspace, checks=facts.checks, notes=(*notes, *said, *facts.problems))

    async def _prepare(self, settings: WorkspaceSettings, request: PrepareRequest) -> PreparedWorkspace:
        workspace, notes = await self._begin(settings, request)
        workspace, said = await self._with_setup(workspace, timeout_ms=int(request.timeout_ms * _SETUP_SHARE))
        facts = await self._base_facts(workspace, timeout_ms=int(request.timeout_ms * _CHECKS_SHARE))
        states = tuple(state for _, state in facts.checks)
        pin = workspace.pin
        brief = await write_brief(
            pin,
            workspace.listing,
            BriefFacts(
                subdir=workspace.subdir,
                checks=states,
                network=settings.network,
                tools_on_path=tuple(workspace.toolchains.in_words()),
                isolation=workspace.isolation,
                sandbox=workspace.sandbox,
            ),
            read=BaseReader(self._bases, pin, workspace.listing).read,
        )
        return replace(
            workspace,
            checks=facts.checks,
            brief=brief,
            notes=(*notes, *said, *facts.problems),
            cached=facts.cached,
        )

    async def _begin(
        self, settings: WorkspaceSettings, request: PrepareRequest
    ) -> tuple[PreparedWorkspace, tuple[str, ...]]:
        """The base pinned and the toolchains found, and what the caller should know of both."""
        found = await asyncio.to_thread(find_workspace_root, settings.root)
        subdir = _join(found.subdir, request.subdir)
        keeper = await self._keeper()
        sandbox = choose_sandbox(settings.sandbox, keeper.probe, allow_unconfined=self._allow_unconfined)
        require_network(settings.network, sandbox)
        kept = await self._find_kept(settings, request, found.root, keeper)
        isolation, notes = _choose_isolation(settings, request, keeper)
        if isolation == "in_place":
            await asyncio.to_thread(require_git_kept, sandbox, found.root)
        if kept is None:
            pin = await self._bases.pin(found.root, wanted=request.base, copied=isolation == "copy")
        else:
            pin, isolation, notes = kept.pin, kept.isolation, ()
        listing = await self._bases.list_base(pin)
        _require_folder(found.root, listing, subdir)
        toolchains = await self._toolchains_of(found.root, settings, listing if pin.has_repository else {})
        workspace = PreparedWorkspace(
            settings=settings,
            pin=pin,
            listing=listing,
            subdir=subdir,
            isolation=isolation,
            sandbox=sandbox,
            toolchains=toolchains,
            checks=(),
            brief=Brief("", ()),
            notes=(),
            cached=False,
            secrets=await self._read_secrets(settings),
            kept=kept,
        )
        return workspace, (
            *in_place_notes(isolation, sandbox),
            *sandbox_notes(sandbox, keeper.probe),
            *notes,
            *pin.notes,
            *_not_shown(toolchains, settings),
        )

    async def _read_secrets(self, settings: WorkspaceSettings) -> WorkspaceSecrets:
        if not settings.secrets:  # nothing to read: no thread for it
            return WorkspaceSecrets()
        return await asyncio.to_thread(read_secrets, settings.secrets, environment=self._environment)

    async def _find_kept(
        self, settings: WorkspaceSettings, request: PrepareRequest, root: Path, keeper: Keeper
    ) -> KeptCheckout | None:
        if request.continues is None:
            return None
        if request.isolation == "in_place":
            raise NodeError("a run in place has no checkout to go on with", reason="refused")
        kept = await asyncio.to_thread(find_kept, self._data, request.continues, ref=settings.ref, root=root)
        problem = keeper.probe.overlay_problem
        if kept.isolation == "overlay" and problem is not None:
            raise NodeError(f"the kept checkout is an overlay, and none can be mounted: {problem}")
        return kept

    async def _toolchains_of(
        self, root: Path, settings: WorkspaceSettings, of_base: Container[str]
    ) -> Toolchains:
        """What the workspace's commands need to see; looked for anew some seconds after the last look."""
        found = self._toolchains.get((root, settings.ref))
        now = self._clock.monotonic()
        if found is not None and now - found[0] < _TOOLCHAINS_S:
            return found[1]
        toolchains = await asyncio.to_thread(self._find_toolchains, root, settings, of_base)
        self._toolchains[root, settings.ref] = now, toolchains
        return toolchains

    def _find_toolchains(
        self, root: Path, settings: WorkspaceSettings, of_base: Container[str]
    ) -> Toolchains:
        home = self._environment.get("HOME")
        return find_toolchains(
            root,
            environ=self._environment,
            home=Path(home) if home else None,
            data=self._data,
            wanted=settings.toolchains,
            path=settings.path,
            mounts=settings.mounts,
            of_base=of_base,
            executables=[
                *(command.executable for command in settings.commands),
                *self._programs(settings),
            ],
        )

    # ---- setup commands

    async def _with_setup(
        self, workspace: PreparedWorkspace, *, timeout_ms: int
    ) -> tuple[PreparedWorkspace, tuple[str, ...]]:
        """The workspace with what its setup commands have made; they run where nobody has run them yet."""
        if not workspace.settings.setup:
            return workspace, ()
        if workspace.isolation == "in_place":
            return workspace, ("setup commands don't run for a run in place: the tree is yours as it is",)
        key = await self._setup_key(workspace)

        async def find() -> SetupDone:
            kept = await asyncio.to_thread(find_setup, self._data, key)
            if kept is not None:
                return kept
            checkout = await self.scratches.open(workspace, keep_home=True)
            return await run_setup(checkout, workspace, data=self._data, key=key, timeout_ms=timeout_ms)

        shared = self._setups.setdefault(key, Shared[SetupDone]())
        try:
            done = await shared.get(find)
        finally:
            if not shared.wanted:
                self._setups.pop(key, None)
        return _set_up(workspace, done), done.notes

    async def _with_known_setup(
        self, workspace: PreparedWorkspace
    ) -> tuple[PreparedWorkspace, tuple[str, ...]]:
        """The same, as far as it is there; nothing is run."""
        if not workspace.settings.setup or workspace.isolation == "in_place":
            return workspace, ()
        done = await asyncio.to_thread(find_setup, self._data, await self._setup_key(workspace))
        if done is None:
            return workspace, (f"setup would run first: {'; '.join(workspace.settings.setup)}",)
        return _set_up(workspace, done), done.notes

    async def _setup_key(self, workspace: PreparedWorkspace) -> str:
        inputs = await asyncio.to_thread(self._setup_inputs.find, workspace)
        return setup_key(workspace, inputs, environment=self._environment)

    # ---- facts of a base

    async def _base_facts(self, workspace: PreparedWorkspace, *, timeout_ms: int) -> BaseFacts:
        """Which checks there are and how they stand on the base; kept where all of them could be run."""
        key = facts_key(workspace)
        path = self._data / "facts" / f"{key}.json"

        async def find() -> BaseFacts:
            kept = read_facts(path)
            if kept is not None:
                return kept
            facts = await self._find_facts(workspace, timeout_ms)
            if not facts.problems:
                write_facts(path, facts)
            return facts

        shared = self._facts.setdefault(key, Shared[BaseFacts]())
        try:
            return await shared.get(find)
        finally:
            if not shared.wanted:
                self._facts.pop(key, None)

    async def _find_facts(self, workspace: PreparedWorkspace, timeout_ms: int) -> BaseFacts:
        settings = workspace.settings
        if settings.checks == () and not settings.commands and isinstance(settings.network, bool):
            return BaseFacts(checks=(), problems=(), cached=False)
        async with self.scratches.opened(workspace) as checkout:
            reader = BaseReader(self._bases, workspace.pin, workspace.listing)
            return await find_facts(checkout, workspace, reader, timeout_ms=timeout_ms)


def _join(outer: str, inner: str) -> str:
    """A working folder below another one.

    Raises:
        NodeError: It leads out.
    """
    parts = [part for part in f"{outer}/{inner}".split("/") if part not in ("", ".")]
    if ".." in parts or inner.startswith("/"):
        raise NodeError(f"the working folder {inner!r} must lie inside the workspace", reason="refused")
    if any(is_git_name(part) for part in parts):
        raise NodeError(
            f"the working folder {'/'.join(parts)} lies in git's own folder, where no run works; name a "
            "folder of the project",
            reason="refused",
        )
    return "/".join(parts)


def _require_folder(root: Path, listing: Listing, subdir: str) -> None:
    prefix = f"{subdir}/"
    if subdir and not any(path.startswith(prefix) for path in listing) and not (root / subdir).is_dir():
        raise NodeError(f"there is no folder {subdir} in {root}", reason="refused")


def _choose_isolation(
    settings: WorkspaceSettings, request: PrepareRequest, keeper: Keeper
) -> tuple[Isolation, tuple[str, ...]]:
    wanted = request.isolation or settings.isolation
    if wanted != "auto":
        return wanted, ()
    problem = keeper.probe.overlay_problem
    if problem is None:
        return "overlay", ()
    return "copy", (f"the workspace is copied, since no overlay can be mounted here: {problem}",)


def _set_up(workspace: PreparedWorkspace, done: SetupDone) -> PreparedWorkspace:
    toolchains = with_setup_environment(workspace.toolchains, done, Path(workspace.pin.root))
    return replace(workspace, setup=done.folder, toolchains=toolchains)


def _not_shown(toolchains: Toolchains, settings: WorkspaceSettings) -> list[str]:
    """What the settings ask to show and commands won't see; all else is `doctor`'s to tell."""
    asked = [*(mount.source for mount in settings.mounts), *settings.path]
    refused = {item.folder: item.reason for item in toolchains.refused}
    notes = [
        f"{item.folder} isn't shown to commands: {item.reason}"
        for item in toolchains.refused
        if item.reason == NAMED_BY_REPOSITORY
    ]
    for folder in asked:
        reason = refused.get(folder) or refused.get(Path(os.path.realpath(folder)))
        if reason is not None:
            notes.append(f"{folder} isn't shown to commands: {reason}")
        elif not folder.is_dir():
            notes.append(f"{folder} isn't shown to commands: there is no such folder")
    return notes
