"""The OpenAI door's Chat Completions: what is taken, what comes back, and what a hang-up does."""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from served_kit import ANSWER, NONCE, TITLE, Served, chunks_of, serve
from whole_kit import processes_with

PICTURE = "data:image/png;base64,iVBORw0KGgo="
PATH = "/v1/chat/completions"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with serve(tmp_path_factory.mktemp("chat"), door={"keep_alive_s": 0.2}) as served:
        yield served


@pytest.fixture
def client(served: Served) -> Generator[httpx2.Client]:
    with served.client() as client:
        yield client


def body(text: str = "NAME it.", *, model: str = "answer", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **fields}


def hang_up(
    client: httpx2.Client, path: str, sent: dict[str, Any], *, after_s: float, **headers: str
) -> None:
    """Send a request, and close the connection before its answer."""
    with pytest.raises(httpx2.TimeoutException):
        client.post(path, json=sent, headers=headers, timeout=httpx2.Timeout(5, read=after_s))


def wait_for_sleep() -> None:
    """Until the tool's process is there."""
    deadline = time.monotonic() + 20
    while not processes_with(NONCE):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def newest(client: httpx2.Client) -> dict[str, Any]:
    return client.get("/api/v1/runs?limit=1").json()["data"][0]


# ---- answers


def test_answer_text_is_the_reviewed_output_only(client: httpx2.Client, served: Served) -> None:
    """The same run through every door: one id, one bill, and nothing but what the reviewer let through."""
    answer = client.post(PATH, json=body("Mend it.", model="reviewed"))
    assert answer.status_code == 200, answer.text
    completion, run = answer.json(), served.run(answer.headers["x-remit-run-id"])
    assert completion["choices"][0]["message"]["content"] == ANSWER == run.output
    assert completion["choices"][0]["finish_reason"] == "stop"
    assert run.usage is not None
    assert completion["usage"]["total_tokens"] == run.usage.total_tokens
    assert (completion["object"], completion["model"]) == ("chat.completion", "reviewed")
    assert run.metadata["remit"]["door"] == "openai-chat"


def test_usage_is_the_runs_in_the_dialects_words(client: httpx2.Client) -> None:
    """R18: cached input and reasoning are parts of their totals, as OpenAI counts."""
    usage = client.post(PATH, json=body()).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (100, 20, 120)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 30
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 5


@pytest.mark.parametrize("asked", [True, False, None])
def test_stream_details_that_strict_clients_trip_on(client: httpx2.Client, asked: bool | None) -> None:
    """R65, R75: the role once and first; `choices: []` only where the bill was asked for; then `[DONE]`."""
    options: dict[str, Any] = {} if asked is None else {"stream_options": {"include_usage": asked}}
    answer = client.post(PATH, json=body(stream=True, **options), headers={"Accept-Encoding": "gzip, br"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-accel-buffering"] == "no"
    assert "no-transform" in answer.headers["cache-control"]
    assert "content-encoding" not in answer.headers
    *chunks, done = chunks_of(answer.text)
    assert done == "[DONE]"
    assert ["role" in one["choices"][0]["delta"] for one in chunks if one["choices"]].count(True) == 1
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    text = "".join(one["choices"][0]["delta"].get("content", "") for one in chunks if one["choices"])
    assert text == TITLE
    ends = [one["choices"][0]["finish_reason"] for one in chunks if one["choices"]]
    assert ends == [None] * (len(ends) - 1) + ["stop"]
    bills = [one for one in chunks if one.get("usage")]
    assert [one["choices"] for one in bills] == ([[]] if asked else [])
    assert len({one["id"] for one in chunks}) == 1


def test_progress_goes_out_as_reasoning(client: httpx2.Client) -> None:
    """Stages and tools are told as reasoning, which every client knows; never in the answer's text."""
    deltas = _deltas(client, body("Mend it.", model="reviewed", stream=True))
    reasoning = "".join(delta.get("reasoning_content", "") for delta in deltas)
    for told in ("Planning.", "Working.", "list_files", "Reviewing.", "The review says pass."):
        assert told in reasoning
    assert "".join(delta.get("content", "") for delta in deltas) == ANSWER


def test_progress_can_be_off(client: httpx2.Client) -> None:
    """`progress = false`: no reasoning at all."""
    deltas = _deltas(client, body("Mend it.", model="quiet", stream=True))
    assert not any("reasoning_content" in delta for delta in deltas)
    assert "".join(delta.get("content", "") for delta in deltas) == ANSWER


def _deltas(client: httpx2.Client, sent: dict[str, Any]) -> list[dict[str, Any]]:
    chunks = chunks_of(client.post(PATH, json=sent).text)
    return [one["choices"][0]["delta"] for one in chunks if one != "[DONE]" and one["choices"]]


def test_silence_is_filled_with_comments(client: httpx2.Client) -> None:
    """R64: a sign of life from the first second, which no parser takes for an event."""
    text = client.post(PATH, json=body("SLOW down.", stream=True)).text
    assert text.count(": keep-alive\n\n") >= 2
    assert "".join(d["choices"][0]["delta"].get("content", "") for d in chunks_of(text)[:-1]) == "Slowly done"


# ---- what is taken

HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind.", "name": "boss"},
    {"role": "developer", "content": [{"type": "text", "text": "Be short."}]},
    {"role": "user", "content": [{"type": "text", "text": "What is in a.txt?"}], "name": "me"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "hello"}]},
    {"role": "assistant", "content": [], "tool_calls": [], "refusal": None, "audio": None},
    {"role": "assistant", "tool_calls": None},
    {"role": "assistant", "content": "It says hello."},
    {"role": "user", "content": "NAME this."},
]


