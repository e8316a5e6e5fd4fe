"""Texts that a caller adds while a run goes on, and where they wait for the model's next round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from remit.errors import InvalidRequest, NotFound, PreconditionFailed, QuotaExceeded
from remit.primitives import clean_text

if TYPE_CHECKING:
    from remit.runs._control import RunControl
    from remit.runs._ports import RunStore

MAX_MESSAGE_CHARS: Final = 32_768
"""The most characters of one message."""
MAX_WAITING: Final = 16
"""How many may wait for a round at once."""
MAX_MESSAGES: Final = 256
"""How many a run takes in all: each stays in its prompts."""


class Messages:
    """The caller's messages to one run, in order. Each is read once, in whichever stage asks next.

    They wait in memory: one that no round has read isn't on record, and is gone with its host.
    """

    def __init__(self) -> None:
        self._waiting: list[str] = []
        self._heard: list[str] = []

    @property
    def heard(self) -> tuple[str, ...]:
        """Those that the model was shown, for the stages after the one that read them."""
        return tuple(self._heard)

    @property
    def waiting(self) -> int:
        """How many no round has read yet."""
        return len(self._waiting)

    def add(self, text: str) -> None:
        """Have a text read before the next round.

        Raises:
            QuotaExceeded: Too many wait.
            PreconditionFailed: The run was told too much already.
        """
        if len(self._waiting) >= MAX_WAITING:
            raise QuotaExceeded(
                f"{MAX_WAITING} messages wait for the run's next round: send the next one after it"
            )
        if len(self._waiting) + len(self._heard) >= MAX_MESSAGES:
            raise PreconditionFailed(f"a run takes at most {MAX_MESSAGES} messages, and it has had them")
        self._waiting.append(text)

    def take(self) -> tuple[str, ...]:
        """Those that wait; the model is shown them now."""
        taken, self._waiting = tuple(self._waiting), []
        self._heard.extend(taken)
        return taken


class _Driver(Protocol):
    def find_control(self, run_id: str, *, tenant: str = "local") -> RunControl | None: ...


async def tell_run(
    run_id: str, text: str, *, store: RunStore, driver: _Driver, tenant: str = "local"
) -> None:
    """Have a text of the caller's read before a run's next round.

    Args:
        run_id: The run.
        text: 1 to `MAX_MESSAGE_CHARS` characters; NUL and lone surrogates are replaced.
        store: Where runs are kept.
        driver: Who drives them here.
        tenant: Whose it is.

    Raises:
        InvalidRequest: The text is empty or too long.
        NotFound: There is no such run.
        PreconditionFailed: No round is to come: it has ended or is about to; or another process drives it.
        QuotaExceeded: Too many messages.
    """
    if not text.strip() or len(text) > MAX_MESSAGE_CHARS:
        raise InvalidRequest(f"a message has 1 to {MAX_MESSAGE_CHARS} characters", param="text")
    control = driver.find_control(run_id, tenant=tenant)
    if control is None:
        stored = await store.find_run(run_id, tenant=tenant)
        if stored is None:
            raise NotFound(f"no run `{run_id}`", param="id")
        control = driver.find_control(run_id, tenant=tenant)  # it may have been taken up meanwhile
        if control is None:
            why = "it has ended" if stored.view.status.ended else "another host process drives it"
            raise PreconditionFailed(f"run `{run_id}` reads no message: {why}", param="id")
    if control.committed or control.asked is not None or control.ended.is_set():
        raise PreconditionFailed(f"run `{run_id}` reads no message: it is ending", param="id")
    control.messages.add(clean_text(text)[0])
