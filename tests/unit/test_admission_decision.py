"""May it run, now."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from remit.admission import (
    ALL_OVERRIDES,
    Admitted,
    Binding,
    Caller,
    Decision,
    Deferred,
    Rejected,
    SessionFacts,
    StageBinding,
    decide,
    effective_binding,
)
from remit.contract import (
    DeliveryMode,
    LimitRequest,
    Limits,
    RunStatus,
    RunView,
    RunWorkspace,
    WorkspaceRequest,
)
from remit.errors import (
    ConfigError,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    PriceUnknown,
    RequestError,
    SessionBusy,
)
from remit.requests import fingerprint, parse_request

NOW = datetime(2026, 11, 30, tzinfo=UTC)


class Models:
    """One pool with a priced model, one with an unpriced one besides."""

    def models_of(self, pool: str) -> tuple[str, ...] | None:
        pools = {"default": ("openai:gpt-5.2",), "mixed": ("openai:gpt-5.2", "mine:unpriced")}
        return pools.get(pool)

    def refusal(self, model: str) -> RequestError | None:
        known = model.partition(":")[0] in {"openai", "mine"}
        return None if known else ConfigError(f"`{model}` isn't configured", param="model")

    def takes_images(self, model: str, *, pool: str | None) -> bool:
        return not model.startswith("blind")

    def is_priced(self, model: str) -> bool:
        return model != "mine:unpriced"


REVIEWED = Binding(name="reviewed", workspace="app")
DIRECT = Binding(name="direct", workspace="app", profile="direct", allow_override=ALL_OVERRIDES)
ANSWER = Binding(name="title", profile="answer")
OPEN = Binding(name="open", allow_models=("openai:*", "mine:*"), allow_override=ALL_OVERRIDES)
BINDINGS = {binding.name: binding for binding in (REVIEWED, DIRECT, ANSWER, OPEN)}


def _decide(
    body: Mapping[str, Any],
    *,
    bindings: Mapping[str, Binding] = BINDINGS,
    caller: Caller | None = None,
    facts: SessionFacts | None = None,
    default_binding: str | None = "reviewed",
    door_delivery: DeliveryMode = "patch",
    host_limits: LimitRequest | None = None,
) -> Decision:
    return decide(
        parse_request({"prompt": "fix it", **body}),
        bindings,
        catalog=Models(),
        run_id="run_new",
        now=NOW,
        caller=caller,
        facts=facts,
        default_binding=default_binding,
        door_delivery=door_delivery,
        host_limits=host_limits,
    )


def _admitted(body: Mapping[str, Any], **more: Any) -> Admitted:
    decision = _decide(body, **more)
    assert isinstance(decision, Admitted), decision
    return decision


def _rejected(body: Mapping[str, Any], **more: Any) -> RequestError:
    decision = _decide(body, **more)
    assert isinstance(decision, Rejected), decision
    return decision.error


def _ended(**changes: Any) -> RunView:
    run = _admitted({}).run
    return run.model_copy(
        update={"id": "run_old", "session_id": "thread", "status": RunStatus.FAILED, **changes}
    )


# ---- what is admitted


def test_admitted_run_is_queued_with_its_limits() -> None:
    """S2, S4: binding, profile, workspace, narrowest limits, metadata; its session is its own id."""
    admitted = _admitted({"limits": {"max_tool_rounds": 3}, "metadata": {"a": 1}})
    run = admitted.run
    assert (run.id, run.session_id, run.root_run_id) == ("run_new", "run_new", "run_new")
    assert (run.binding, run.profile, run.status) == ("reviewed", "reviewed", RunStatus.QUEUED)
    assert run.workspace is not None
    assert run.workspace.ref == "app"
    assert run.limits == Limits(max_tool_rounds=3)
    assert run.metadata == {"a": 1}
    assert run.created_at == NOW
    assert run.started_at is run.terminal is run.usage is None
    assert admitted.text_replaced == 0
    assert len(admitted.fingerprint) == 64


def test_callers_own_ids_are_kept() -> None:
    """The run's id and its session's are the caller's where it gave some."""
    run = _admitted({"id": "mine", "session_id": "thread"}).run
    assert (run.id, run.session_id, run.root_run_id) == ("mine", "thread", "mine")


