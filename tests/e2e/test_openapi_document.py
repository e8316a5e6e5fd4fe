"""The description of the API against a host that answers: each answer and each body, schema by schema."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from jsonschema import Draft202012Validator

from door_kit import REVIEWED, SLEEP, WRITE, DoorWorld, slowly
from remit.api._app import OPERATIONS
from remit.api._openapi import openapi_of

PLAN, LOOK, WORK, REVIEW = REVIEWED
REPLIES = (PLAN, WRITE, WORK, REVIEW) * 3
RUNS = "/api/v1/runs"
LATER = {"cancel_work", "input_run", "acknowledge_run", "deliver_run", "discard_run"}
"""Calls that succeed only while a run goes on, or once it has left a patch."""
UNKNOWN = "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.fixture
def world(tmp_path: Path) -> DoorWorld:
    """A host whose model passes what it did."""
    return DoorWorld(home=tmp_path, replies=REPLIES)


@dataclass(slots=True)
class Document:
    """The description, and which of its answers were seen."""

    told: dict[str, Any]
    seen: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])

    def operation(self, method: str, path: str) -> dict[str, Any]:
        """What is described under a path that was asked."""
        for template, methods in self.told["paths"].items():
            pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
            if method.lower() in methods and re.fullmatch(pattern, path):
                return methods[method.lower()]
        raise AssertionError(f"{method} {path} isn't described")

    def check(self, schema: Mapping[str, Any], value: Any) -> list[str]:
        """What is wrong with a value."""
        whole = {**schema, "components": self.told["components"]}
        validator: Any = Draft202012Validator(whole)
        return [
            f"{list(error.absolute_path)}: {error.message[:200]}" for error in validator.iter_errors(value)
        ]

    async def hold(self, answer: httpx2.Response) -> None:
        """A hook of the client: an answer is what the description says for its status."""
        await answer.aread()
        request = answer.request
        operation = self.operation(request.method, request.url.path)
        where = f"{request.method} {request.url} -> {answer.status_code}"
        says = operation["responses"].get(str(answer.status_code))
        assert says is not None, f"{where} isn't described: {answer.text[:300]}"
        self.seen.add((operation["operationId"], answer.status_code))
        if "content" not in says:
            assert answer.content == b"", where
            return
        kind = answer.headers["content-type"].partition(";")[0]
        assert kind in says["content"], f"{where} is {kind}"
        schema = says["content"][kind]["schema"]
        value = answer.json() if kind.endswith("json") else answer.text
        assert self.check(schema, value) == [], where


def document() -> Document:
    """As it is served."""
    return Document(json.loads(json.dumps(openapi_of(OPERATIONS))))


def nodes_of(value: Any, path: str = "#") -> Iterator[tuple[str, Any]]:
    """Every part of a document with its place."""
    yield path, value
    if isinstance(value, dict):
        for name, part in cast("dict[str, Any]", value).items():
            yield from nodes_of(part, f"{path}/{name}")
    elif isinstance(value, list):
        for number, part in enumerate(cast("list[Any]", value)):
            yield from nodes_of(part, f"{path}/{number}")


def test_document_is_whole() -> None:
    """No name leads nowhere, no schema says nothing, each call has an id, its errors and its key."""
    told = document().told
    for path, part in nodes_of(told):
        if isinstance(part, dict) and isinstance(part.get("$ref"), str):
            *_, name = part["$ref"].split("/")
            assert part["$ref"] == f"#/components/schemas/{name}", path
            assert name in told["components"]["schemas"], path
    for path, schema in nodes_of(told["components"]["schemas"]):
        assert schema != {}, f"{path} says nothing"
        Draft202012Validator.check_schema(schema) if path.count("/") == 1 else None
    titles = [one["title"] for one in told["components"]["schemas"].values() if "title" in one]
    assert len(titles) == len(set(titles)), "a generated client would lack one of the two"
    names: list[str] = []
    for path, methods in told["paths"].items():
        for operation in methods.values():
            names.append(operation["operationId"])
            assert re.fullmatch(r"[a-z]+(_[a-z]+)*", names[-1])
            assert operation["summary"], path
            in_path = [one["name"] for one in operation["parameters"] if one["in"] == "path"]
            assert in_path == re.findall(r"\{(\w+)\}", path)
            keyed = operation["security"] == [{"key": []}]
            assert keyed == path.startswith("/api/") or path == "/metrics", path
            assert ("401" in operation["responses"]) is keyed, path
            for status, says in operation["responses"].items():
                if int(status) >= 400:
                    own = operation["operationId"] == "readyz" and status == "503"
                    kind = "application/json" if own else "application/problem+json"
                    assert list(says["content"]) == [kind], f"{path} {status}"
    assert len(names) == len(set(names)) == len(OPERATIONS)


def test_a_text_of_a_run_s_may_be_any_json() -> None:
    """What a run stored as JSON is told as it was stored, a list as well; every other type is text."""
    content = document().operation("GET", f"{RUNS}/run_1/artifacts/plan")["responses"]["200"]["content"]
    assert set(content) == {"text/plain", "text/x-diff", "text/markdown", "application/json"}
    json_schema = content.pop("application/json")["schema"]
    assert "type" not in json_schema
    assert [one["schema"] for one in content.values()] == [{"type": "string"}] * 3


async def test_answers_are_what_the_document_says(world: DoorWorld) -> None:
    """Each call's success and its usual errors validate against the schema for their status and type."""
    told = document()
    async with world.open() as door:
        async with door.client(event_hooks={"response": [told.hold]}) as client:
            asked = {"binding": "reviewed", "prompt": "Mend it.", "session_id": "thread-1"}
            headers = {"Idempotency-Key": "k-1"}
            first = await client.post(RUNS, json=asked, headers=headers, params={"wait_ms": 30_000})
            run = first.json()["id"]
            await client.post(RUNS, json=asked, headers=headers)
            await client.post(RUNS, json={**asked, "prompt": "Other."}, headers=headers)
            await client.post(RUNS, json={**asked, "binding": "none"})
            await client.post(RUNS, json=asked, params={"dry_run": 1})
            await client.post(RUNS, content=b"{", headers={"Content-Type": "application/json"})
            await client.post(RUNS, content=b"x", headers={"Content-Type": "text/plain"})
            for operation in OPERATIONS:
                if operation.method == "GET":
                    path = operation.path.replace("{name:path}", "plan").replace("{name}", "plan")
                    thread = "thread-1" if "sessions" in path else run
                    accept = {"Accept": "application/json"}
                    await client.get(path.replace("{id}", thread), headers=accept)
                    await client.get(path.replace("{id}", UNKNOWN), headers=accept, params={"none": "1"})
                    if "{id}" in path:
                        await client.get(path.replace("{id}", UNKNOWN), headers=accept)
            names = (await client.get(f"{RUNS}/{run}/artifacts")).json()["data"]
            await client.get(f"{RUNS}/{run}/artifacts/{names[0]['name']}")
            await client.get(f"{RUNS}/{run}/events")
            last = (await client.get(f"{RUNS}/{run}/history")).json()
            assert last["data"] is not None
            for call, body in (
                ("cancel", {}),
                ("acknowledge", {"accepted": True}),
                ("input", {"text": "More."}),
                ("deliver", {"mode": "patch"}),
                ("discard", {}),
            ):
                for target in (run, UNKNOWN):
                    await client.post(f"{RUNS}/{target}/{call}", json=body)
                await client.post(f"{RUNS}/{run}/{call}", json={"none": 1})
            await client.post(f"/api/v1/work/{run}/cancel", json={})
            await client.post(f"/api/v1/work/{UNKNOWN}/cancel", json={})
        async with door.client("", event_hooks={"response": [told.hold]}) as client:
            for operation in OPERATIONS:
                path = operation.path.replace("{name:path}", "plan").replace("{id}", UNKNOWN)
                body = {} if operation.method == "POST" else None
                answer = await client.request(operation.method, path, json=body)
                assert (answer.status_code == 401) is (operation.scope is not None), path
        reader = await door.add_key("reader", scopes=("node",))
        async with door.client(reader, event_hooks={"response": [told.hold]}) as client:
            for operation in OPERATIONS:
                if operation.scope is not None:
                    path = operation.path.replace("{name:path}", "plan").replace("{id}", UNKNOWN)
                    body = {} if operation.method == "POST" else None
                    answer = await client.request(operation.method, path, json=body)
                    assert answer.status_code == 403, path
    answered = {name for name, status in told.seen if status < 300}
    unseen = {operation.id for operation in OPERATIONS} - answered
    assert unseen <= LATER, unseen


