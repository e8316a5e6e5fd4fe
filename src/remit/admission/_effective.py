"""What a binding becomes for one request: the overrides that it allows, and no others."""

from __future__ import annotations

from typing import Any

from remit.admission._bindings import STAGES_OF, Binding, Override, StageBinding
from remit.contract import DeliveryMode, RunRequest, StageKind
from remit.errors import InvalidRequest


def effective_binding(
    binding: Binding, request: RunRequest, *, door_delivery: DeliveryMode = "patch"
) -> Binding:
    """The binding that a run of this request is driven by. Pure: a run taken up again gets the same.

    Limits stay the binding's own (`resolve_limits` joins them with the request's).

    Args:
        binding: As it is configured.
        request: What was asked.
        door_delivery: What the door delivers when neither request nor binding says.

    Raises:
        InvalidRequest: The request sets what the binding doesn't allow, or what doesn't go together.
    """
    _check_overrides(binding, request)
    profile = request.profile or binding.profile
    workspace = _workspace(binding, request, profile)
    changes: dict[str, Any] = {
        "profile": profile,
        "workspace": workspace,
        "delivery": _delivery(binding, request, profile, door_delivery),
    }
    for kind in STAGES_OF[profile]:
        changes[kind] = _stage(binding, request, kind)
    if request.preserve is not None:
        changes["preserve"] = request.preserve
    _check_delivery(request, profile, changes["delivery"])
    return binding.model_copy(update=changes)


def asked_overrides(request: RunRequest, binding: Binding) -> set[Override]:
    """What a request sets beside its binding, whether or not that lets it. Models aren't among it."""
    asked: dict[Override, bool] = {
        "allow_protected": request.allow_protected,
        "base": request.workspace is not None and request.workspace.base is not None,
        "delivery": request.delivery is not None,
        "in_place": request.in_place,
        "instructions": request.instructions is not None,
        "options": any(stage.options for stage in request.stages.values()),
        "preserve": request.preserve is not None,
        "profile": request.profile is not None and request.profile != binding.profile,
        "unreviewed": request.unreviewed,
        "workspace": _names_other_workspace(binding, request),
    }
    return {override for override, is_asked in asked.items() if is_asked}


def _check_overrides(binding: Binding, request: RunRequest) -> None:
    for override in sorted(asked_overrides(request, binding)):
        if not binding.allows(override):
            param = {"base": "workspace.base", "options": "stages"}.get(override, override)
            raise InvalidRequest(f"binding `{binding.name}` doesn't let a request set `{param}`", param=param)


def _names_other_workspace(binding: Binding, request: RunRequest) -> bool:
    if request.workspace is None or binding.workspace is None:
        return False
    return request.workspace.ref != binding.workspace


def _workspace(binding: Binding, request: RunRequest, profile: str) -> str | None:
    if profile == "answer":
        if request.workspace is not None:
            raise InvalidRequest("profile `answer` has no workspace", param="workspace")
        return None
    ref = request.workspace.ref if request.workspace is not None else binding.workspace
    if ref is None:
        raise InvalidRequest(
            f"binding `{binding.name}` has no workspace: name one in `workspace.ref`", param="workspace"
        )
    return ref


def _delivery(
    binding: Binding, request: RunRequest, profile: str, door_delivery: DeliveryMode
) -> DeliveryMode:
    if request.delivery is not None:
        return request.delivery.mode
    if "delivery" in binding.model_fields_set:
        return binding.delivery
    # Nobody said: what wasn't reviewed stays a patch.
    return "patch" if profile == "direct" else door_delivery


def _check_delivery(request: RunRequest, profile: str, mode: DeliveryMode) -> None:
    if request.delivery is not None and profile == "answer":
        raise InvalidRequest("profile `answer` delivers nothing", param="delivery")
    if request.delivery is not None and request.in_place:
        raise InvalidRequest("a run in place works on the tree itself: it has no delivery", param="delivery")
    if request.in_place and profile == "answer":
        raise InvalidRequest("profile `answer` has no workspace to work in", param="in_place")
    if profile == "direct" and mode != "patch" and not (request.unreviewed or request.in_place):
        raise InvalidRequest(
            f"profile `direct` has no review: delivery `{mode}` needs `unreviewed` (`--unreviewed`), "
            "or take mode `patch` (`--patch-only`)",
            param="delivery",
        )


def _stage(binding: Binding, request: RunRequest, kind: StageKind) -> StageBinding:
    bound = binding.stage(kind)
    wish = request.stages.get(kind)
    model = (wish.model if wish is not None else None) or request.model
    options = {**bound.options, **wish.options} if wish is not None else bound.options
    if model is None:
        return bound.model_copy(update={"options": options})
    if not binding.allows_model(model):
        param = "model" if wish is None or wish.model is None else f"stages.{kind}.model"
        raise InvalidRequest(f"binding `{binding.name}` doesn't let a request use `{model}`", param=param)
    return StageBinding(model=model, options=options)