def test_limits_of_binding_key_and_request_meet() -> None:
    """The narrowest of the three, and nothing widens what the host allows."""
    binding = REVIEWED.model_copy(
        update={"limits": LimitRequest(max_cost_usd=Decimal(5), max_tool_rounds=50)}
    )
    caller = Caller(limits=LimitRequest(max_cost_usd=Decimal(2)))
    run = _admitted(
        {"limits": {"max_cost_usd": 3, "wall_clock_ms": 10**10}},
        bindings={"reviewed": binding},
        caller=caller,
        host_limits=LimitRequest(wall_clock_ms=1_000),
    ).run
    assert (run.limits.max_cost_usd, run.limits.max_tool_rounds) == (Decimal(2), 50)
    assert run.limits.wall_clock_ms == 1_000


def test_answer_profile_has_no_workspace() -> None:
    """One plain provider call: workspace null."""
    run = _admitted({"binding": "title"}).run
    assert run.profile == "answer"
    assert run.workspace is None


# ---- which binding


def test_binding_is_the_one_named_else_the_default_else_the_only_one() -> None:
    """Without any of these the caller must name one."""
    assert _admitted({"binding": "direct"}).binding.name == "direct"
    assert _admitted({}).binding.name == "reviewed"
    only = {"direct": DIRECT}
    assert _admitted({}, bindings=only, default_binding=None).binding.name == "direct"
    error = _rejected({}, default_binding=None)
    assert isinstance(error, InvalidRequest)
    assert error.fields["param"] == "binding"


def test_binding_of_others_is_unknown() -> None:
    """R78: what a key doesn't name answers exactly as what doesn't exist."""
    caller = Caller(bindings=frozenset({"reviewed"}))
    hidden = _rejected({"binding": "direct"}, caller=caller)
    unknown = _rejected({"binding": "nothing"}, caller=caller)
    assert isinstance(hidden, NotFound)
    assert isinstance(unknown, NotFound)
    assert hidden.message.replace("direct", "nothing") == unknown.message


# ---- overrides


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"workspace": {"ref": "other"}}, "workspace"),
        ({"in_place": True}, "in_place"),
        ({"unreviewed": True}, "unreviewed"),
        ({"allow_protected": True}, "allow_protected"),
        ({"model": "openai:gpt-5.2"}, "model"),
        ({"stages": {"plan": {"model": "openai:gpt-5.2"}}}, "stages.plan.model"),
    ],
    ids=str,
)
def test_request_sets_only_what_its_binding_allows(body: dict[str, Any], param: str) -> None:
    """What would leave the workspace or weaken a promise must be allowed by the binding."""
    error = _rejected(body)
    assert isinstance(error, InvalidRequest)
    assert error.fields["param"] == param
    assert _admitted({"binding": "open", "workspace": {"ref": "w"}, **body})


def test_binding_may_allow_less_than_usual() -> None:
    """An empty list lets a request set its text and narrower limits only."""
    closed = {"reviewed": REVIEWED.model_copy(update={"allow_override": ()})}
    asked: list[tuple[dict[str, Any], str]] = [
        ({"profile": "direct"}, "profile"),
        ({"delivery": "patch"}, "delivery"),
        ({"workspace": {"ref": "app", "base": "head"}}, "workspace.base"),
        ({"stages": {"work": {"options": {"temperature": 1}}}}, "stages"),
        ({"preserve": "always"}, "preserve"),
        ({"instructions": "be brief"}, "instructions"),
    ]
    for body, param in asked:
        error = _rejected(body, bindings=closed)
        assert error.fields["param"] == param
    assert _admitted({"profile": "reviewed", "workspace": {"ref": "app"}}, bindings=closed)


def test_request_model_serves_every_stage_that_names_none() -> None:
    """S5: options of binding and request meet, stage by stage, and reach that stage alone."""
    binding = OPEN.model_copy(
        update={
            "workspace": "app",
            "plan": StageBinding(pool="mixed", options={"reasoning_effort": "high", "top_p": 1}),
        }
    )
    admitted = _admitted(
        {
            "binding": "open",
            "model": "openai:gpt-5.2",
            "stages": {
                "plan": {"options": {"top_p": 0.5}},
                "review": {"model": "mine:m", "options": {"temperature": 0}},
            },
        },
        bindings={"open": binding},
    )
    bound = admitted.binding
    assert bound.plan == StageBinding(
        model="openai:gpt-5.2", options={"reasoning_effort": "high", "top_p": 0.5}
    )
    assert bound.work == StageBinding(model="openai:gpt-5.2")
    assert bound.review == StageBinding(model="mine:m", options={"temperature": 0})


