"""The OpenAI door's Responses: events in their order, responses in the background, and their threads."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import httpx2
import pytest

from door_kit import frames_of
from served_kit import ANSWER, TITLE, Served, chunks_of, hang_up_once_begun, serve

PATH = "/v1/responses"
KNOWN = {
    "response.created", "response.queued", "response.in_progress", "response.completed", "response.failed",
    "response.incomplete", "response.output_item.added", "response.output_item.done",
    "response.content_part.added", "response.content_part.done", "response.output_text.delta",
    "response.output_text.done", "response.reasoning_summary_part.added",
    "response.reasoning_summary_part.done", "response.reasoning_summary_text.delta",
    "response.reasoning_summary_text.done", "error",
}  # fmt: skip
"""Types that clients know; strict ones fail on any other."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with serve(tmp_path_factory.mktemp("responses"), door={"keep_alive_s": 0.2}) as served:
        yield served


@pytest.fixture
def client(served: Served) -> Generator[httpx2.Client]:
    with served.client() as client:
        yield client


def body(said: Any = "NAME it.", *, model: str = "answer", **fields: Any) -> dict[str, Any]:
    return {"model": model, "input": said, **fields}


def events_of(text: str) -> list[dict[str, Any]]:
    """The events of a stream, each named as its data says."""
    frames = [frame for frame in frames_of(text) if "data" in frame]
    events = chunks_of(text)
    assert [frame["event"] for frame in frames] == [event["type"] for event in events]
    return events


def ended(client: httpx2.Client, response_id: str) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while True:
        response = client.get(f"{PATH}/{response_id}").json()
        if response["status"] not in ("queued", "in_progress"):
            return response
        assert time.monotonic() < deadline
        time.sleep(0.05)


def text_of(response: dict[str, Any]) -> str:
    messages = [item for item in response["output"] if item["type"] == "message"]
    return "".join(part["text"] for item in messages for part in item["content"])


def check_order(events: list[dict[str, Any]], *, text: str, progress: bool) -> None:
    """R74: every event in its place, numbered from 0, with one id and one index for one item."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert {event["type"] for event in events} <= KNOWN
    types = [event["type"].removeprefix("response.") for event in events]
    assert types[:2] == ["created", "in_progress"]
    item = ["output_item.added", "content_part.added", "output_text.delta", "output_text.done"]
    item += ["content_part.done", "output_item.done"]
    thought = ["output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta"]
    thought += ["reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"]
    order = [*(thought if progress else []), *item, "completed"]
    seen = [one for one in types[1:] if one != "in_progress"]
    assert list(_without_repeats(seen)) == order
    for event in events:
        if "output_index" in event:
            item_id = event.get("item_id") or event["item"]["id"]
            assert event["output_index"] == int(progress and item_id.startswith("msg_"))
    deltas = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
    final = events[-1]["response"]
    assert deltas == text == text_of(final)
    assert (final["status"], final["usage"] is not None) == ("completed", True)
    assert [one["type"] for one in final["output"]] == (["reasoning"] if progress else []) + ["message"]


def _without_repeats(types: list[str]) -> Generator[str]:
    before = ""
    for one in types:
        if not (one == before and one.endswith("delta")):
            yield one
        before = one


def test_answer_at_once(client: httpx2.Client, served: Served) -> None:
    """The reviewed output, the run's bill, the caller's own metadata back; nothing of ours in it."""
    answer = client.post(PATH, json=body("Mend it.", model="reviewed", metadata={"a": "b"}, user="u"))
    assert answer.status_code == 200, answer.text
    response, run = answer.json(), served.run(answer.headers["x-remit-run-id"])
    assert text_of(response) == ANSWER == run.output
    assert (response["status"], response["object"], response["error"]) == ("completed", "response", None)
    assert (response["metadata"], response["user"]) == ({"a": "b"}, "u")
    assert response["id"] == f"resp_{run.id}"
    assert client.get(f"{PATH}/{response['id']}").json() == response


def test_usage(client: httpx2.Client) -> None:
    """R18: the run's numbers, parts within their totals."""
    usage = client.post(PATH, json=body()).json()["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (100, 20, 120)
    assert usage["input_tokens_details"] == {"cached_tokens": 30}
    assert usage["output_tokens_details"] == {"reasoning_tokens": 5}


@pytest.mark.parametrize(
    ("model", "text", "output", "progress"),
    [
        ("reviewed", "Mend it.", ANSWER, True),
        ("quiet", "Mend it.", ANSWER, False),
        ("answer", "NAME it.", TITLE, False),
    ],
)
def test_streams_are_in_order(
    client: httpx2.Client, model: str, text: str, output: str, progress: bool
) -> None:
    """R74, with and without progress, reviewed and plain."""
    answer = client.post(PATH, json=body(text, model=model, stream=True))
    check_order(events_of(answer.text), text=output, progress=progress)


def test_silence_is_filled_with_events(client: httpx2.Client) -> None:
    """R64: `response.in_progress`, since some idle timers don't hear comments; the numbers go on."""
    events = events_of(client.post(PATH, json=body("SLOW down.", stream=True)).text)
    assert [event["type"] for event in events].count("response.in_progress") >= 3
    check_order(events, text="Slowly done", progress=False)


def test_failure(client: httpx2.Client) -> None:
    """R68: a status before the first byte, `response.failed` after it; a background response says so."""
    answer = client.post(PATH, json=body("FAIL it."))
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "provider/auth")
    events = events_of(client.post(PATH, json=body("FAIL it.", model="reviewed", stream=True)).text)
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"]["code"] == "provider/auth"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    started = client.post(PATH, json=body("FAIL it.", background=True)).json()
    response = ended(client, started["id"])
    assert (response["status"], response["output"]) == ("failed", [])
    assert response["error"]["code"] == "provider/auth"


