"""OpenAI's and Anthropic's own libraries: base URL, key and model changed, nothing else."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import anthropic
import openai
import pytest

from served_kit import ANSWER, NONCE, TITLE, Served, serve
from whole_kit import processes_with


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with serve(tmp_path_factory.mktemp("vendors"), door={"keep_alive_s": 0.2}) as served:
        yield served


@pytest.fixture(scope="module")
def client(served: Served) -> Generator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.base_url}/v1", api_key=served.secret) as client:
        yield client


@pytest.fixture(scope="module")
def claude(served: Served) -> Generator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=served.base_url, api_key=served.secret) as client:
        yield client


# ---- OpenAI


def test_openai_chat(client: openai.OpenAI) -> None:
    """The quick-start of Chat Completions."""
    completion = client.chat.completions.create(
        model="reviewed",
        messages=[
            {"role": "developer", "content": "Talk like a pirate."},
            {"role": "user", "content": "Mend it."},
        ],
    )
    assert completion.choices[0].message.content == ANSWER
    assert completion.usage is not None
    assert completion.usage.total_tokens > 0


def test_openai_chat_streams(client: openai.OpenAI) -> None:
    """The same as a stream, with its bill."""
    stream = client.chat.completions.create(
        model="reviewed",
        messages=[{"role": "user", "content": "Mend it."}],
        stream=True,
        stream_options={"include_usage": True},
    )
    text, reasoning, bill = "", "", None
    for chunk in stream:
        bill = chunk.usage or bill
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
    assert text == ANSWER
    assert "Reviewing." in reasoning
    assert bill is not None


def test_openai_responses(client: openai.OpenAI) -> None:
    """The quick-start of Responses, and a second turn in its thread."""
    response = client.responses.create(model="reviewed", instructions="Be kind.", input="Mend it.")
    assert response.output_text == ANSWER
    more = client.responses.create(
        model="answer", input="NAME what you did.", previous_response_id=response.id
    )
    assert more.output_text == TITLE
    assert client.responses.retrieve(more.id).output_text == TITLE


def test_openai_responses_stream(client: openai.OpenAI) -> None:
    """The library joins the events to a whole response."""
    with client.responses.stream(model="reviewed", input="Mend it.") as stream:
        types = [event.type for event in stream]
        final = stream.get_final_response()
    assert final.output_text == ANSWER
    assert (types[0], types[-1]) == ("response.created", "response.completed")


def test_openai_background_and_cancel(client: openai.OpenAI) -> None:
    """Asked for now, looked up later; cancelled, its processes are gone when the answer comes."""
    response = client.responses.create(model="answer", input="SLOW down.", background=True)
    while response.status in ("queued", "in_progress"):
        time.sleep(0.1)
        response = client.responses.retrieve(response.id)
    assert (response.status, response.output_text) == ("completed", "Slowly done")
    sleeping = client.responses.create(model="reviewed", input="SLEEP on it.", background=True)
    wait_for_process()
    cancelled = client.responses.cancel(sleeping.id)
    assert cancelled.status == "cancelled"
    assert not processes_with(NONCE)


def wait_for_process() -> None:
    deadline = time.monotonic() + 30
    while not processes_with(NONCE):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_openai_background_stream_resumes(client: openai.OpenAI) -> None:
    """A stream that is given up goes on where it stopped."""
    begun = client.responses.create(model="reviewed", input="Mend it.", background=True, stream=True)
    first = [next(begun) for _ in range(3)]
    begun.close()
    response_id = first[0].response.id  # pyright: ignore[reportAttributeAccessIssue] - of its first events each has it
    rest = client.responses.retrieve(response_id, stream=True, starting_after=first[-1].sequence_number)
    events = [*first, *rest]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == ANSWER


def test_openai_errors_and_models(client: openai.OpenAI, served: Served) -> None:
    """R73: each error is the library's own kind; one try only, where another would be paid for again."""
    assert {model.id for model in client.models.list()} >= {"reviewed", "answer"}
    assert client.models.retrieve("answer").id == "answer"
    with pytest.raises(openai.NotFoundError) as unknown:
        client.responses.create(model="gpt-nope", input="x")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(
            model="answer",
            messages=[{"role": "user", "content": "x"}],
            tools=[{"type": "function", "function": {"name": "f"}}],
        )
    assert refused.value.param == "tools"
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="rk_nope").models.list()
    before = count_runs(served)
    with pytest.raises(openai.InternalServerError) as failed:
        client.chat.completions.create(model="answer", messages=[{"role": "user", "content": "FAIL it."}])
    assert (failed.value.status_code, failed.value.code) == (502, "provider/auth")
    assert count_runs(served) == before + 1
    with pytest.raises(openai.APIError, match="credentials"):
        list(
            client.chat.completions.create(
                model="answer", messages=[{"role": "user", "content": "FAIL it."}], stream=True
            )
        )


