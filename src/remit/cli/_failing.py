"""From an error to one sentence that says what to do, and an exit code."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from typing import Final, TextIO

import click

from remit.cli._words import EXIT_USAGE, one_line, say
from remit.errors import RemitError

STANDARD_OUTPUT: Final = "standard output"
"""Where an error names its file: the place of what couldn't be printed."""


def explain(error: Exception) -> None:
    """Say what went wrong, in one sentence; to who typed a group's name alone, what there is."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        sys.stderr.write(error.format_message() + "\n")
        return
    say(one_line(sentence_of(error), width=2_000))


def sentence_of(error: Exception) -> str:
    """The sentence for an error."""
    if isinstance(error, BaseExceptionGroup):
        return sentence_of(first_of(error))
    if isinstance(error, click.UsageError):
        return _usage_sentence(error)
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, RemitError):
        return error.message
    if isinstance(error, OSError):
        return _system_sentence(error)
    what = f"{type(error).__name__}: {error}"
    return f"something unexpected happened ({what}); REMIT_DEBUG=1 shows where, and please report it"


def exit_code_of(error: Exception) -> int:
    """2 for what the caller must change, 75 for "try later", else 1."""
    if isinstance(error, BaseExceptionGroup):
        return exit_code_of(first_of(error))
    if isinstance(error, click.ClickException):
        return EXIT_USAGE
    return error.exit_code if isinstance(error, RemitError) else 1


def first_of(error: BaseExceptionGroup[Exception]) -> Exception:
    """The error that says most: one of ours, if there is one."""
    leaves = [
        first_of(inner) if isinstance(inner, BaseExceptionGroup) else inner for inner in error.exceptions
    ]
    return next((leaf for leaf in leaves if isinstance(leaf, RemitError)), leaves[0])


def open_missing_streams() -> None:
    """Where stdout or stderr was closed before we started, write to nothing; no file may get its number."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            nothing = os.open(os.devnull, os.O_WRONLY)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))


def settle_streams() -> None:
    """Flush what can be flushed; Python would end with a complaint and a code of its own about the rest."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            quiet(stream)


def quiet(stream: TextIO) -> None:
    """Point a stream that nobody reads at nothing."""
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
    except (OSError, ValueError):
        return


def _usage_sentence(error: click.UsageError) -> str:
    message = error.format_message().rstrip(".")
    where = error.ctx.command_path if error.ctx is not None else "remit"
    message = message[:1].lower() + message[1:]
    return f"{message}; `{where} --help` shows what there is"


def _system_sentence(error: OSError) -> str:
    if error.filename == STANDARD_OUTPUT or (not error.filename and _is_of_stdout(error)):
        # Whose disk that is, if it is one, isn't known: it may be a device, or far away.
        why = error.strerror or error
        return f"stdout can't be written ({why}); send it elsewhere, or make room where it goes"
    name = f"{error.filename}: " if error.filename else ""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"{name}the disk is full; make room and try again"
    return f"{name}{error.strerror or error}"


def _is_of_stdout(error: OSError) -> bool:
    """Whether it came from what prints help and version, which leaves out the place."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and frames[-1].f_globals.get("__name__") == click.echo.__module__


def was_interrupted(error: BaseException) -> bool:
    """Whether an error is what a library made of a Ctrl-C that met it while it was loaded, say."""
    waiting: list[BaseException | None] = [error]
    seen = set[int]()  # causes may lead back to where they began
    while waiting:
        link = waiting.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        # A library in Rust that compiles shapes keeps the interrupt's name alone.
        compiled = type(link).__module__.startswith("pydantic_core") and "KeyboardInterrupt" in str(link)
        if compiled or isinstance(link, KeyboardInterrupt):
            return True
        waiting += (link.__cause__, link.__context__)
    return False
