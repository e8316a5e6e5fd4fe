"""What `remit patch` prints: a run's patch, or what it amounts to."""

from __future__ import annotations

import sys

from remit.cli._diff import coloured, files_of, stat_lines
from remit.cli._finding import RunReader, find_run, open_reader
from remit.cli._screen import Results, console_on, is_a_terminal
from remit.cli._story import Story
from remit.cli._words import say
from remit.contract import RunView
from remit.errors import PreconditionFailed


def print_patch(wanted: str | None, *, stat: bool, host: str | None = None) -> int:
    """Print a run's patch: in colour for a person, byte for byte for a program."""
    with open_reader(host) as reader:
        stored = find_run(reader, wanted)
        assert reader is not None, "a run was found in it"
        artifact = reader.read_artifact(stored.view.id, "patch")
        story = story_of(reader, stored.view.id)
    if artifact is None:
        require_known(stored.view, opened=story.root is not None)
    if artifact is None or not artifact.text:
        say(f"run {stored.view.id} changed nothing")
        return 0
    if stat:
        console = console_on(sys.stdout)
        for line in stat_lines(files_of(artifact.text), width=console.width):
            console.print(line)
    elif is_a_terminal(sys.stdout):
        console_on(sys.stdout).print(coloured(artifact.text), soft_wrap=True)
    else:
        results = Results()
        results.write_bytes(artifact.text.encode("utf-8", "surrogateescape"))
        results.require_written()
    return 0


def require_known(view: RunView, *, opened: bool) -> None:
    """Raise where a run worked on a copy, and died before what it changed there was stored.

    Raises:
        PreconditionFailed: It did.
    """
    unproven = view.terminal is None or view.terminal.kind == "indeterminate"
    if opened and unproven and view.patch is None:
        raise PreconditionFailed(f"what run {view.id} changed isn't known: no patch of it was stored")


def story_of(reader: RunReader, run_id: str) -> Story:
    """What a run's events tell."""
    story = Story()
    for event in reader.read_events(run_id):
        story.add(event)
    return story
