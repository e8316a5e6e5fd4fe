"""Calls on sessions, and on what is configured: bindings, pools, workspaces, nodes, keys, the host."""

from __future__ import annotations

from pydantic import Field

import remit
from remit.admission import STAGES_OF, Binding
from remit.api._operation import Answer, Call, Operation, Says, json_answer
from remit.api._runs import MAX_PAGE
from remit.api._shapes import (
    BindingPage,
    BindingView,
    HostView,
    KeyPage,
    KeyView,
    MemberView,
    NodePage,
    NodeView,
    PoolPage,
    PoolView,
    SessionPage,
    SessionView,
    StageView,
    WorkspacePage,
    WorkspaceView,
)
from remit.contract import Model, StageKind
from remit.errors import NotFound
from remit.primitives import clean_text, usd_from_micros
from remit.runs import SessionRow


class NodesQuery(Model):
    """How closely."""

    calls: bool = False
    """Which tool calls have processes now, and which; each node is asked."""


class SessionsQuery(Model):
    """Which page."""

    cursor: str | None = None
    limit: int = Field(default=50, ge=1, le=MAX_PAGE)


async def _sessions(call: Call) -> Answer:
    query = call.query
    assert isinstance(query, SessionsQuery), "as the table says"
    rows, cursor = await call.host.store.list_sessions(
        tenant=call.tenant, after=query.cursor, limit=query.limit
    )
    return json_answer(SessionPage(data=tuple(map(_session, rows)), next_cursor=cursor))


async def _read_session(call: Call) -> Answer:
    row = await call.host.store.find_session(call.path["id"], tenant=call.tenant)
    if row is None:
        raise NotFound(f"no session `{clean_text(call.path['id'])[0][:128]}`", param="id")
    return json_answer(_session(row))


def _session(row: SessionRow) -> SessionView:
    return SessionView(
        id=row.id,
        runs=row.runs,
        active_runs=row.active_runs,
        created_at=row.created_at,
        last_run_at=row.last_run_at,
        last_run_id=row.last_run_id,
    )


async def _bindings(call: Call) -> Answer:
    seen = [one for name, one in sorted(call.host.bindings.items()) if call.identity.sees_binding(name)]
    return json_answer(BindingPage(data=tuple(map(_binding, seen))))


def _binding(binding: Binding) -> BindingView:
    stages: dict[StageKind, StageView] = {}
    for kind in STAGES_OF[binding.profile]:
        stage = binding.stage(kind)
        stages[kind] = StageView(pool=None if stage.model else stage.pool or "default", model=stage.model)
    return BindingView(
        name=binding.name,
        profile=binding.profile,
        workspace=binding.workspace,
        delivery=binding.delivery,
        stages=stages,
        limits=binding.limits,
        require_evidence=binding.require_evidence,
        allow_models=binding.allow_models,
        allow_override=tuple(binding.allow_override),
    )


async def _pools(call: Call) -> Answer:
    pools = tuple(
        PoolView(
            name=name,
            members=tuple(
                MemberView(
                    model=member.model,
                    order=member.order,
                    weight=member.weight,
                    max_concurrency=member.max_concurrency,
                )
                for member in pool.members
            ),
        )
        for name, pool in sorted(call.host.pools.items())
    )
    return json_answer(PoolPage(data=pools))


async def _workspaces(call: Call) -> Answer:
    data = tuple(
        WorkspaceView(
            ref=ref,
            node_id="local",
            operations=tuple(one.operations),
            shell=one.shell,
            network=one.network_allowed,
            isolation=one.isolation,
            sandbox=one.sandbox,
            checks=one.checks,
            gate=one.gate,
        )
        for ref, one in sorted(call.host.workspaces.items())
    )
    return json_answer(WorkspacePage(data=data))


async def _nodes(call: Call) -> Answer:
    query = call.query
    assert isinstance(query, NodesQuery), "as the table says"
    may_see_all = "admin" in call.identity.key.scopes
    running = await call.host.running_calls(tenant=call.tenant) if query.calls else None
    calls = None if running is None else [{"work_id": id_, "pids": pids} for id_, pids in running.items()]
    data = tuple(
        NodeView.model_validate(
            {
                "id": node.id,
                "alias": node.alias,
                "connected": node.connected,
                "state": node.state,
                "pid": node.pid if may_see_all else None,
                "sandbox": node.sandbox,
                "isolation": node.isolation,
                "workspaces": node.workspaces,
                "calls": calls,
            }
        )
        for node in call.host.nodes()
    )
    return json_answer(NodePage(data=data))


async def _keys(call: Call) -> Answer:
    store, tenant = call.host.store, call.tenant
    spent = await store.read_spent(tenant=tenant)
    data = [
        KeyView(**dict(key), spent_usd=usd_from_micros(spent.get(key.id, 0)))
        for key in await store.list_keys(tenant=tenant)
    ]
    return json_answer(KeyPage(data=tuple(data)))


async def _host(call: Call) -> Answer:
    host, places = call.host, call.host.places
    may_see_all = "admin" in call.identity.key.scopes
    return json_answer(
        HostView.model_validate(
            {
                "epoch": host.epoch,
                "status": host.status,
                "version": remit.__version__,
                "residencies": dict(host.residencies) if may_see_all else {},
                "running": places.running,
                "queued": places.queued,
                "max_running": places.max_running,
                "max_queued": places.max_queued,
            }
        )
    )


OPERATIONS = (
    Operation(
        id="list_sessions",
        method="GET",
        path="/api/v1/sessions",
        summary="The tenant's sessions, the one with the newest run first.",
        handle=_sessions,
        scope="read",
        query=SessionsQuery,
        says={200: Says(text="A page.", shape=SessionPage)},
    ),
    Operation(
        id="read_session",
        method="GET",
        path="/api/v1/sessions/{id}",
        summary="A session.",
        handle=_read_session,
        scope="read",
        names="session",
        says={200: Says(text="The session.", shape=SessionView)},
    ),
    Operation(
        id="list_bindings",
        method="GET",
        path="/api/v1/bindings",
        summary="The bindings that the key may use.",
        handle=_bindings,
        scope="read",
        says={200: Says(text="By name.", shape=BindingPage)},
    ),
    Operation(
        id="list_pools",
        method="GET",
        path="/api/v1/pools",
        summary="Pools of models.",
        handle=_pools,
        scope="read",
        says={200: Says(text="By name.", shape=PoolPage)},
    ),
    Operation(
        id="list_workspaces",
        method="GET",
        path="/api/v1/workspaces",
        summary="Workspaces.",
        handle=_workspaces,
        scope="read",
        says={200: Says(text="By ref.", shape=WorkspacePage)},
    ),
    Operation(
        id="list_nodes",
        method="GET",
        path="/api/v1/nodes",
        summary="The nodes that the host knows; `?calls=1` with the processes of tool calls.",
        handle=_nodes,
        scope="read",
        query=NodesQuery,
        says={200: Says(text="The nodes.", shape=NodePage)},
    ),
    Operation(
        id="list_keys",
        method="GET",
        path="/api/v1/keys",
        summary="The tenant's keys, without their secrets.",
        handle=_keys,
        scope="admin",
        says={200: Says(text="The keys.", shape=KeyPage)},
    ),
    Operation(
        id="read_host",
        method="GET",
        path="/api/v1/host",
        summary="How the host stands.",
        handle=_host,
        scope="read",
        says={200: Says(text="The host.", shape=HostView)},
    ),
)
