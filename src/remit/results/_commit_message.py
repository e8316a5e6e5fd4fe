"""The message of a commit that a run makes: what was asked, what came of it, and which run it was."""

from __future__ import annotations

import textwrap

from remit.contract import PatchSummary, RunView
from remit.primitives import clean_text

_SUBJECT_CHARS = 72
_BODY_CHARS = 4_000
_WIDTH = 72


def commit_message(view: RunView, *, request_text: str, output: str | None, patch: PatchSummary) -> str:
    """The whole message, with trailers that name the run. Texts of models stand above them, never in them.

    Args:
        view: The run.
        request_text: What was asked; its first line is the subject.
        output: What the run answered; None: nothing yet.
        patch: What the commit holds.
    """
    subject = _subject(request_text) or f"Changes of run {view.id}"
    body = _plain(output or "").strip()[:_BODY_CHARS]
    trailers = [
        f"Remit-Run: {view.id}",
        f"Remit-Reviewed: {'yes' if patch.reviewed else 'no'}",
        f"Remit-Patch: sha256:{patch.sha256}",
    ]
    parts = [subject, *([_wrapped(body)] if body else []), "\n".join(trailers)]
    return "\n\n".join(parts) + "\n"


def _subject(text: str) -> str:
    line = next((line.strip() for line in _plain(text).split("\n") if line.strip()), "")
    if len(line) <= _SUBJECT_CHARS:
        return line
    return textwrap.shorten(line, _SUBJECT_CHARS, placeholder=" ...") or line[:_SUBJECT_CHARS]


def _plain(text: str) -> str:
    """Without what a terminal or git would take for something else."""
    lines = clean_text(text)[0].replace("\r\n", "\n").replace("\r", "\n")
    return "".join(char for char in lines if char in "\n\t" or char.isprintable())


def _wrapped(text: str) -> str:
    lines = [
        line if len(line) <= _WIDTH else textwrap.fill(line, _WIDTH, break_long_words=False)
        for line in text.split("\n")
    ]
    return "\n".join(lines)
