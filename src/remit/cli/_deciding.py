"""Asks at a terminal what is to become of a run's patch, once the run has ended."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from rich.text import Text

from remit.cli._diff import coloured
from remit.cli._screen import console_on, is_a_terminal
from remit.cli._signals import by_default
from remit.cli._words import one_line, plain, say
from remit.contract import RunView
from remit.errors import InvalidRequest
from remit.requests import check_branch_name, default_branch

Deliver = Callable[..., int]
"""(branch, allow_protected) -> the exit code: 0 delivered, 1 a conflict, 2 the branch's name is taken."""

NAME_TAKEN = 2
_CHOICES = ("apply", "branch", "diff", "nothing")
_QUESTION = "[a]pply  [b]ranch  [d]iff  [n]othing? "
_SHOWN_PATHS = 10


def can_ask(*, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a person can be asked: both ends are a terminal, and it is no CI's."""
    if environment.get("CI", "").lower() not in ("", "0", "false"):
        return False
    return is_a_terminal(sys.stdin) and is_a_terminal(sys.stderr)


def is_undecided(view: RunView) -> bool:
    """Whether an ended run left a reviewed patch that nobody has decided on."""
    completed = view.terminal is not None and view.terminal.kind == "completed"
    kept = view.delivery is not None and (view.delivery.mode, view.delivery.status) == ("patch", "delivered")
    frozen = any(flag.startswith("frozen:") for flag in _flags(view))
    return completed and kept and not frozen and view.patch is not None and view.patch.reviewed


def decide(view: RunView, *, patch: str, deliver: Deliver) -> int:
    """Ask until there is an answer; returns the exit code. Ctrl-C and the end of input are `nothing`."""
    with by_default():
        try:
            return _decide(view, patch, deliver)
        except KeyboardInterrupt:
            sys.stderr.write("\n")
            return _nothing(view)


def _decide(view: RunView, patch: str, deliver: Deliver) -> int:
    while True:
        answer = _ask(_QUESTION)
        match _choice(answer, _CHOICES) if answer is not None else "nothing":
            case "apply":
                if not _may_touch_protected(view):
                    continue
                return deliver(branch=None, allow_protected=True)
            case "branch":
                code = _to_branch(view, deliver)
                if code is not None:
                    return code
            case "diff":
                console_on(sys.stderr).print(coloured(patch), soft_wrap=True)
            case "nothing":
                return _nothing(view)
            case _:
                say("answer a, b, d or n, and Enter")


def _to_branch(view: RunView, deliver: Deliver) -> int | None:
    """None: the name can't be taken, or nobody gave one."""
    default = default_branch(view.id)
    name = _ask(f"name of the new branch [{default}]: ")
    if name is None:
        return _nothing(view)
    try:
        branch = check_branch_name(name or default)
    except InvalidRequest as error:
        say(error.message)
        return None
    code = deliver(branch=branch, allow_protected=True)
    return None if code == NAME_TAKEN else code


def _may_touch_protected(view: RunView) -> bool:
    paths = [flag.partition(":")[2] for flag in _flags(view) if flag.startswith("protected:")]
    if not paths:
        return True
    shown = ", ".join(one_line(path, width=100) for path in paths[:_SHOWN_PATHS])
    more = f" and {len(paths) - _SHOWN_PATHS} more" if len(paths) > _SHOWN_PATHS else ""
    answer = _ask(f"it touches protected paths: {shown}{more}; apply these too? [y/N] ")
    return answer is not None and _choice(answer, ("yes",)) is not None


def _choice(answer: str, words: Sequence[str]) -> str | None:
    """The word that an answer begins or is: `a` and `apply`, but not `abort`."""
    return next((word for word in words if answer and word.startswith(answer.lower())), None)


def _flags(view: RunView) -> tuple[str, ...]:
    return view.review.flags if view.review is not None else ()


def _nothing(view: RunView) -> int:
    say(f"nothing was changed; the patch is kept: `remit patch {view.id} --apply`")
    return 0


def _ask(question: str) -> str | None:
    """A line of the person's; None: there won't be one. What was typed before is no answer."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import termios  # noqa: PLC0415 - not there on every system

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    console_on(sys.stderr).print(Text(plain(question), style="bold"), end="")
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        sys.stderr.write("\n")  # nobody has ended the question's line
        return None
    return plain(line).strip()