async def until(client: httpx2.AsyncClient, path: str, *, holds: Callable[[Any], Any]) -> Any:
    """What is found in an answer, once it is there."""
    async with asyncio.timeout(60):
        while not (found := holds((await client.get(path)).json())):
            await asyncio.sleep(0.02)
    return found


async def test_answers_to_runs_that_go_on_are_what_the_document_says(world: DoorWorld) -> None:
    """A message, an acknowledgement, a stopped call, a delivery and a discarded patch, where they succeed."""
    told = document()
    world.replies = (slowly(PLAN, 500), WRITE, WORK, REVIEW)
    async with world.open() as door, door.client(event_hooks={"response": [told.hold]}) as client:
        asked = {"binding": "reviewed", "prompt": "Mend it."}
        waits = {**asked, "acknowledge": "required", "preserve": "always"}
        path = f"{RUNS}/{(await client.post(RUNS, json=waits)).json()['id']}"
        assert (await client.post(f"{path}/input", json={"text": "Mind the tabs."})).json()["changed"]
        await until(client, path, holds=lambda run: run["status"] == "finalizing")
        assert (await client.post(f"{path}/acknowledge", json={"accepted": True})).json()["changed"]
        await until(client, path, holds=lambda run: run["terminal"])
        delivered = await client.post(f"{path}/deliver", json={})
        assert delivered.json()["delivery"]["status"] == "delivered", delivered.text
        (world.root / "new.txt").unlink()
        other = await client.post(RUNS, json=asked, params={"wait_ms": 30_000})
        discarded = await client.post(f"{RUNS}/{other.json()['id']}/discard", json={})
        assert discarded.json()["delivery"]["status"] == "discarded", discarded.text
    world.replies = (PLAN, SLEEP, WORK, REVIEW)
    hooks = {"response": [told.hold]}
    async with world.open(key_name="again") as door, door.client(event_hooks=hooks) as client:
        run = (await client.post(RUNS, json=asked)).json()["id"]
        calls = await until(
            client,
            f"{RUNS}/{run}/work",
            holds=lambda page: [entry["work_id"] for entry in page["data"] if entry["kind"] == "tool"],
        )
        stopped = await client.post(f"/api/v1/work/{calls[0]}/cancel", json={})
        assert stopped.status_code == 200, stopped.text
        await client.post(f"{RUNS}/{run}/cancel", json={})
    assert {name for name, status in told.seen if status < 300} >= LATER


