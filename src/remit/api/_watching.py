"""Calls for whoever looks after a host: is it alive, is it ready, what has it counted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from itertools import accumulate

from starlette.responses import Response

import remit
from remit.api._operation import Answer, Call, Operation, Says, json_answer, plain_json
from remit.api._process import process_gauges
from remit.api._shapes import Health
from remit.work import BOUNDS_MS, Metrics


async def _alive(call: Call) -> Answer:
    return json_answer(Health(status="ok"))


async def _ready(call: Call) -> Answer:
    status = call.host.status
    ready = status == "ready"
    return json_answer(Health(status=status), 200 if ready else 503, None if ready else {"Retry-After": "5"})


async def _openapi(call: Call) -> Answer:
    # Made for whoever asks first, which takes a tenth of a second; it costs every host's start, else.
    return plain_json(await asyncio.to_thread(call.doors.openapi))


async def _metrics(call: Call) -> Answer:
    text = "\n".join(_lines(call)) + "\n"
    return Response(text, media_type="text/plain; version=0.0.4")


def _lines(call: Call) -> Iterator[str]:
    host, places = call.host, call.host.places
    info = {"version": remit.__version__, "epoch": host.epoch, "status": host.status}
    yield "# TYPE remit_info gauge"
    yield f"remit_info{_labels(info)} 1"
    gauges = {
        "remit_runs_running": places.running,
        "remit_runs_queued": places.queued,
        "remit_http_requests_open": call.doors.traffic.open["request"],
        "remit_streams_open": call.doors.traffic.open["stream"],
        **process_gauges(),
    }
    for name, value in gauges.items():
        yield f"# TYPE {name} gauge"
        yield f"{name} {value}"
    yield "# TYPE remit_residencies gauge"
    for label, count in sorted(host.residencies.items()):
        yield f"remit_residencies{_labels({'label': label})} {count}"
    for metrics in (host.metrics, call.doors.traffic.metrics):
        yield from metric_lines(metrics)


def metric_lines(metrics: Metrics) -> Iterator[str]:
    """Counters and histograms in Prometheus's text form; dots in a name become underscores."""
    told: set[str] = set()
    for counter in metrics.counters():
        name = _name(counter.name)
        if name not in told:
            yield f"# TYPE {name} counter"
            told.add(name)
        yield f"{name}{_labels(counter.labels)} {counter.value}"
    for histogram in metrics.histograms():
        name = _name(histogram.name)
        if name not in told:
            yield f"# TYPE {name} histogram"
            told.add(name)
        bounds = [*map(str, BOUNDS_MS), "+Inf"]
        for bound, count in zip(bounds, accumulate(histogram.buckets), strict=True):
            yield f"{name}_bucket{_labels({**histogram.labels, 'le': bound})} {count}"
        yield f"{name}_sum{_labels(histogram.labels)} {histogram.sum_ms}"
        yield f"{name}_count{_labels(histogram.labels)} {histogram.count}"


def _name(name: str) -> str:
    return name.replace(".", "_")


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = ",".join(f'{_name(name)}="{_escaped(value)}"' for name, value in sorted(labels.items()))
    return "{" + pairs + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


OPERATIONS = (
    Operation(
        id="healthz",
        method="GET",
        path="/healthz",
        summary="Whether the process answers.",
        handle=_alive,
        scope=None,
        says={200: Says(text="It does.", shape=Health)},
    ),
    Operation(
        id="readyz",
        method="GET",
        path="/readyz",
        summary="Whether the host takes work.",
        handle=_ready,
        scope=None,
        says={200: Says(text="It does.", shape=Health), 503: Says(text="Not now.", shape=Health)},
    ),
    Operation(
        id="openapi",
        method="GET",
        path="/openapi.json",
        summary="This description.",
        handle=_openapi,
        scope=None,
        says={200: Says(text="OpenAPI 3.1.", media_type="application/json")},
    ),
    Operation(
        id="metrics",
        method="GET",
        path="/metrics",
        summary="What the host has counted, over all tenants, for Prometheus.",
        handle=_metrics,
        scope="admin",
        says={200: Says(text="Prometheus's text form.", media_type="text/plain")},
    ),
)
