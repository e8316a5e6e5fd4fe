"""The Anthropic door: messages whole and streamed, and the helper calls that its clients make."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import httpx2
import pytest

from door_kit import frames_of
from served_kit import ANSWER, TITLE, Served, chunks_of, hang_up_once_begun, serve

PATH = "/v1/messages"
PICTURE = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with serve(tmp_path_factory.mktemp("messages"), door={"keep_alive_s": 0.2}) as served:
        yield served


@pytest.fixture
def client(served: Served) -> Generator[httpx2.Client]:
    """As the vendor's older clients come: `x-api-key`, and no bearer."""
    with served.client("", **{"x-api-key": served.secret, "anthropic-version": "2023-06-01"}) as client:
        yield client


def body(text: Any = "NAME it.", *, model: str = "answer", **fields: Any) -> dict[str, Any]:
    return {
        "model": model,
        "max_tokens": 1024,
        "messages": [{"role": "user", "content": text}],
        **fields,
    }


def events_of(text: str) -> list[dict[str, Any]]:
    events = chunks_of(text)
    assert [frame["event"] for frame in frames_of(text) if "data" in frame] == [e["type"] for e in events]
    return events


def check_error(answer: httpx2.Response) -> dict[str, Any]:
    assert set(answer.json()) == {"type", "error", "request_id"}
    assert answer.json()["type"] == "error"
    assert answer.json()["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"]
    for inside in ("Traceback", 'File "', ".py", "/remit/", "pydantic", "sqlite"):
        assert inside not in answer.text
    return answer.json()["error"]


def test_answer_at_once(client: httpx2.Client, served: Served) -> None:
    """The first block is the reviewed output."""
    answer = client.post(f"{PATH}?beta=true", json=body("Mend it.", model="reviewed"))
    assert answer.status_code == 200, answer.text
    message, run = answer.json(), served.run(answer.headers["x-remit-run-id"])
    assert [block["text"] for block in message["content"]] == [ANSWER] == [run.output]
    assert (message["type"], message["role"], message["stop_reason"]) == ("message", "assistant", "end_turn")
    assert message["model"] == "reviewed"


def test_usage(client: httpx2.Client) -> None:
    """R18: Anthropic counts cached input beside the rest, not within it."""
    assert client.post(PATH, json=body()).json()["usage"] == {
        "input_tokens": 60,
        "output_tokens": 20,
        "cache_read_input_tokens": 30,
        "cache_creation_input_tokens": 10,
    }


@pytest.mark.parametrize("thinking", [None, {"type": "adaptive"}, {"type": "enabled", "budget_tokens": 1024}])
def test_streams_are_in_order(client: httpx2.Client, thinking: dict[str, Any] | None) -> None:
    """Blocks one after the other; what goes on is shown as thinking only to who asked for thinking."""
    sent = body("Mend it.", model="reviewed", stream=True)
    answer = client.post(PATH, json=sent | ({"thinking": thinking} if thinking else {}))
    events = [event for event in events_of(answer.text) if event["type"] != "ping"]
    kinds = ["thinking", "text"] if thinking else ["text"]
    assert events[0]["type"] == "message_start"
    assert events[0]["message"]["content"] == []
    starts = [e for e in events if e["type"] == "content_block_start"]
    assert [(e["index"], e["content_block"]["type"]) for e in starts] == list(enumerate(kinds))
    stops = [e["index"] for e in events if e["type"] == "content_block_stop"]
    assert stops == list(range(len(kinds)))
    assert [e["type"] for e in events[-2:]] == ["message_delta", "message_stop"]
    assert events[-2]["delta"]["stop_reason"] == "end_turn"
    assert events[-2]["usage"]["output_tokens"] > 0
    deltas = [e["delta"] for e in events if e["type"] == "content_block_delta"]
    assert "".join(d.get("text", "") for d in deltas) == ANSWER
    assert ("Planning." in "".join(d.get("thinking", "") for d in deltas)) is bool(thinking)


def test_silence_is_filled_with_pings(client: httpx2.Client) -> None:
    """R64: `ping`, as the API does."""
    events = events_of(client.post(PATH, json=body("SLOW down.", stream=True)).text)
    assert [event["type"] for event in events].count("ping") >= 3
    assert "".join(e.get("delta", {}).get("text", "") for e in events) == "Slowly done"


def test_failure(client: httpx2.Client) -> None:
    """R68, R73: a status before the first byte, `event: error` after it, and no end of a message."""
    answer = client.post(PATH, json=body("FAIL it."))
    assert (answer.status_code, check_error(answer)["code"]) == (502, "provider/auth")
    assert answer.headers["x-should-retry"] == "false"
    events = events_of(client.post(PATH, json=body("FAIL it.", stream=True)).text)
    assert events[-1]["type"] == "error"
    assert not {"message_delta", "message_stop"} & {event["type"] for event in events}


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


MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "What is in a.txt?",
                                  "cache_control": {"type": "ephemeral"}}]},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Look.", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "a.txt"}}]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "hello"},
                                                                {"type": "image", "source": PICTURE}]}]},
    {"role": "system", "content": "Be kind."},
    {"role": "assistant", "content": "It says hello."},
    {"role": "user", "content": [
        {"type": "document", "title": "d", "source": {"type": "text", "data": "a text"}},
        {"type": "image", "source": PICTURE}, {"type": "text", "text": "NAME it."}]},
]  # fmt: skip