BODIES: tuple[dict[str, Any], ...] = (
    {"prompt": "x"},
    {"prompt": ""},
    {"prompt": 1},
    {"prompt": "x", "none": 1},
    {"prompt": "x", "profile": "none"},
    {"prompt": "x", "profile": "direct"},
    {"prompt": "x", "on_busy": "wait"},
    {"prompt": "x", "on_busy": "reject"},
    {"prompt": "x", "limits": {"max_rounds": 0}},
    {"prompt": "x", "limits": {"none": 1}},
    {"prompt": "x", "limits": {"wall_clock_ms": -1}},
    {"prompt": "x", "limits": {"wall_clock_ms": 60_000}},
    {"prompt": "x", "delivery": "patch"},
    {"prompt": "x", "delivery": "none"},
    {"prompt": "x", "delivery": {"mode": "patch"}},
    {"prompt": "x", "delivery": {"mode": "patch", "none": 1}},
    {"prompt": "x", "metadata": []},
    {"prompt": "x", "metadata": {"a": 1}},
    {"prompt": "x", "workspace": {"none": 1}},
    {"prompt": "x", "workspace": {"ref": "app"}},
    {"prompt": "x", "usage": "required"},
    {"prompt": "x", "usage": "wanted"},
    {"prompt": "x", "id": "a b"},
    {"prompt": "x", "id": "a" * 128},
    {"prompt": "x", "id": "a" * 129},
    {"prompt": "x", "id": "mine-1"},
    {"prompt": "x", "session_id": "a/b"},
    {"prompt": "x", "continues": "a/b"},
    {"content": [{"type": "text", "text": "x"}]},
    {"content": [{"type": "none", "text": "x"}]},
    {"content": [{"type": "text"}]},
    {"prompt": "x", "preserve": "sometimes"},
    {"prompt": "x", "stages": {"work": {"none": 1}}},
    {"prompt": "x", "stages": {"none": {}}},
)


async def test_bodies_are_taken_as_the_document_says(world: DoorWorld) -> None:
    """Fields, unknown ones, words and bounds: the document refuses what is refused, and nothing else."""
    told = document()
    schema = told.operation("POST", RUNS)["requestBody"]["content"]["application/json"]["schema"]
    differing: list[str] = []
    async with world.open() as door, door.client() as client:
        for body in BODIES:
            wrong = told.check(schema, body)
            answer = await client.post(RUNS, json={"binding": "reviewed", **body}, params={"dry_run": 1})
            taken = answer.status_code == 200
            if taken is bool(wrong):
                differing.append(f"{json.dumps(body)[:120]}: {answer.text[:200]} {wrong}")
    assert not differing, "\n".join(differing)
