"""Templates, and how numbers and times look in them."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, cast

from starlette.responses import HTMLResponse

from remit.contract import FLAG_WORDS, Delivery
from remit.primitives import show_hidden

if TYPE_CHECKING:
    from jinja2 import Environment

POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing from elsewhere, nothing inline: text of a run that were taken for markup would still do nothing."""
_CONTROLS: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
STATIC: Final = {"app.css": "text/css", "app.js": "text/javascript", "icon.svg": "image/svg+xml"}


@cache
def static_file(name: str) -> bytes:
    """A file that pages load."""
    return (files("remit.api.dashboard") / "static" / name).read_bytes()


@cache
def static_version(name: str) -> str:
    """Changes when the file does, so that it may be kept for ever."""
    return hashlib.sha256(static_file(name)).hexdigest()[:12]


def page(template: str, values: dict[str, Any], status: int = 200) -> HTMLResponse:
    """A page."""
    # With `no-referrer` a browser would post the page's own forms with `Origin: null`.
    headers = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}
    return HTMLResponse(render(template, values), status, headers)


def render(template: str, values: dict[str, Any]) -> str:
    """A page's text. All values are escaped."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    # 1.9 MB that a host which nobody looks at in a browser doesn't load.
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - as said

    environment = Environment(
        loader=PackageLoader("remit.api.dashboard"),
        autoescape=True,
        finalize=without_hidden,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Its stubs know its own functions only.
    filters, names = cast("dict[str, Any]", environment.filters), cast("dict[str, Any]", environment.globals)
    filters.update(
        moment=moment,
        machine=machine,
        seconds=seconds,
        usd=usd,
        count=count,
        shown=shown,
        ago=ago,
        flag=flag_words,
        delivery=delivery_words,
    )
    names["static"] = _static_link
    return environment


def _static_link(name: str) -> str:
    return f"/static/{name}?v={static_version(name)}"


def moment(value: datetime | None) -> str:
    """A time for people, in UTC."""
    return "–" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def machine(value: datetime) -> str:
    """A time for a `datetime` attribute."""
    return value.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def ago(value: datetime, now: datetime) -> str:
    """How long ago, in one unit."""
    passed = max(0.0, (now - value).total_seconds())
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if passed >= size:
            return f"{int(passed // size)} {unit} ago"
    return f"{int(passed)} s ago"


def seconds(value: float | None) -> str:
    """A duration."""
    if value is None:
        return "–"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def usd(value: float | None) -> str:
    """Money; what isn't known isn't shown as 0."""
    if value is None:
        return "unknown"
    return f"${value:,.2f}" if value >= 1 else f"${value:.4f}"


def count(value: float | None) -> str:
    """A number with its thousands apart."""
    return "–" if value is None else f"{value:,}".replace(",", "\u202f")


def flag_words(flag: str) -> str:
    """A flag of a review, in words."""
    kind, _, rest = flag.partition(":")
    return f"{FLAG_WORDS.get(kind, kind)}: {rest}" if rest else flag


def delivery_words(delivery: Delivery) -> str:
    """What became of a patch."""
    match delivery.status:
        case "delivered":
            return {"apply": "applied", "branch": "on a branch"}.get(delivery.mode, "kept, not applied")
        case "awaiting_approval":
            return f"waits for approval ({delivery.mode})"
        case "conflict":
            return f"conflict: nothing was delivered ({delivery.mode})"
        case "skipped":
            return "none was due"
        case "discarded":
            return "discarded"


def first_line(text: str | None) -> str:
    """The beginning of a request, for lists and headings; empty: it isn't text."""
    lines = (text or "").strip().splitlines()
    return lines[0][:300] if lines else ""


def without_hidden(value: object) -> object:
    """Every value on its way into a page: nothing that isn't seen, or that turns letters around.

    In a patch it would hide from who approves it what its code does. Line ends and tabs stay.
    """
    return show_hidden(_CONTROLS.sub("\N{REPLACEMENT CHARACTER}", value)) if type(value) is str else value


def shown(value: object, most: int = 4_000) -> str:
    """Foreign text, bounded, without control characters."""
    text = show_hidden(_CONTROLS.sub("\N{REPLACEMENT CHARACTER}", str(value)))
    return text if len(text) <= most else f"{text[:most]}\n… {len(text) - most} more characters"