def test_background(client: httpx2.Client) -> None:
    """`background: true` answers at once; the response is looked up until it has ended."""
    answer = client.post(PATH, json=body("SLOW down.", background=True))
    started = answer.json()
    assert answer.status_code == 200
    assert started["status"] in ("queued", "in_progress")
    assert (started["background"], started["output"], started["usage"]) == (True, [], None)
    response = ended(client, started["id"])
    assert (response["status"], text_of(response)) == ("completed", "Slowly done")


def test_cancel(client: httpx2.Client, served: Served) -> None:
    """A cancelled response is a cancelled run; a second cancel changes nothing."""
    started = client.post(PATH, json=body("THINK on.", background=True)).json()
    answer = client.post(f"{PATH}/{started['id']}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    run = served.run(answer.headers["x-remit-run-id"])
    assert run.terminal is not None
    assert run.terminal.code == "caller"
    assert client.post(f"{PATH}/{started['id']}/cancel").json()["status"] == "cancelled"


@pytest.mark.parametrize("stream", [True, False])
def test_hang_up_cancels(client: httpx2.Client, served: Served, stream: bool) -> None:
    """R4: the run ends with its caller's connection, whether events had come or nothing at all."""
    sent = body("THINK on.", stream=stream)
    if stream:
        with client.stream("POST", PATH, json=sent) as answer:
            run_id = answer.headers["x-remit-run-id"]
    else:
        run_id = hang_up_once_begun(served, PATH, sent)
    run = served.ended(run_id)
    assert run.terminal is not None
    assert run.terminal.code == "client_disconnected"


def test_a_stream_hears_of_a_cancel(client: httpx2.Client) -> None:
    """R68: the stream of a response that is cancelled ends with `response.failed`, its status `cancelled`."""
    sent = body("THINK on.", background=True, stream=True)
    with client.stream("POST", PATH, json=sent) as answer:
        client.post(f"{PATH}/resp_{answer.headers['x-remit-run-id']}/cancel")
        events = events_of(answer.read().decode())
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["status"] == "cancelled"
    assert events[-1]["response"]["error"]["code"] == "cancelled/caller"


def test_scopes(client: httpx2.Client, served: Served) -> None:
    """A key that may only look looks; one that may only run does that, and looks at what it ran."""
    response_id = client.post(PATH, json=body()).json()["id"]
    with served.client(served.add_key("looks", scopes=("read",))) as looks:
        assert looks.get(f"{PATH}/{response_id}").status_code == 200
        assert looks.get("/v1/models").status_code == 200
        refused = looks.post(PATH, json=body())
        assert (refused.status_code, refused.json()["error"]["type"]) == (403, "permission_error")
        assert looks.post(f"{PATH}/{response_id}/cancel").status_code == 403
    with served.client(served.add_key("runs", scopes=("run",))) as runs:
        made = runs.post(PATH, json=body()).json()["id"]
        assert runs.get(f"{PATH}/{made}").status_code == 200


def test_background_streams_resume(client: httpx2.Client) -> None:
    """R66: a stream that broke off goes on after the last number seen; together they are the whole, once."""
    sent = body("Mend it.", model="reviewed", background=True, stream=True)
    with client.stream("POST", PATH, json=sent) as answer:
        run_id = answer.headers["x-remit-run-id"]
        seen: list[str] = []
        for line in answer.iter_lines():
            seen.append(line)
            if len([one for one in seen if one.startswith("data:")]) == 4:
                break
    first = chunks_of("\n".join(seen) + "\n\n")
    address = f"{PATH}/resp_{run_id}?stream=true"
    rest = events_of(client.get(f"{address}&starting_after={first[-1]['sequence_number']}").text)
    whole = events_of(client.get(address).text)
    assert [*first, *rest] == whole
    check_order(whole, text=ANSWER, progress=True)
    assert client.get(f"{address}&starting_after=100000").text.count("data:") == 0
    wrong = client.get(f"{address}&starting_after=-1")
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "starting_after")


