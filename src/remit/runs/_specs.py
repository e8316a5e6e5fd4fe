"""A request in the two parts of hosted execution, and back: which field goes where is told by the shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from remit.contract import RunRequest
from remit.errors import InvalidRequest, NotFound
from remit.runs._operations import SessionSpec, TurnSpec

_NOT_OF_A_REQUEST: Final = frozenset({"folder", "target"})


def split_request(request: RunRequest) -> tuple[SessionSpec, TurnSpec]:
    """Where and with whom, and what. What wasn't set stays so, since a fingerprint tells the two apart."""
    body = request.model_dump(mode="python", exclude_unset=True)
    session = {name: value for name, value in body.items() if name in SessionSpec.model_fields}
    turn = {name: value for name, value in body.items() if name in TurnSpec.model_fields}
    return SessionSpec.model_validate(session), TurnSpec.model_validate(turn)


def join_request(
    session: SessionSpec, turn: TurnSpec, *, find_workspace: Callable[[str], str | None]
) -> dict[str, Any]:
    """The body of the request that the two parts make; it is still to be checked.

    Args:
        session: Where and with whom.
        turn: What.
        find_workspace: The ref of the workspace with this root; None: there is none.

    Raises:
        InvalidRequest: A folder and a workspace, or a target and a model; or a target that doesn't agree
            with itself. `param` names it.
        NotFound: No workspace has this root.
    """
    body = session.model_dump(mode="python", exclude_unset=True, exclude=set(_NOT_OF_A_REQUEST))
    body |= turn.model_dump(mode="python", exclude_unset=True)
    if session.folder is not None:
        body["workspace"] = _workspace(session, find_workspace)
    if session.target is not None:
        body["model"] = _model(session)
    return body


def _workspace(session: SessionSpec, find_workspace: Callable[[str], str | None]) -> dict[str, Any]:
    if session.workspace is not None:
        raise InvalidRequest("give either `folder` or `workspace`", param="folder")
    ref = find_workspace(session.folder or "")
    if ref is None:
        raise NotFound(f"no workspace has the root `{session.folder}`", param="folder")
    return {"ref": ref}


def _model(session: SessionSpec) -> str:
    target = session.target
    if target is None or session.model is not None:
        raise InvalidRequest("give either `target` or `model`", param="target")
    if target.connection_id != target.connection_slug:
        raise InvalidRequest(
            f"connection `{target.connection_slug}` isn't `{target.connection_id}`",
            param="target.connection_id",
        )
    return f"{target.connection_slug}:{target.model}"
