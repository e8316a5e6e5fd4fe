"""What a request may ask for and this version can't do yet: refused, never ignored."""

from __future__ import annotations

from collections.abc import Iterator

from remit.contract import RunRequest
from remit.errors import InvalidRequest


def refuse_later(request: RunRequest) -> None:
    """Refuse a request for something that isn't there yet.

    Raises:
        InvalidRequest: `param` names the field.
    """
    for param in _later_fields(request):
        raise InvalidRequest(f"`{param}` asks for what this version can't do yet; leave it out", param=param)


def _later_fields(request: RunRequest) -> Iterator[str]:
    if request.webhook is not None:
        yield "webhook"
