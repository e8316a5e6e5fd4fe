"""Numbers as people read them."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from remit.cli._words import one_line
from remit.contract import AttemptEnded, CheckResult, RunView, StageFailed, Terminal, ToolCompleted

_SAID_CHARS = 300
_LEFT_CHARS = 60
_ATTEMPT_WORDS = {"cancelled": "stopped by Remit", "interrupted": "lost with its host"}
"""Not every attempt that was cut short was cancelled by somebody: limits end them, too."""


def duration(ms: float) -> str:
    """`12 ms`, `1.2 s`, `3 min 05 s`, `2 h 07 min`."""
    if ms < 1_000:
        return f"{max(0, round(ms))} ms"
    seconds = ms / 1_000
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {left:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def between_ms(start: datetime, end: datetime) -> float:
    """Milliseconds from one moment to another, never less than none."""
    return max(0.0, (end - start).total_seconds() * 1_000)


def tokens(count: int | None) -> str:
    """`812`, `4,120`, `1.25 M`; a number that isn't known is `?`."""
    if count is None:
        return "?"
    return f"{count:,}" if count < 1_000_000 else f"{count / 1_000_000:.2f} M"


def money(usd: Decimal | float | None) -> str:
    """`$0.0123`, `$5.00`; an amount that isn't known is `unknown`."""
    if usd is None:
        return "unknown"
    amount = Decimal(str(usd))
    if amount == 0 or amount >= 1:
        return f"${amount:,.2f}"
    return f"${amount:.4f}"


def count(number: int, word: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def exit_words(code: int | None) -> str:
    """An exit code, or that there is none."""
    return "not run" if code is None else f"exit {code}"


def check_words(check: CheckResult) -> str:
    """What the gate made of a check."""
    if check.gate == "worse":
        # Only `all_pass` stops a check that fails as it did on the base, or that couldn't be run there.
        if check.base_exit is None:
            return "fails, but must pass"
        return "still fails, but must pass" if check.exit == check.base_exit else "worse than before"
    if check.gate == "skipped":
        return "skipped"
    flaky = ", at the second try" if check.flaky else ""
    if check.exit == 0:
        return f"{'passes' if check.base_exit in (0, None) else 'passes now'}{flaky}"
    return f"no worse than before{flaky}"


def end_words(terminal: Terminal) -> str:
    """How a run ended: `completed`, `failed (budget/cost)`."""
    if terminal.class_ is None:
        return terminal.kind
    if terminal.class_ == "cancelled":
        return f"cancelled ({terminal.code})"
    return f"{terminal.kind} ({terminal.class_}/{terminal.code})"


def limit_words(terminal: Terminal) -> str | None:
    """The limit that ended a run, as one says it."""
    limit = terminal.limit
    if limit is None:
        return None
    beyond = limit.value is not None and limit.value != limit.cap
    reached = f", {limit_amount(limit.kind, limit.value)} reached or asked for" if beyond else ""
    return f"{limit.kind} is {limit_amount(limit.kind, limit.cap)}{reached}"


def limit_amount(kind: str, value: float | int | None) -> str:
    """A limit's amount in its own unit."""
    if value is None:
        return "not set"
    if kind.endswith("_ms"):
        return duration(value)
    return money(value) if kind.endswith("_usd") else f"{value:,g}"


def lineage_words(view: RunView) -> str | None:
    """What a run came from: its parent, the run that it continues, its session; None: from nothing."""
    words = [] if view.parent_run_id is None else [f"child of {view.parent_run_id}"]
    if view.continues is not None:
        words.append(f"continues {view.continues}")
    if view.session_id not in (view.id, view.parent_run_id, view.continues):
        words.append(f"session {view.session_id}")
    return ", ".join(words) or None


def stands_in_place(view: RunView) -> bool:
    """Whether a run worked in the user's own files, and what it did there wasn't taken back."""
    is_in_place = view.workspace is not None and view.workspace.isolation == "in_place"
    return is_in_place and view.delivery is None and view.patch is not None and view.patch.files > 0


def delivery_words(view: RunView) -> str:
    """What became of a patch."""
    delivery = view.delivery
    if view.patch is None or view.patch.files == 0:
        return "no changes"
    if delivery is None:
        return "in your files" if stands_in_place(view) else "not applied"
    match delivery.status:
        case "delivered":
            if delivery.mode == "branch":
                return f"on the branch {one_line(delivery.ref or '', width=100)}"
            return "applied" if delivery.mode == "apply" else "not applied"
        case "conflict":
            if delivery.mode == "branch":
                return (
                    f"not delivered: the branch {one_line(delivery.ref or '', width=100)} was there already"
                )
            return "not applied: the files had changed meanwhile"
        case "awaiting_approval":
            return "waits for a person's word: deliver or discard"
        case "discarded":
            return "discarded"
        case _:
            return "not applied"


def trouble_words(ended: AttemptEnded) -> str:
    """A request that wasn't completed: which one, how it ended, and what the provider said (untrusted)."""
    code = f", {ended.code}" if ended.code and ended.code != ended.status else ""
    said = f": {one_line(ended.detail, width=_SAID_CHARS)}" if ended.detail else ""
    status = _ATTEMPT_WORDS.get(ended.status, ended.status)
    return f"request {ended.round}.{ended.ordinal} {status}{code}{said}"


def call_words(done: ToolCompleted) -> str:
    """How a tool call ended: `exit 0, 12 ms`; what is as it should be isn't said."""
    parts = [] if done.status == "success" else [done.status.replace("_", " ")]
    if done.exit_code is not None:
        parts.append(f"exit {done.exit_code}")
    if done.duration_ms is not None:
        parts.append(duration(done.duration_ms))
    elif done.status == "cancelled":
        parts = ["not begun"]
    if done.leftovers:
        parts.append(f"left running and stopped: {one_line(', '.join(done.leftovers), width=_LEFT_CHARS)}")
    return ", ".join(parts)


def failure_words(failed: StageFailed) -> str:
    """How a stage ended that gave no answer."""
    if failed.class_ == "cancelled":
        return f"cancelled ({failed.code})"
    return f"{failed.class_}/{failed.code}"


def label_of(name: str, label: str, *, width: int) -> str:
    """A tool call on one line."""
    return one_line(f"{name} {label}".strip(), width=width)
