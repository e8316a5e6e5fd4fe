"""Dispatch within the host's own process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType

from remit.errors import InternalError, MisuseError, NotFound, OwnershipError, RemitError
from remit.runs import RunContext, RunControl, RunStore, StoredRun, Supervisor, name_in_host
from remit.work import Residencies

_log = logging.getLogger(__name__)

ContextMaker = Callable[[StoredRun, RunControl], RunContext]


class EmbeddedEngine:
    """Claims runs for this host's epoch and drives each to its terminal, in tasks of its own.

    As many runs as wait may be started; how many go on at once is bounded by the places in their context.

    Args:
        store: Where runs are kept.
        epoch: The host epoch that claims them.
        make_context: Makes a claimed run's surroundings.
        residencies: The host's, above those of each run; None: runs are counted by themselves.
    """

    def __init__(
        self,
        store: RunStore,
        *,
        epoch: str,
        make_context: ContextMaker,
        residencies: Residencies | None = None,
    ) -> None:
        self._store = store
        self._residencies = residencies
        self._epoch = epoch
        self._make_context = make_context
        self._controls: dict[str, RunControl] = {}
        self._group: asyncio.TaskGroup | None = None

    async def __aenter__(self) -> EmbeddedEngine:
        self._group = await asyncio.TaskGroup().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        group, self._group = self._group, None
        if group is not None:
            await group.__aexit__(None, None, None)  # an error of the block's stays what it is

    def start(
        self,
        run_id: str,
        *,
        tenant: str = "local",
        claimed: StoredRun | None = None,
        residencies: Residencies | None = None,
    ) -> RunControl:
        """Take up an admitted run; joins the one that is going on. Never waits.

        Args:
            run_id: The run.
            tenant: Whose it is.
            claimed: The run, if this host's epoch holds it already.
            residencies: Those that the run's own count in; None: the host's.
        """
        name = name_in_host(tenant, run_id)
        control = self._controls.get(name)
        if control is None:
            if self._group is None:
                raise MisuseError("the host is closed")
            control = self._controls[name] = RunControl(
                residencies=Residencies(parent=residencies or self._residencies)
            )
            self._group.create_task(self._drive(run_id, tenant, control, claimed), name=f"drive {name}")
        return control

    @contextmanager
    def attached(self, tenant: str, run_id: str, control: RunControl) -> Generator[None]:
        """Let a run that another one drives, as its child, be found here for the length of a block."""
        name = name_in_host(tenant, run_id)
        self._controls[name] = control
        try:
            yield
        finally:
            del self._controls[name]

    def find_control(self, run_id: str, *, tenant: str = "local") -> RunControl | None:
        """The control of a run that this host drives now; None when it doesn't."""
        return self._controls.get(name_in_host(tenant, run_id))

    @property
    def controls(self) -> tuple[RunControl, ...]:
        """The controls of the runs that this host drives now."""
        return tuple(self._controls.values())

    @property
    def running(self) -> tuple[str, ...]:
        """The runs that this host drives now, by `name_in_host`."""
        return tuple(self._controls)

    async def _drive(self, run_id: str, tenant: str, control: RunControl, claimed: StoredRun | None) -> None:
        try:
            stored = claimed or await self._store.claim(self._epoch, run_id=run_id, tenant=tenant)
            if stored is None:
                raise NotFound(f"run {run_id} can't be taken up by this host", run_id=run_id)
            await Supervisor(self._make_context(stored, control)).drive()
        except OwnershipError:
            _log.warning("run %s: another host owns it now", run_id)
        except RemitError as error:
            _log.exception("run %s: its end couldn't be stored", run_id)
            control.fail(error)
        except Exception as error:  # noqa: BLE001 - one run's fault must not end the others
            _log.exception("run %s: a fault of our own", run_id)
            control.fail(InternalError(f"{type(error).__name__}: {error}", run_id=run_id))
        finally:
            del self._controls[name_in_host(tenant, run_id)]
            if not control.ended.is_set():
                control.fail(OwnershipError("another host owns this run now", run_id=run_id))
