"""From what was typed to the request that a host admits."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

import click

from remit.cli._place import Place
from remit.cli._run import RunOptions
from remit.config import Config, default_bindings
from remit.contract import RunRequest
from remit.requests import check_branch_name, parse_duration_ms


def build_request(options: RunOptions, prompt: str, place: Place) -> RunRequest:
    """The request.

    Raises:
        click.UsageError: Options that don't go together.
        InvalidRequest: An option's value is wrong.
    """
    body: dict[str, Any] = {
        "prompt": prompt,
        "binding": options.binding,
        "model": options.model,
        "profile": options.profile,
        "preserve": options.preserve,
        "in_place": options.in_place,
        "unreviewed": options.unreviewed,
        "allow_protected": options.allow_protected,
        "workspace": _workspace(options, place),
        "delivery": delivery_of(options),
        "continues": options.continues,
        "session_id": options.session_id,
        "stages": stages_of(options),
        "limits": limits_of(options),
    }
    return RunRequest.model_validate(
        {key: value for key, value in body.items() if value not in (None, {}, False)}
    )


def _workspace(options: RunOptions, place: Place) -> dict[str, str] | None:
    binding = place.config.bindings.get(options.binding or place.config.default_binding or "")
    profile = options.profile or (binding.profile if binding is not None else None)
    if profile == "answer" and options.workspace is None and options.base is None:
        return None  # a plain answer has none; one that was typed is refused by name
    asked: dict[str, str] = {"ref": place.workspace.ref}
    if options.base is not None:
        asked["base"] = options.base
    if place.subdir is not None:
        asked["subdir"] = place.subdir
    return asked


def delivery_of(options: RunOptions) -> str | dict[str, str] | None:
    """The delivery that was typed; None: none was.

    Raises:
        click.UsageError: Two were.
        InvalidRequest: The branch's name can't be one.
    """
    if options.apply + options.patch_only + (options.branch is not None) > 1:
        raise click.UsageError("--apply, --branch and --patch-only exclude each other")
    typed = options.apply or options.patch_only or options.branch is not None or options.base is not None
    if options.in_place and typed:
        raise click.UsageError(
            "--in-place works on your files as they are: no --apply, --branch, --patch-only or --base"
        )
    if options.branch is not None:
        return {"mode": "branch", "branch": check_branch_name(options.branch, param="branch")}
    if options.patch_only:
        return "patch"
    return "apply" if options.apply else None


def stages_of(options: RunOptions) -> dict[str, Any]:
    """The models that were typed for single stages."""
    named = {"plan": options.plan_model, "work": options.work_model, "review": options.review_model}
    return {stage: {"model": model} for stage, model in named.items() if model is not None}


def limits_of(options: RunOptions) -> dict[str, Any]:
    """The limits that were typed.

    Raises:
        click.UsageError, InvalidRequest: They can't be.
    """
    return limits_from(max_cost=options.max_cost, timeout=options.timeout)


def limits_from(*, max_cost: str | None, timeout: str | None) -> dict[str, Any]:
    """The limits that an amount and a length of time mean.

    Raises:
        click.UsageError, InvalidRequest: They can't be.
    """
    limits: dict[str, Any] = {}
    if max_cost is not None:
        limits["max_cost_usd"] = _money(max_cost)
    if timeout is not None:
        limits["wall_clock_ms"] = parse_duration_ms(timeout)
    return limits


def _money(text: str) -> Decimal:
    try:
        amount = Decimal(text.strip().removeprefix("$"))
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or amount <= 0:
        raise click.UsageError(f"--max-cost {text}: give an amount of US dollars above 0, such as 2.50")
    return amount


def with_wider_cap(config: Config, request: RunRequest) -> Config:
    """The settings with the default cap out of the way of a cap that was typed.

    The 5 USD of a run without config hold when nobody says anything. A cap of the user's own files stays:
    of two statements the narrower one holds.
    """
    if request.limits.max_cost_usd is None:
        return config
    defaults = default_bindings()
    ours = {
        name: binding.model_copy(update={"limits": request.limits})
        if name in defaults and binding.limits == defaults[name].limits
        else binding
        for name, binding in config.bindings.items()
    }
    return replace(config, bindings=ours)