def test_binding_can_be_built_from_another() -> None:
    """S3: stages and limits are reused, only the workspace differs."""
    first = Binding(name="a", workspace="app", work=StageBinding(options={"temperature": 0.1}))
    second = first.model_copy(update={"name": "b", "workspace": "lib"})
    both = {"a": first, "b": second}
    one, other = _admitted({"binding": "a"}, bindings=both), _admitted({"binding": "b"}, bindings=both)
    assert one.binding.work == other.binding.work
    assert one.run.workspace != other.run.workspace


def test_effective_binding_is_the_same_when_it_is_made_again() -> None:
    """A run that is taken up again is driven by what it was admitted with."""
    request = parse_request({"prompt": "x", "profile": "direct", "preserve": "always"}).request
    first = effective_binding(REVIEWED, request, door_delivery="apply")
    assert effective_binding(REVIEWED, request, door_delivery="apply") == first
    assert (first.profile, first.preserve, first.delivery) == ("direct", "always", "patch")
    assert first.limits == REVIEWED.limits


# ---- workspace, models, prices


def test_workspace_must_be_named_somewhere() -> None:
    """By binding or request; an answer has none to name."""
    assert _rejected({"binding": "open"}).fields["param"] == "workspace"
    assert _rejected({"binding": "title", "workspace": {"ref": "app"}}).fields["param"] == "workspace"


@pytest.mark.parametrize("model", ["nobody:m", "gpt-5.2", "openai"])
def test_model_without_a_configured_provider_is_refused(model: str) -> None:
    """S2: at admission, with the name."""
    binding = Binding(name="b", workspace="app", allow_models=("*",))
    known = _decide({"model": model}, bindings={"b": binding}, default_binding="b")
    if model == "openai":
        assert isinstance(known, Admitted)
        return
    assert isinstance(known, Rejected)
    assert model in known.error.message


def test_pool_that_is_not_configured_is_refused() -> None:
    """S2: a binding can be wrong, and says so."""
    binding = REVIEWED.model_copy(update={"review": StageBinding(pool="missing")})
    assert "missing" in _rejected({}, bindings={"reviewed": binding}).message


def test_money_cap_needs_a_price_for_every_model() -> None:
    """R23: refused up front, as `price_unknown`; a token cap will do instead."""
    mixed = {"reviewed": REVIEWED.model_copy(update={"review": StageBinding(pool="mixed")})}
    error = _rejected({"limits": {"max_cost_usd": 1}}, bindings=mixed)
    assert isinstance(error, PriceUnknown)
    assert (error.code, error.status, error.exit_code) == ("price_unknown", 422, 2)
    assert "price" in error.message
    assert error.fields["model"] == "mine:unpriced"
    assert _admitted({}, bindings=mixed)
    assert _admitted({"limits": {"max_cost_usd": 1, "max_total_tokens": 1_000}}, bindings=mixed)
    assert _admitted({"limits": {"max_cost_usd": 1}})


def test_cap_of_a_key_needs_prices_whatever_caps_tokens() -> None:
    """R23: the caller can't put a cap of one run's tokens in the place of what the key may spend."""
    mixed = {"reviewed": REVIEWED.model_copy(update={"review": StageBinding(pool="mixed")})}
    caller = Caller(key_id="key_1", limits=LimitRequest(max_cost_usd=Decimal(1)))
    error = _rejected({"limits": {"max_total_tokens": 1_000}}, bindings=mixed, caller=caller)
    assert isinstance(error, PriceUnknown)
    assert "of the key" in error.message
    assert "max_total_tokens" not in error.message


def test_price_of_a_stage_that_does_not_run_is_not_asked_for() -> None:
    """R23: profile direct never asks the reviewer."""
    binding = DIRECT.model_copy(update={"review": StageBinding(pool="mixed")})
    assert _admitted({"binding": "direct", "limits": {"max_cost_usd": 1}}, bindings={"direct": binding})


# ---- delivery


def test_delivery_is_the_requests_the_bindings_or_the_doors() -> None:
    """In this order."""
    assert _admitted({}).binding.delivery == "patch"
    assert _admitted({}, door_delivery="apply").binding.delivery == "apply"
    stated = {"reviewed": Binding(name="reviewed", workspace="app", delivery="patch")}
    assert _admitted({}, bindings=stated, door_delivery="apply").binding.delivery == "patch"
    assert _admitted({"delivery": "apply"}, bindings=stated).binding.delivery == "apply"


