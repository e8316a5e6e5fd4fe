"""What a request that continues a run becomes: what it leaves open is as it was there."""

from __future__ import annotations

from remit.admission._ports import SessionFacts
from remit.contract import RunRequest, RunView, WorkspaceRequest
from remit.errors import InvalidRequest, NotFound, PreconditionFailed


def continued_request(request: RunRequest, facts: SessionFacts) -> RunRequest:
    """The request with the workspace, base and working folder of the run that it continues. Pure.

    One that continues none is returned as it is.

    Args:
        request: As it was asked.
        facts: What was found of the run that `continues` names.

    Raises:
        NotFound: There is no such run.
        PreconditionFailed: It hasn't ended.
        InvalidRequest: It is of another session or workspace, started from another base, or had no workspace.
    """
    if request.continues is None:
        return request
    continued = facts.continued
    if continued is None:
        raise NotFound(f"no run `{request.continues}`", param="continues")
    if not continued.status.ended:
        raise PreconditionFailed(f"run {continued.id} hasn't ended yet", param="continues")
    if request.session_id not in (None, continued.session_id):
        raise InvalidRequest(
            f"run {continued.id} belongs to another session than `session_id` says", param="continues"
        )
    return request.model_copy(update={"workspace": _workspace(request, continued, facts.continued_workspace)})


def _workspace(request: RunRequest, continued: RunView, earlier: WorkspaceRequest | None) -> WorkspaceRequest:
    if continued.workspace is None:
        raise InvalidRequest(
            f"run {continued.id} had no workspace to go on in; `session_id` takes up its session alone",
            param="continues",
        )
    ref, base = continued.workspace.ref, earlier.base if earlier is not None else None
    asked = request.workspace
    if asked is not None and asked.ref != ref:
        raise InvalidRequest(
            f"run {continued.id} worked in workspace `{ref}`: continue it there", param="workspace.ref"
        )
    if asked is not None and asked.base not in (None, base):
        raise InvalidRequest(
            f"a run that continues {continued.id} starts from that run's base: leave `workspace.base` out",
            param="workspace.base",
        )
    subdir = earlier.subdir if earlier is not None else None
    if asked is not None and "subdir" in asked.model_fields_set:
        subdir = asked.subdir
    # The base was pinned by the earlier run, and is named by it.
    return WorkspaceRequest(ref=ref, subdir=subdir)