def count_runs(served: Served) -> int:
    with served.client() as client:
        return len(client.get("/api/v1/runs?limit=500").json()["data"])


def test_openai_timeouts_end_their_runs(client: openai.OpenAI, served: Served) -> None:
    """R4: the library gives up, and tries again twice: every run that it left is cancelled."""
    before = count_runs(served)
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.5).chat.completions.create(
            model="answer", messages=[{"role": "user", "content": "THINK about it."}]
        )
    with served.client() as look:
        runs = look.get("/api/v1/runs?limit=500").json()["data"]
    left = runs[: len(runs) - before]
    assert 1 <= len(left) <= 3
    ends = [served.ended(run["id"]).terminal for run in left]
    assert {end.code if end is not None else None for end in ends} == {"client_disconnected"}


# ---- Anthropic


def ask(text: str = "Mend it.", *, model: str = "reviewed", **fields: Any) -> dict[str, Any]:
    return {"model": model, "max_tokens": 1024, "messages": [{"role": "user", "content": text}], **fields}


def test_anthropic_messages(claude: anthropic.Anthropic) -> None:
    """The quick-start of Messages."""
    message = claude.messages.create(**ask())
    block = message.content[0]
    assert block.type == "text"
    assert block.text == ANSWER
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens > 0


def test_anthropic_messages_stream(claude: anthropic.Anthropic) -> None:
    """The library joins the events to a whole message; thinking only where it was asked for."""
    with claude.messages.stream(**ask(system="Be kind.")) as stream:
        assert "".join(stream.text_stream) == ANSWER
        assert [block.type for block in stream.get_final_message().content] == ["text"]
    with claude.messages.stream(**ask(thinking={"type": "adaptive"})) as stream:
        final = stream.get_final_message()
    assert [block.type for block in final.content] == ["thinking", "text"]
    again: list[Any] = [*ask()["messages"], {"role": "assistant", "content": final.content}]
    again.append({"role": "user", "content": "NAME it."})
    named = claude.messages.create(model="answer", max_tokens=99, messages=again)
    assert named.content[0].type == "text"
    assert named.content[0].text == TITLE


def test_anthropic_helpers_and_errors(claude: anthropic.Anthropic, served: Served) -> None:
    """R76: tokens are counted, models listed; each error is the library's own kind, and final ones final."""
    counted = claude.messages.count_tokens(
        model="reviewed", messages=[{"role": "user", "content": "Mend it."}]
    )
    assert counted.input_tokens > 0
    assert {model.id for model in claude.models.list()} >= {"reviewed", "answer"}
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(**ask(model="claude-nope"))
    before = count_runs(served)
    with pytest.raises(anthropic.InternalServerError):
        claude.messages.create(**ask("FAIL it.", model="answer"))
    assert count_runs(served) == before + 1
    with (
        pytest.raises(anthropic.APIStatusError, match="credentials"),
        claude.messages.stream(**ask("FAIL it.", model="answer")) as stream,
    ):
        stream.get_final_message()