def test_unreviewed_work_is_not_applied_without_leave() -> None:
    """Promise 4: profile direct defaults to a patch, and applying it needs `unreviewed`."""
    assert _admitted({"binding": "direct"}, door_delivery="apply").binding.delivery == "patch"
    error = _rejected({"binding": "direct", "delivery": "apply"})
    assert error.status == 422
    assert "unreviewed" in error.message
    assert _rejected({"binding": "direct", "delivery": {"mode": "branch", "branch": "x"}})
    assert (
        _admitted({"binding": "direct", "delivery": "apply", "unreviewed": True}).binding.delivery == "apply"
    )
    applying = {"direct": Binding(name="direct", workspace="app", profile="direct", delivery="apply")}
    assert _rejected({"binding": "direct"}, bindings=applying).fields["param"] == "delivery"


def test_what_has_no_delivery_takes_none() -> None:
    """A run in place works on the tree itself; an answer changes nothing."""
    here = {"workspace": {"ref": "w"}}
    assert _rejected({"binding": "open", "in_place": True, "delivery": "patch", **here})
    assert _rejected({"binding": "title", "delivery": "patch"})
    run = _admitted({"binding": "open", "in_place": True, **here}).run
    assert run.workspace is not None
    assert run.workspace.isolation == "in_place"


# ---- sessions


def test_busy_session_is_deferred_unless_told_otherwise() -> None:
    """One active root run per session: reject (try later), enqueue behind it, or interrupt it."""
    facts = SessionFacts(active_run_id="run_busy")
    for body in ({"session_id": "thread"}, {"session_id": "thread", "on_busy": "reject"}):
        decision = _decide(body, facts=facts)
        assert isinstance(decision, Deferred)
        assert isinstance(decision.error, SessionBusy)
        assert (decision.error.retryable, decision.error.exit_code) == (True, 75)
    behind = _admitted({"session_id": "thread", "on_busy": "enqueue"}, facts=facts)
    assert (behind.waits_for, behind.interrupts) == ("run_busy", None)
    instead = _admitted({"session_id": "thread", "on_busy": "interrupt"}, facts=facts)
    assert (instead.waits_for, instead.interrupts) == (None, "run_busy")
    free = _admitted({"session_id": "thread", "on_busy": "interrupt"})
    assert (free.waits_for, free.interrupts) == (None, None)


def test_continuing_run_joins_the_session_of_the_one_it_continues() -> None:
    """`continues` carries session and checkout of an ended run of the same tenant."""
    facts = SessionFacts(continued=_ended())
    run = _admitted({"continues": "run_old"}, facts=facts).run
    assert (run.session_id, run.continues) == ("thread", "run_old")
    assert _admitted({"continues": "run_old", "session_id": "thread"}, facts=facts)
    assert isinstance(_rejected({"continues": "run_old"}), NotFound)
    running = SessionFacts(continued=_ended(status=RunStatus.WORKING))
    assert isinstance(_rejected({"continues": "run_old"}, facts=running), PreconditionFailed)
    assert isinstance(_rejected({"continues": "run_old", "session_id": "other"}, facts=facts), InvalidRequest)


def test_continuing_run_works_where_the_earlier_one_did() -> None:
    """Workspace and working folder default to the earlier run's; its base is that run's in any case."""
    earlier = WorkspaceRequest(ref="elsewhere", base="head", subdir="sub")
    ended = _ended(workspace=RunWorkspace(ref="elsewhere"))
    facts = SessionFacts(continued=ended, continued_workspace=earlier)
    body = {"continues": "run_old", "binding": "open"}
    admitted = _admitted(body, facts=facts)
    assert admitted.request.workspace == WorkspaceRequest(ref="elsewhere", subdir="sub")
    assert admitted.run.workspace == RunWorkspace(ref="elsewhere")
    assert admitted.binding.workspace == "elsewhere"
    assert admitted.fingerprint == fingerprint(parse_request({"prompt": "fix it", **body}).request)
    subdirs: list[tuple[dict[str, Any], str | None]] = [
        ({}, "sub"),
        ({"subdir": "other"}, "other"),
        ({"subdir": None}, None),
        ({"base": "head"}, "sub"),
    ]
    for asked, subdir in subdirs:
        request = _admitted(body | {"workspace": {"ref": "elsewhere", **asked}}, facts=facts).request
        assert request.workspace == WorkspaceRequest(ref="elsewhere", subdir=subdir)
    refused = {
        "workspace.ref": {"workspace": {"ref": "app"}},
        "workspace.base": {"workspace": {"ref": "elsewhere", "base": "worktree"}},
        "workspace": {"binding": "reviewed"},
    }
    for param, asked in refused.items():
        error = _rejected(body | asked, facts=facts)
        assert (type(error), error.fields["param"]) == (InvalidRequest, param)
    without = SessionFacts(continued=_ended(workspace=None))
    assert _rejected(body, facts=without).fields["param"] == "continues"
