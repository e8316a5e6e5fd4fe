"""What a visitor may do from a page: stop a run, and say what becomes of its patch."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from remit.api.dashboard._login import read_form
from remit.api.dashboard._view import View
from remit.primitives import clean_text

_WAIT_MS = 10_000
"""For the receipt to be whole; a run that takes longer shows it when it has come."""
_MOST_REASON = 500


async def _form(view: View) -> dict[str, str]:
    """The posted form, if the visitor may act and it came from a page of ours."""
    form = await read_form(view.request)
    view.visitors.check_form(form, view.identity)
    view.identity.require("run")
    return form


def _back(view: View) -> Response:
    return RedirectResponse(f"/runs/{view.request.path_params['id']}", 303)


async def cancel(view: View) -> Response:
    """Stop a run and everything that it started."""
    form = await _form(view)
    stored = await view.get_run()
    reason = clean_text(form.get("reason", "").strip()[:_MOST_REASON])[0]
    await view.host.cancel(
        stored.view.id,
        caller=view.caller,
        by="operator",
        reason=reason or "from the dashboard",
        tombstone=False,
        wait_ms=_WAIT_MS,
    )
    return _back(view)


async def deliver(view: View) -> Response:
    """Approve a waiting delivery, or apply the patch of a run that has ended."""
    form = await _form(view)
    await view.host.deliver(
        await view.get_run(),
        caller=view.caller,
        unreviewed=form.get("unreviewed") == "1",
        allow_protected=form.get("allow_protected") == "1",
    )
    return _back(view)


async def discard(view: View) -> Response:
    """Let the patch never be applied."""
    await _form(view)
    await view.host.discard(await view.get_run(), caller=view.caller)
    return _back(view)