def test_background_outlives_its_caller(client: httpx2.Client, served: Served) -> None:
    """A background stream's viewer may leave: the run isn't its."""
    sent = body("SLOW down.", background=True, stream=True)
    with client.stream("POST", PATH, json=sent) as answer:
        run_id = answer.headers["x-remit-run-id"]
    assert served.ended(run_id).status == "completed"


def test_store_and_threads(client: httpx2.Client, served: Served) -> None:
    """`store: false` can't be looked up; `previous_response_id` goes on in its session."""
    first = client.post(PATH, json=body()).json()
    second = client.post(PATH, json=body("NAME more.", previous_response_id=first["id"])).json()
    assert second["previous_response_id"] == first["id"]
    runs = [served.run(one["id"].removeprefix("resp_")) for one in (first, second)]
    assert runs[1].session_id == runs[0].session_id == runs[0].id
    secret = client.post(PATH, json=body(store=False)).json()
    assert secret["store"] is False
    assert client.get(f"{PATH}/{secret['id']}").status_code == 404
    gone = client.post(PATH, json=body(previous_response_id=secret["id"]))
    assert (gone.status_code, gone.json()["error"]["param"]) == (400, "previous_response_id")


INPUT: list[dict[str, Any]] = [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be short."}]},
    {"role": "user", "content": "What is in a.txt?"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
    {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"p":1}'},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "hello"}]},
    {"type": "message", "role": "assistant", "id": "m", "status": "completed",
     "content": [{"type": "output_text", "text": "It says hello.", "annotations": []}]},
    {"role": "user", "content": [{"type": "input_text", "text": "NAME it."}]},
]  # fmt: skip


def test_items_of_all_kinds_are_taken(client: httpx2.Client, served: Served) -> None:
    """R72: instructions, messages, calls and results, sealed thoughts; unknown fields are passed over."""
    more: dict[str, Any] = {
        "instructions": "Be kind.", "max_output_tokens": 100, "temperature": 0.2, "truncation": "auto",
        "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "high", "summary": "auto"},
        "text": {"format": {"type": "text"}, "verbosity": "low"}, "tool_choice": "auto", "tools": [],
        "parallel_tool_calls": False, "service_tier": "auto", "prompt_cache_key": "k", "colour": 1,
    }  # fmt: skip
    answer = client.post(PATH, json=body(INPUT, **more))
    assert answer.status_code == 200, answer.text
    request = served.stored(answer.headers["x-remit-run-id"]).request
    assert request.instructions == "Be kind.\n\nBe short."
    assert [turn.text for turn in request.earlier] == [
        "What is in a.txt?",
        '[called read with {"p":1}]',
        "[result of c1]\nhello",
        "It says hello.",
    ]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no input": ({"input": None}, "input"),
    "a number as input": ({"input": 3}, "input"),
    "an unknown item": ({"input": [{"type": "colour"}]}, "input.0"),
    "a file": ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input.0.content.0"),
    "a schema": ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
    "tools": ({"tools": [{"type": "custom", "name": "x"}]}, "tools"),
    "a conversation": ({"conversation": "conv_1"}, "conversation"),
    "a background that isn't stored": ({"background": True, "store": False}, "store"),
    "an unknown response": ({"previous_response_id": "resp_nope"}, "previous_response_id"),
    "a bad id": ({"previous_response_id": "resp_\u0000/.."}, "previous_response_id"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_isnt_taken_is_named(client: httpx2.Client, name: str) -> None:
    """R73: 400 with the field, in OpenAI's form."""
    fields, param = REFUSED[name]
    answer = client.post(PATH, json=body(**fields))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


def test_somebody_elses_response_is_unknown(served: Served, client: httpx2.Client) -> None:
    """R78: reading, resuming, stopping, going on from it: answered as for an id that isn't there."""
    response_id = client.post(PATH, json=body()).json()["id"]
    with served.client(served.add_key("stranger", tenant="other")) as stranger:
        for method, path in (("GET", ""), ("GET", "?stream=true"), ("POST", "/cancel")):
            real = stranger.request(method, f"{PATH}/{response_id}{path}")
            made_up = stranger.request(method, f"{PATH}/resp_nope{path}")
            assert (real.status_code, real.json()) == (404, made_up.json())
        real = stranger.post(PATH, json=body(previous_response_id=response_id))
        assert real.status_code == 400
    assert client.get(f"{PATH}/{response_id}").status_code == 200
