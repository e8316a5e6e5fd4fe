"""`remit run`, `watch` and `cancel` against a host."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from remit.cli._asking import delivery_of, limits_of, stages_of
from remit.cli._deciding import can_ask, decide, is_undecided
from remit.cli._dry_run import print_dry_run
from remit.cli._progress import Progress, logging_to, make_progress
from remit.cli._prompt import read_prompt
from remit.cli._remote import secret_for_host
from remit.cli._report import print_report, receipt_table
from remit.cli._run import RunOptions
from remit.cli._screen import Results, console_on, glyphs_of, is_a_terminal
from remit.cli._signals import Signals
from remit.cli._summary import require_writable, write_summary
from remit.cli._words import plain, say
from remit.client import AsyncClient, CancelAnswer, Client
from remit.contract import DryRun, RunView
from remit.errors import NotFound, PreconditionFailed
from remit.events import TERMINAL_TYPES, Event
from remit.primitives import SystemClock
from remit.requests import parse_duration_ms
from remit.results import exit_code

EXIT_WAIT_RAN_OUT: Final = 124
_TICK_S: Final = 0.125


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """How a followed run is shown."""

    as_json: bool = False
    as_jsonl: bool = False
    summary: Path | None = None
    """Where the ended run's page goes."""
    asks: bool = False
    """Whether a person at a terminal is asked what becomes of the patch."""

    @property
    def is_quiet(self) -> bool:
        """With JSON only a person at a terminal is told how it goes, and only where it goes elsewhere."""
        if not (self.as_json or self.as_jsonl):
            return False
        return is_a_terminal(sys.stdout) or not is_a_terminal(sys.stderr)


def run_there(options: RunOptions, host: str) -> int:
    """Start one request on a host, and follow it; returns the exit code."""
    if options.as_json and options.as_jsonl:
        raise click.UsageError("--json and --jsonl exclude each other")
    if options.detach and options.wait is not None:
        raise click.UsageError("--detach and --wait exclude each other")
    wait_ms = None if options.wait is None else parse_duration_ms(options.wait)
    body = _body(options, read_prompt(options.prompt, options.prompt_file))
    require_writable(options.summary)
    shown = Shown(
        as_json=options.as_json,
        as_jsonl=options.as_jsonl,
        summary=options.summary,
        asks="delivery" not in body and can_ask() and not (options.as_json or options.as_jsonl),
    )
    if options.dry_run:
        with Client(host, api_key=secret_for_host()) as client:
            found = DryRun.model_validate(client.dry_run(body))
        print_dry_run(found, as_json=options.as_json)
        return 0 if found.problem is None else 1
    return asyncio.run(_run(host, body, shown, detach=options.detach, wait_ms=wait_ms))


def _body(options: RunOptions, prompt: str) -> dict[str, Any]:
    for given, name in (
        (options.config_file is not None, "--config"),
        (options.allow_unconfined, "--allow-unconfined"),
    ):
        if given:
            raise click.UsageError(
                f"{name} belongs to a run on this machine; the host has settings of its own"
            )
    if options.base is not None and options.workspace is None:
        raise click.UsageError("--base goes with -w REF on a host")
    workspace = {"ref": options.workspace, "base": options.base} if options.workspace else None
    body: dict[str, Any] = {
        "prompt": prompt,
        "binding": options.binding,
        "model": options.model,
        "profile": options.profile,
        "preserve": options.preserve,
        "in_place": options.in_place,
        "unreviewed": options.unreviewed,
        "allow_protected": options.allow_protected,
        "workspace": workspace,
        "delivery": delivery_of(options),
        "continues": options.continues,
        "session_id": options.session_id,
        "stages": stages_of(options),
        "limits": {name: _plain(value) for name, value in limits_of(options).items()},
    }
    return {key: value for key, value in body.items() if value not in (None, {}, False)}


def _plain(value: object) -> object:
    return value if isinstance(value, int) else str(value)


async def _run(host: str, body: dict[str, Any], shown: Shown, *, detach: bool, wait_ms: int | None) -> int:
    async with AsyncClient(host, api_key=secret_for_host()) as client:
        view = await client.create(body)
        if detach:
            Results().write_text(view.id)
            say(f"run {view.id} goes on; `remit watch {view.id}` follows it")
            return 0
        return await _Follower(client, view.id, shown, host=host, owns=True).follow(wait_ms=wait_ms)


def watch_run(run_id: str, *, host: str, as_jsonl: bool) -> int:
    """Follow a run that was started before; leaving changes nothing of it."""

    async def watch() -> int:
        async with AsyncClient(host, api_key=secret_for_host()) as client:
            view = await client.get(run_id)
            return await _Follower(client, view.id, Shown(as_jsonl=as_jsonl), host=host, owns=False).follow(
                wait_ms=None
            )

    return asyncio.run(watch())


