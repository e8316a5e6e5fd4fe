"""What `remit run` does."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

import click

from remit.cli._asking import build_request, with_wider_cap
from remit.cli._deciding import can_ask, decide, is_undecided
from remit.cli._driving import Driver, Outcome
from remit.cli._dry_run import show_dry_run
from remit.cli._patching import deliver_here
from remit.cli._place import Place, find_binding, find_place, kinds_asked, require_usable, with_model
from remit.cli._progress import logging_to, make_progress
from remit.cli._prompt import read_prompt
from remit.cli._report import print_report
from remit.cli._run import RunOptions
from remit.cli._screen import Results, console_on, glyphs_of, is_a_terminal
from remit.cli._summary import require_writable, write_summary
from remit.cli._words import plain, say
from remit.contract import RunRequest
from remit.events import Event
from remit.host import ByHand
from remit.models import loading_early
from remit.primitives import SystemClock


def execute(options: RunOptions) -> int:
    """Run one request; returns the exit code."""
    if options.as_json and options.as_jsonl:
        raise click.UsageError("--json and --jsonl exclude each other")
    prompt = read_prompt(options.prompt, options.prompt_file)
    place = find_place(
        wanted=options.workspace, config_file=options.config_file, allow_unconfined=options.allow_unconfined
    )
    request = build_request(options, prompt, place)
    require_writable(options.summary)
    asks = _asks(options, place, request)
    require_usable(place, applies=not (options.patch_only or options.branch or asks))
    place = with_model(place, request)
    place = replace(place, config=with_wider_cap(place.config, request))
    results = Results()
    quiet = _is_quiet(options)
    progress = make_progress(sys.stderr, clock=SystemClock(), quiet=quiet)

    def on_event(event: Event) -> None:
        if options.as_jsonl:
            results.write_json(event.to_json())

    if options.dry_run:
        return show_dry_run(place, request, as_json=options.as_json, asks=asks)
    driver = Driver(place, request, progress=progress, door_delivery="patch" if asks else "apply")
    driver.on_event = on_event
    with loading_early(kinds_asked(place.config, request)), logging_to(progress), progress:
        outcome = asyncio.run(driver.drive())
    if outcome.view is None:
        say("stopped before the run began: nothing was started")
        return outcome.exit_code
    view = outcome.view
    _hand_over(outcome, options, results)
    code = write_summary(
        options.summary,
        view,
        patch=outcome.patch,
        code=_final_code(outcome, results),
        detail=progress.story.detail,
    )
    asks = asks and is_undecided(view)
    if not quiet:
        print_report(
            console_on(sys.stderr),
            view,
            patch=outcome.patch,
            glyphs=glyphs_of(sys.stderr),
            next_steps=not asks,
            detail=progress.story.detail,
        )
    if not asks:
        return code

    def deliver(*, branch: str | None, allow_protected: bool) -> int:
        wanted = ByHand(branch=branch, allow_protected=allow_protected)
        return deliver_here(view.id, wanted, settings=place.workspace)

    return decide(view, patch=outcome.patch, deliver=deliver)


def _asks(options: RunOptions, place: Place, request: RunRequest) -> bool:
    """Whether a person is asked what becomes of the patch: nobody has said, and there is somebody."""
    binding = find_binding(place.config, request)
    said = request.delivery is not None or (binding is not None and "delivery" in binding.model_fields_set)
    profile = request.profile or (binding.profile if binding is not None else None)
    return not (said or options.as_json or options.as_jsonl) and profile == "reviewed" and can_ask()


def _is_quiet(options: RunOptions) -> bool:
    """With JSON only a person at a terminal is told how it goes, and only where the JSON goes elsewhere."""
    if not (options.as_json or options.as_jsonl):
        return False
    return is_a_terminal(sys.stdout) or not is_a_terminal(sys.stderr)


def _hand_over(outcome: Outcome, options: RunOptions, results: Results) -> None:
    """The result, and nothing else, on stdout."""
    view = outcome.view
    assert view is not None, "there was a run"
    if options.as_json:
        results.write_json(view.to_json())
    elif not options.as_jsonl and view.output is not None:
        results.write_text(plain(view.output))


def _final_code(outcome: Outcome, results: Results) -> int:
    view = outcome.view
    assert view is not None, "there was a run"
    if results.error is None:
        return outcome.exit_code
    if results.reader_left:
        say(f"nobody reads stdout any more; `remit show {view.id}` has the result")
        return outcome.exit_code
    say(f"stdout can't be written ({results.error.strerror}); `remit show {view.id}` has the result")
    return outcome.exit_code or 1