def test_histories_of_all_kinds_are_taken(client: httpx2.Client, served: Served) -> None:
    """R72: null, missing and listed content, developer messages, names, unknown fields: all are taken."""
    more: dict[str, Any] = {
        "messages": HISTORY, "max_completion_tokens": 128_000, "max_tokens": None, "stream_options": None,
        "temperature": 0.3, "top_p": 1, "stop": ["x"], "seed": 3, "n": 1, "logit_bias": {}, "store": False,
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "response_format": {"type": "text"},
        "reasoning_effort": "low", "prompt_cache_key": "k", "safety_identifier": "s", "colour": {"deep": [1]},
        "user": "u-1", "metadata": {"a": "b"},
    }  # fmt: skip
    answer = client.post(PATH, json=body(**more))
    assert answer.status_code == 200, answer.text
    stored = served.stored(answer.headers["x-remit-run-id"])
    request = stored.request
    assert request.instructions == "Be kind.\n\nBe short."
    assert request.prompt == "NAME this."
    assert [turn.role for turn in request.earlier] == ["user", "assistant", "user", "assistant"]
    assert request.earlier[1].text == "[called read with {}]"
    assert request.earlier[2].text == "[result of c1]\nhello"
    assert request.metadata == {"a": "b", "remit": {"door": "openai-chat", "user": "u-1"}}


def test_pictures_pass(client: httpx2.Client, served: Served) -> None:
    """A picture in the message is the run's."""
    parts = [{"type": "text", "text": "NAME it."}, {"type": "image_url", "image_url": {"url": PICTURE}}]
    answer = client.post(PATH, json=body(messages=[{"role": "user", "content": parts}]))
    assert answer.status_code == 200, answer.text
    stored = served.stored(answer.headers["x-remit-run-id"])
    assert stored.request.images() == (PICTURE,)