class _Follower:
    """Follows one run of a host; who owns it cancels it with the first signal."""

    def __init__(self, client: AsyncClient, run_id: str, shown: Shown, *, host: str, owns: bool) -> None:
        self._host = host
        self._client = client
        self._run_id = run_id
        self._shown = shown
        self._owns = owns
        self._results = Results()
        self._view: RunView | None = None
        self._progress: Progress = make_progress(sys.stderr, clock=SystemClock(), quiet=shown.is_quiet)
        self._asked = asyncio.Event()
        self._signals = Signals(stop=self._asked.set)

    async def follow(self, *, wait_ms: int | None) -> int:
        with logging_to(self._progress), self._progress, self._signals.handled():
            try:
                async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                    left = await self._race()
            except TimeoutError:
                say(f"run {self._run_id} goes on; `remit watch {self._run_id}` follows it")
                return EXIT_WAIT_RAN_OUT
            self._signals.ended = not left and self._view is not None
        if left or self._view is None:
            say(f"run {self._run_id} goes on")
            return self._signals.exit_code
        return await self._hand_over(self._view)

    def _exit_code(self, view: RunView) -> int:
        cancelled = view.terminal is not None and view.terminal.kind == "cancelled"
        if cancelled and self._signals.received is not None:
            return self._signals.exit_code
        return exit_code(view)

    async def _race(self) -> bool:
        """Follow to the end, or until a signal; True: it was left while it goes on."""
        async with asyncio.TaskGroup() as group:
            events = group.create_task(self._events(), name="events")
            asked = group.create_task(self._asked.wait(), name="signal")
            ticker = group.create_task(self._tick(), name="progress")
            await asyncio.wait({events, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not events.done() and self._owns:
                self._progress.say("remit: cancelling: waiting until everything has ended", style="yellow")
                reason = f"{self._signals.name} at the command line"
                await self._client.cancel(self._run_id, reason=reason)
                await events
            left = not events.done()
            for task in (events, asked, ticker):
                task.cancel()
        return left

    async def _events(self) -> None:
        async for event in self._client.events(self._run_id):
            self._take(event)
            if event.type in TERMINAL_TYPES:
                self._view = await self._client.get(self._run_id)

    def _take(self, event: Event) -> None:
        self._progress.add(event)
        if event.seq is not None and self._shown.as_jsonl:
            self._results.write_json(event.to_json())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._progress.tick()

    async def _hand_over(self, view: RunView) -> int:
        """The result, the page, the report; then what a person says of the patch. Returns the exit code."""
        if self._shown.as_json:
            self._results.write_json(view.to_json())
        elif not self._shown.as_jsonl and view.output is not None:
            self._results.write_text(plain(view.output))
        try:
            patch = await self._client.patch(view.id)
        except (NotFound, PreconditionFailed):
            patch = ""
        detail = self._progress.story.detail
        code = write_summary(
            self._shown.summary, view, patch=patch, code=self._exit_code(view), detail=detail
        )
        if self._shown.is_quiet:
            return code
        asks = self._shown.asks and is_undecided(view)
        print_report(
            console_on(sys.stderr),
            view,
            patch=patch,
            glyphs=glyphs_of(sys.stderr),
            next_steps=not asks,
            detail=detail,
        )
        if not asks:
            return code

        def deliver(*, branch: str | None, allow_protected: bool) -> int:
            from remit.cli._patching import deliver_there  # noqa: PLC0415 - most runs there need none of it
            from remit.host import ByHand  # noqa: PLC0415

            wanted = ByHand(branch=branch, allow_protected=allow_protected and _has_protected(view))
            return deliver_there(view.id, wanted, host=self._host)

        # In this thread, since only here Ctrl-C can be heard: nothing else goes on any more.
        return decide(view, patch=patch, deliver=deliver)


def _has_protected(view: RunView) -> bool:
    flags = view.review.flags if view.review is not None else ()
    return any(flag.startswith("protected:") for flag in flags)


def cancel_there(wanted: str, *, host: str, reason: str | None, wait: str | None, as_json: bool) -> int:
    """Cancel a run, or one piece of work, of a host; returns the exit code."""
    wait_ms = 10_000 if wait is None else parse_duration_ms(wait)
    return asyncio.run(_cancel(host, wanted, reason, wait_ms, as_json))


async def _cancel(host: str, wanted: str, reason: str | None, wait_ms: int, as_json: bool) -> int:
    async with AsyncClient(host, api_key=secret_for_host()) as client:
        if "." in wanted:  # a run's id holds no dot, and the id of its work does
            stopped = await client.cancel_work(wanted)
            say(f"{wanted}: {'asked to stop' if stopped['changed'] else 'is being stopped already'}")
            return 0
        answer = await client.cancel(wanted, reason=reason, wait_ms=wait_ms)
    return _tell_cancelled(answer, as_json=as_json, write=Results().write_json)


def _tell_cancelled(answer: CancelAnswer, *, as_json: bool, write: Callable[[Any], object]) -> int:
    if as_json:
        write(answer.to_json())
    elif not answer.changed and answer.run.terminal is not None:
        say(f"run {answer.run.id} had ended: {answer.run.status}")
    elif answer.run.terminal is None:
        say(f"run {answer.run.id} is being stopped; `remit watch {answer.run.id}` follows it")
    elif answer.receipt is not None:
        console_on(sys.stderr).print(receipt_table(answer.receipt))
        say(f"run {answer.run.id} is {answer.run.status}")
    return 0 if answer.run.terminal is not None else EXIT_WAIT_RAN_OUT