def test_messages_of_all_kinds_are_taken(client: httpx2.Client, served: Served) -> None:
    """R72, R76: system blocks and messages, thoughts, tools' calls and results, pictures, documents."""
    more: dict[str, Any] = {
        "system": [{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}],
        "messages": MESSAGES, "temperature": 1, "top_k": 3, "stop_sequences": ["x"], "service_tier": "auto",
        "thinking": {"type": "adaptive", "display": "summarized"}, "context_management": {"edits": []},
        "output_config": {"effort": "high"}, "tool_choice": {"type": "auto"}, "tools": [], "colour": [1],
        "metadata": {"user_id": '{"device":"d","session":"s"}'}, "cache_control": {"type": "ephemeral"},
    }  # fmt: skip
    answer = client.post(PATH, json=body(**more), headers={"anthropic-beta": "colour-2027-01-01,x"})
    assert answer.status_code == 200, answer.text
    request = served.stored(answer.headers["x-remit-run-id"]).request
    assert request.instructions == "Be short.\n\nBe kind."
    assert [turn.role for turn in request.earlier] == ["user", "assistant", "user", "assistant"]
    assert request.earlier[1].text == '[called Read with {"path":"a.txt"}]'
    assert request.earlier[2].text == "[result of t1]\nhello"
    picture = f"data:image/png;base64,{PICTURE['data']}"
    assert (request.earlier[2].images, request.images()) == ((picture,), (picture,))
    assert request.text() == "[document d]\na text\n\nNAME it."
    assert request.metadata["remit"]["user"] == '{"device":"d","session":"s"}'


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no bound": ({"max_tokens": None}, "max_tokens"),
    "a bound of 0": ({"max_tokens": 0}, "max_tokens"),
    "messages as object": ({"messages": {}}, "messages"),
    "no messages": ({"messages": []}, "messages"),
    "a prefill": ({"messages": [{"role": "user", "content": "x"},
                               {"role": "assistant", "content": "{"}]}, "messages"),
    "tools": ({"tools": [{"name": "Read", "input_schema": {}}]}, "tools"),
    "a schema": ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
    "a PDF": ({"messages": [{"role": "user", "content": [
        {"type": "document", "source": {"type": "base64", "data": ""}}]}]}, "messages.0.content.0"),
    "a picture elsewhere": ({"messages": [{"role": "user", "content": [
        {"type": "image", "source": {"type": "url", "url": "http://[::1]/x"}}]}]}, "messages.0.content.0"),
    "an unknown block": ({"messages": [{"role": "user", "content": [{"type": "colour"}]}]},
                         "messages.0.content.0"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_isnt_taken_is_named(client: httpx2.Client, name: str) -> None:
    """R73, R81: 400 in Anthropic's form, with the field; nothing is fetched."""
    fields, param = REFUSED[name]
    answer = client.post(PATH, json=body(**fields))
    assert answer.status_code == 400, answer.text
    error = check_error(answer)
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


def test_errors_have_anthropics_form_whatever_is_wrong(served: Served, client: httpx2.Client) -> None:
    """R73: unknown model, broken JSON, no key, wrong path and method, size."""
    headers = {"Content-Type": "application/json"}
    tries: list[tuple[int, str, httpx2.Response]] = [
        (404, "not_found_error", client.post(PATH, json=body(model="claude-nope"))),
        (400, "invalid_request_error", client.post(PATH, content="{", headers=headers)),
        (400, "invalid_request_error", client.post(PATH, content="", headers=headers)),
        (405, "invalid_request_error", client.get(PATH)),
        (404, "not_found_error", client.post("/v1/messages/batches", json=body())),
        (404, "not_found_error", client.post("/v1/v1/messages", json=body())),
        (413, "request_too_large", client.post(PATH, content=b" " * (33 * 1024 * 1024), headers=headers)),
    ]
    with served.client("") as nobody:
        tries.append((401, "authentication_error", nobody.post(PATH, json=body())))
        wrong = {"x-api-key": "sk-ant-nope"}
        tries.append((401, "authentication_error", nobody.post(PATH, json=body(), headers=wrong)))
    for status, type_, answer in tries:
        assert (answer.status_code, check_error(answer)["type"]) == (status, type_), answer.text


def test_helper_calls(client: httpx2.Client, served: Served) -> None:
    """R76: tokens are counted without a run or a bill; `HEAD /` needs no key; both ways to send one work."""
    before = client.get("/api/v1/runs", headers={"Authorization": f"Bearer {served.secret}"}).json()["data"]
    sent = {"model": "reviewed", "messages": MESSAGES, "tools": [{"name": "Read", "input_schema": {}}]}
    few = client.post(f"{PATH}/count_tokens?beta=true", json={**sent, "messages": MESSAGES[:1]}).json()
    many = client.post(f"{PATH}/count_tokens?beta=true", json=sent).json()
    assert 0 < few["input_tokens"] < many["input_tokens"]
    after = client.get("/api/v1/runs", headers={"Authorization": f"Bearer {served.secret}"}).json()["data"]
    assert after == before
    unknown = client.post(f"{PATH}/count_tokens", json={**sent, "model": "nope"})
    assert (unknown.status_code, unknown.json()["error"]["type"]) == (404, "not_found_error")
    with served.client("") as nobody:
        assert nobody.head("/").status_code == 200
    with served.client(**{"anthropic-version": "2026-10-21"}) as newer:
        assert newer.post(PATH, json=body()).json()["content"][0]["text"] == TITLE
        both = newer.post(PATH, json=body(), headers={"x-api-key": "placeholder"})
        assert both.status_code == 200