TOOLS = [{"type": "function", "function": {"name": "shell"}}, {"type": "web_search"}, {"type": "colour"}]
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "tools": ({"tools": TOOLS}, "tools"),
    "functions": ({"functions": [{"name": "f"}]}, "tools"),
    "several answers": ({"n": 2}, "n"),
    "a schema": ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
    "probabilities": ({"logprobs": True}, "logprobs"),
    "sound": ({"modalities": ["text", "audio"]}, "modalities"),
    "a picture elsewhere": (
        {"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "http://169.254.169.254/x"}}]}]},
        "messages.0.content.0",
    ),
    "a sound": (
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
        "messages.0.content.0",
    ),
    "messages as object": ({"messages": {"role": "user"}}, "messages"),
    "no messages": ({"messages": []}, "messages"),
    "no words": ({"messages": [{"role": "user", "content": " "}]}, "messages"),
    "not the user's last": ({"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
    "an unknown role": ({"messages": [{"role": "king", "content": "x"}]}, "messages.0.role"),
    "a number": ({"messages": [{"role": "user", "content": 3}]}, "messages.0.content"),
    "a text for a flag": ({"stream": "yes"}, "stream"),
    "a list as metadata": ({"metadata": []}, "metadata"),
    "deep metadata": ({"metadata": {"a": [[[[[[[[[[1]]]]]]]]]]}}, "metadata.a.0.0.0.0.0.0.0"),
    "a number as model": ({"model": 3}, "model"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_change_the_answer_is_refused_by_name(client: httpx2.Client, name: str) -> None:
    """R72, R73, R81: what can't be honoured is 400 with the field's name; nothing is fetched."""
    fields, param = REFUSED[name]
    answer = client.post(PATH, json=body(**fields))
    assert answer.status_code == 400, answer.text
    error = check_error(answer)
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert answer.headers["x-should-retry"] == "false"


def check_error(answer: httpx2.Response) -> dict[str, Any]:
    """An error in its one form, which shows nothing of the host's inside."""
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == {"error"}
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    for inside in ("Traceback", 'File "', ".py", "/remit/", "pydantic", "sqlite"):
        assert inside not in answer.text
    return error


def test_client_tools_can_be_ignored(client: httpx2.Client) -> None:
    """`client_tools = "ignore"`: the client's tools are passed over, whatever type they have."""
    answer = client.post(PATH, json=body(model="agent", tools=TOOLS, tool_choice="required"))
    assert answer.json()["choices"][0]["message"]["content"] == TITLE


def test_errors_have_openais_form_whatever_is_wrong(served: Served, client: httpx2.Client) -> None:
    """R73: unknown model, broken JSON, no key, wrong path, method, type and size."""
    headers = {"Content-Type": "application/json"}
    tries: list[tuple[int, str, httpx2.Response]] = [
        (404, "model_not_found", client.post(PATH, json=body(model="gpt-nope"))),
        (400, "malformed_request", client.post(PATH, content="{", headers=headers)),
        (400, "malformed_request", client.post(PATH, content='{"a":1,"a":2}', headers=headers)),
        (400, "malformed_request", client.post(PATH, content="[" * 100_000, headers=headers)),
        (400, "invalid_request", client.post(PATH, content="[]", headers=headers)),
        (400, "invalid_request", client.post(PATH, content="", headers=headers)),
        (404, "not_found", client.get("/v1/nope")),
        (404, "not_found", client.post("/v1/v1/chat/completions", json=body())),
        (405, "method_not_allowed", client.delete(PATH)),
        (405, "method_not_allowed", client.get(PATH)),
        (415, "unsupported_media", client.post(PATH, content="x", headers={"Content-Type": "text/plain"})),
        (413, "payload_too_large", client.post(PATH, content=b" " * (33 * 1024 * 1024), headers=headers)),
        (403, "forbidden", client.post(PATH, json=body(), headers={"Origin": "http://evil.example"})),
        (413, "payload_too_large", client.post(PATH, json=body("x" * 1_100_000))),
    ]
    with served.client("") as nobody, served.client("rk_" + "x" * 43) as stranger:
        tries.append((401, "invalid_api_key", nobody.post(PATH, json=body())))
        tries.append((401, "invalid_api_key", stranger.post(PATH, json=body())))
    for status, code, answer in tries:
        assert (answer.status_code, check_error(answer)["code"]) == (status, code), answer.text


def test_a_key_reaches_its_bindings_only(served: Served) -> None:
    """R78: a model that the key may not use answers as one that doesn't exist."""
    secret = served.add_key("bound", bindings=("answer",))
    with served.client(secret) as client:
        assert [one["id"] for one in client.get("/v1/models").json()["data"]] == ["answer"]
        unknown = client.post(PATH, json=body(model="nobody")).json()["error"]
        known = client.post(PATH, json=body(model="reviewed")).json()["error"]
        assert known["message"].replace("reviewed", "nobody") == unknown["message"]
        assert client.get("/v1/models/reviewed").status_code == 404
        assert client.post(PATH, json=body()).status_code == 200


# ---- runs that have no answer


def test_a_failed_run_is_an_error_never_text(client: httpx2.Client, served: Served) -> None:
    """A run's end decides the status; it is final, so libraries are told not to send it again."""
    answer = client.post(PATH, json=body("FAIL it."))
    assert answer.status_code == 502
    error = check_error(answer)
    assert error["code"] == "provider/auth"
    assert answer.headers["x-should-retry"] == "false"
    assert served.run(answer.headers["x-remit-run-id"]).status == "failed"


def test_a_run_that_is_cancelled_elsewhere_is_an_error(client: httpx2.Client) -> None:
    """Somebody stops the run by its id while its caller waits: 499, and final."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.post, PATH, json=body("THINK about me.", user="waiter"))
        deadline = time.monotonic() + 20
        while newest(client)["metadata"].get("remit", {}).get("user") != "waiter":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        client.post(f"/api/v1/runs/{newest(client)['id']}/cancel")
        answer = waiting.result(30)
    assert (answer.status_code, check_error(answer)["code"]) == (499, "cancelled/caller")
    assert answer.headers["x-should-retry"] == "false"


def test_failure_after_the_first_byte_is_no_normal_end(client: httpx2.Client) -> None:
    """R68: an error frame, then `[DONE]`; no finish reason."""
    *chunks, error, done = chunks_of(client.post(PATH, json=body("FAIL it.", stream=True)).text)
    assert done == "[DONE]"
    assert error["error"]["code"] == "provider/auth"
    assert all(one["choices"][0]["finish_reason"] is None for one in chunks)


def test_an_attempt_that_breaks_off_while_it_is_shown(client: httpx2.Client) -> None:
    """R69: text goes on where the next attempt begins with what was shown; else the stream is an error."""
    *chunks, _ = chunks_of(client.post(PATH, json=body("BREAK, then go on.", stream=True)).text)
    pieces = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
    assert "".join(pieces) == "It is broken no more"
    *chunks, error, done = chunks_of(client.post(PATH, json=body("BREAK it.", stream=True)).text)
    assert (error["error"]["code"], done) == ("provider/cut", "[DONE]")
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "It is bro"
    whole = client.post(PATH, json=body("BREAK it."))
    assert whole.json()["choices"][0]["message"]["content"] == "Something else"


# ---- hang-ups, retries


@pytest.mark.parametrize("stream", [True, False])
def test_hang_up_cancels_the_run_and_its_processes(
    client: httpx2.Client, served: Served, stream: bool
) -> None:
    """R4: nobody pays for an answer that nobody waits for; the tool's processes are gone with it."""
    with served.client() as leaving:
        if stream:
            with leaving.stream(
                "POST", PATH, json=body("SLEEP on it.", model="reviewed", stream=True)
            ) as answer:
                run_id = answer.headers["x-remit-run-id"]
                lines = answer.iter_lines()  # kept: given up, it would close the connection
                while "run_shell" not in next(lines):
                    continue
                wait_for_sleep()
        else:
            hang_up(leaving, PATH, body("SLEEP on it.", model="reviewed"), after_s=1.5)
            run_id = newest(client)["id"]
    run = served.ended(run_id)
    assert run.terminal is not None
    assert (run.terminal.class_, run.terminal.code) == ("cancelled", "client_disconnected")
    assert run.cancel is not None
    assert run.cancel.complete
    if stream:
        how = [item.how for item in run.cancel.items if item.kind == "tool"]
        assert how
        assert set(how) <= {"term", "kill", "closed"}  # closed: it was still being started
        assert not processes_with(NONCE)


def test_a_binding_may_let_runs_go_on(client: httpx2.Client, served: Served) -> None:
    """`on_disconnect = "continue"`, and the library's next try gets the run's answer."""
    sent = body("SLOW down a bit.", model="lasting")
    with served.client() as leaving:
        hang_up(leaving, PATH, sent, after_s=0.3)
    run_id = newest(client)["id"]
    again = client.post(PATH, json=sent, headers={"x-stainless-retry-count": "1"})
    assert (again.headers["x-remit-run-id"], again.headers["x-remit-joined"]) == (run_id, "true")
    assert again.json()["choices"][0]["message"]["content"] == "Slowly done"


def test_a_retry_joins_and_never_what_its_hang_up_cancelled(client: httpx2.Client, served: Served) -> None:
    """R80: a next try isn't paid for twice, nor given what its hang-up ended or what isn't its own."""
    retry = {"x-stainless-retry-count": "1"}
    first = client.post(PATH, json=body("NAME once."))
    joined = client.post(PATH, json=body("NAME once."), headers=retry)
    assert joined.headers["x-remit-run-id"] == first.headers["x-remit-run-id"]
    assert joined.json() == first.json()
    other = served.client(served.add_key("other"))
    with other:
        assert "x-remit-joined" not in other.post(PATH, json=body("NAME once."), headers=retry).headers
    for changed in (body("NAME twice."), body("NAME once.", temperature=1)):
        answer = client.post(PATH, json=changed, headers=retry)
        assert answer.headers["x-remit-run-id"] != first.headers["x-remit-run-id"]
    plain = client.post(PATH, json=body("NAME once."), headers={"x-stainless-retry-count": "0"})
    assert plain.headers["x-remit-run-id"] != first.headers["x-remit-run-id"]

    with served.client() as leaving:
        hang_up(leaving, PATH, body("THINK on."), after_s=0.4)
    left = newest(client)["id"]
    with client.stream("POST", PATH, json=body("THINK on.", stream=True), headers=retry) as answer:
        assert answer.headers["x-remit-run-id"] != left
    with served.client() as again:
        hang_up(again, PATH, body("THINK on."), after_s=0.4, **retry)
    assert newest(client)["id"] != left
    assert served.ended(left).status == "cancelled"


def test_a_retry_joins_a_run_on_another_connection(client: httpx2.Client, served: Served) -> None:
    """The first connection is still open: one run, two who wait, and only the last to leave ends it."""
    sent = json.dumps(body("SLOW down, both.", stream=True)).encode()
    headers = {"Content-Type": "application/json"}
    retry = {**headers, "x-stainless-retry-count": "1"}
    with (
        served.client() as first,
        served.client() as second,
        first.stream("POST", PATH, content=sent, headers=headers) as one,
        second.stream("POST", PATH, content=sent, headers=retry) as two,
    ):
        run_id = one.headers["x-remit-run-id"]
        assert two.headers["x-remit-run-id"] == run_id
        one.close()
        chunks = chunks_of(two.read().decode())
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks[:-1]) == "Slowly done"
    assert served.run(run_id).status == "completed"


def test_idempotency_key(client: httpx2.Client) -> None:
    """R63: one key stands for one run; another body is a conflict, in the dialect's form."""
    headers = {"Idempotency-Key": "chat-1"}
    first = client.post(PATH, json=body(), headers=headers)
    second = client.post(PATH, json=body(), headers=headers)
    assert first.headers["x-remit-run-id"] == second.headers["x-remit-run-id"]
    other = client.post(PATH, json=body("NAME another."), headers=headers)
    assert (other.status_code, check_error(other)["code"]) == (409, "idempotency_conflict")


def test_many_hang_ups_leave_nothing_behind(client: httpx2.Client, served: Served) -> None:
    """Whoever leaves, whenever: no stream, no waiter, no work and no run is left of it."""

    def leave(number: int) -> None:
        with served.client() as leaving:
            if number % 2:
                hang_up(leaving, PATH, body(f"THINK {number}."), after_s=0.05 * (number % 5) + 0.05)
            else:
                with leaving.stream("POST", PATH, json=body(f"THINK {number}.", stream=True)) as answer:
                    assert answer.status_code == 200

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(leave, range(36)))
    deadline = time.monotonic() + 30
    while client.get("/api/v1/work").json()["data"] or len(served.door.app.streams):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    unfinished = client.get("/api/v1/runs?status=queued,planning,working,settling").json()["data"]
    assert unfinished == []


# ---- sessions, models, room


def test_chats_are_sessions(client: httpx2.Client, served: Served) -> None:
    """`metadata.session_id`, or the chat that a front end names; a plain answer takes no header's."""
    named = client.post(PATH, json=body(metadata={"session_id": "thread-1"}))
    again = client.post(PATH, json=body("NAME more.", metadata={"session_id": "thread-1"}))
    runs = [served.run(answer.headers["x-remit-run-id"]) for answer in (named, again)]
    assert {run.session_id for run in runs} == {"thread-1"}
    chat = {"X-OpenWebUI-Chat-Id": "3f0c6a2e-7f5f-4f6e-9d0c-0123456789ab"}
    answer = client.post(PATH, json=body("Mend it.", model="reviewed"), headers=chat)
    run = served.run(answer.headers["x-remit-run-id"])
    assert run.session_id == chat["X-OpenWebUI-Chat-Id"]
    title = client.post(PATH, json=body("NAME the chat."), headers=chat)
    run = served.run(title.headers["x-remit-run-id"])
    assert run.session_id == run.id
    odd = client.post(PATH, json=body(metadata={"session_id": "a/b \u00e9"}))
    assert served.run(odd.headers["x-remit-run-id"]).session_id.startswith("s_")


@pytest.mark.parametrize(("path", "field"), [("/v1/responses", "input"), ("/v1/messages", "messages")])
def test_chats_are_sessions_in_the_other_dialects_too(
    client: httpx2.Client, served: Served, path: str, field: str
) -> None:
    """The chat that a front end names, for a run that works; a plain answer takes one only from its body."""
    chat = {"X-OpenWebUI-Chat-Id": f"chat{path.replace('/', '-')}"}
    for model, text, metadata, expected in (
        ("reviewed", "Mend it.", {}, chat["X-OpenWebUI-Chat-Id"]),
        ("answer", "NAME the chat.", {}, None),
        ("answer", "NAME the chat.", {"session_id": f"named{path.replace('/', '-')}"}, None),
    ):
        said = {"max_tokens": 100} if field == "messages" else {}
        asked = {"model": model, field: [{"role": "user", "content": text}], "metadata": metadata}
        answer = client.post(path, json={**asked, **said}, headers=chat)
        assert answer.status_code == 200, answer.text
        run = served.run(answer.headers["x-remit-run-id"])
        assert run.session_id == (metadata.get("session_id") or expected or run.id)


def test_models_in_both_dialects_by_header(client: httpx2.Client) -> None:
    """R76: who sends Anthropic's version gets Anthropic's list; everybody else OpenAI's."""
    listed = client.get("/v1/models").json()
    assert listed["object"] == "list"
    assert {"id", "object", "created", "owned_by"} == set(listed["data"][0])
    assert client.get("/v1/models/answer").json()["id"] == "answer"
    version = {"anthropic-version": "2023-06-01"}
    other = client.get("/v1/models?limit=1000", headers=version).json()
    assert {"type", "id", "display_name", "created_at"} == set(other["data"][0])
    assert (other["has_more"], other["first_id"]) == (False, other["data"][0]["id"])
    assert client.get("/v1/models/answer", headers=version).json()["type"] == "model"
    assert client.get("/v1/models/nope", headers=version).json()["type"] == "error"
    assert client.get("/v1/models/nope").json()["error"]["code"] == "model_not_found"


def test_a_full_host_says_when_to_come_back(tmp_path: Path) -> None:
    """R73: 503 with Retry-After while the queue is full, and libraries may try again."""
    with serve(tmp_path, host_table={"max_running": 1, "max_queued": 0}) as served, served.client() as client:
        with client.stream("POST", PATH, json=body("THINK hard.", stream=True)):
            full = client.post(PATH, json=body())
            assert full.status_code == 503
            assert check_error(full)["code"] == "queue_full"
            assert full.headers["retry-after"].isdigit()
            assert full.headers["x-should-retry"] == "true"
        deadline = time.monotonic() + 20
        while client.post(PATH, json=body()).status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
