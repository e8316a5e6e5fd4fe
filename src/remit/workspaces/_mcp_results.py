"""What came of a call of an MCP server's tool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from remit.primitives import dump_json
from remit.workspaces.keeper._output import BoundedOutput

__all__ = ["McpFailed", "McpResult", "readable"]


class McpFailed(Exception):
    """A server can't be used, or refused; the message is for the model and for people."""

    def __init__(self, message: str, *, status: str = "failed") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        """A tool status word: `failed` or `timed_out`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpResult:
    """An answer, in the order of its parts."""

    parts: tuple[str, ...]
    structured: Any = None
    """The same as a JSON value, where the server gives one."""
    is_error: bool = False
    """Whether the server says that the tool failed."""

    @property
    def text(self) -> str:
        """All of it as one text; the structured form where there is no other."""
        text = "\n".join(self.parts)
        if text.strip() or self.structured is None:
            return text
        try:
            return dump_json(self.structured)
        except ValueError:
            return "[a structured result that isn't JSON]"


def readable(text: str, *, max_bytes: int) -> tuple[str, bool]:
    """A text that came from outside, as a command's output is shown: no control sequences, bounded.

    Returns:
        The text, and whether its middle was left out.
    """
    output = BoundedOutput(max_bytes)
    output.feed(text.encode("utf-8", "replace"))
    return output.text(), output.truncated
