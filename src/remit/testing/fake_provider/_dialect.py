"""What the fake provider asks of a dialect."""

from __future__ import annotations

from typing import Protocol

from remit.testing.fake_provider._openai_rules import Refusal
from remit.testing.fake_provider._reply import RecordedRequest, Reply


class Dialect(Protocol):
    """A wire form, and how strict the fake is about it."""

    @property
    def api_key(self) -> str | None:
        """The only key that is let in; None: none is needed."""
        ...

    @property
    def base_path(self) -> str:
        """What a client's base URL ends with."""
        ...

    @property
    def request_id_header(self) -> str:
        """The header that names a request."""
        ...

    def refusal(self, request: RecordedRequest) -> Refusal | None:
        """Why the real one wouldn't take this request, or None."""
        ...

    def error_body(self, refusal: Refusal) -> bytes:
        """A refusal as the body of an error answer."""
        ...

    def fault_body(self, reply: Reply, request: RecordedRequest) -> bytes:
        """The body of a scripted error status."""
        ...

    def list_models(self) -> bytes:
        """The answer to a request for the models."""
        ...

    def render(self, reply: Reply, request: RecordedRequest, *, number: int) -> tuple[str, list[bytes]]:
        """Content type and pieces of the body of a 200 answer."""
        ...


def frame(name: str, data: str, line_end: str) -> bytes:
    """One event with a name."""
    return f"event: {name}{line_end}data: {data}{line_end}{line_end}".encode()


def pieces_of(text: str, count: int) -> list[str]:
    """A text in so many pieces, none of them empty; the empty text is one."""
    size = max(1, -(-len(text) // max(1, count)))
    return [text[start : start + size] for start in range(0, len(text), size)] or [""]
