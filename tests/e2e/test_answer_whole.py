"""Profile `answer`, and pictures: a real host, and a provider that is played over real HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from remit.errors import InvalidRequest
from remit.host import Run
from remit.testing import Reply
from whole_kit import MODEL, Ended, World, judged, planned, use, worked

PICTURE = "data:image/png;base64,iVBORw0KGgo="


def ask(**fields: Any) -> dict[str, Any]:
    return {"binding": "title", "prompt": "Name this chat.", **fields}


@pytest.fixture
def answering(world: World) -> World:
    """The same world, with a binding that answers plainly."""
    world.settings = {
        "bindings": {"title": {"profile": "answer", "work": {"model": MODEL}, "instructions": "Be short."}},
    }
    return world


async def _run(world: World, **fields: Any) -> Ended:
    async with world.host() as host:
        return await Ended.of(host, await host.start(ask(**fields)))


async def test_one_plain_call_and_nothing_else(answering: World) -> None:
    """No workspace, review, patch, delivery, checks, tools or form: what the model says is the output."""
    answering.fake.script(Reply(text="A calm chat"))
    ended = await _run(answering)
    view = ended.view
    assert (view.status, view.output, view.profile) == ("completed", "A calm chat", "answer")
    nothing = (view.workspace, view.review, view.patch, view.delivery)
    assert nothing == (None, None, None, None)
    assert view.checks == ()
    assert view.usage is not None
    assert view.usage.complete
    assert list(view.usage.by_stage) == ["work"]
    sent = answering.fake.requests[0].json
    assert "tools" not in sent
    assert [(one["role"], one["content"]) for one in sent["messages"]] == [
        ("system", "Be short."),
        ("user", "Name this chat."),
    ]
    statuses = [event.data["status"] for event in ended.events if event.type == "stage.started"]
    assert statuses == ["working"]
    assert "run.finalizing" not in ended.types
    ended.check_story()


async def test_earlier_turns_are_turns(answering: World) -> None:
    """What was said before goes out as it was said, pictures too; the last word is the request."""
    answering.fake.script(Reply(text="Blue"))
    earlier = [
        {"role": "assistant", "text": "Hello."},
        {"role": "user", "text": "What is this?", "images": [PICTURE]},
        {"role": "assistant", "text": "A square."},
    ]
    ended = await _run(answering, prompt="Its colour?", earlier=earlier, instructions="No jokes.")
    assert ended.view.output == "Blue"
    messages = answering.fake.requests[0].json["messages"]
    assert [one["role"] for one in messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert messages[0]["content"] == "Be short.\n\nNo jokes."
    assert messages[3]["content"][1]["image_url"]["url"] == PICTURE


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply(text="cut off", finish="length"), "cut"),
        (Reply(text=" \n"), "empty_result"),
        (Reply(refusal="No."), "refusal"),
    ],
)
async def test_what_is_no_answer_fails(answering: World, reply: Reply, code: str) -> None:
    """R69, R86: a cut, withheld or empty reply never becomes an answer."""
    answering.fake.script(reply)
    ended = await _run(answering)
    assert ended.ending[:3] == ("failed", "provider", code)
    assert ended.view.output is None


async def test_an_answer_is_cancelled_like_any_run(answering: World) -> None:
    """Stop means stopped: the upstream call is closed, and the run is cancelled with its receipt."""
    answering.fake.script(Reply(text="late", delay_ms=60_000))

    async def cancel(run: Run) -> None:
        request = (await asyncio.to_thread(answering.fake.wait_for_requests, 1))[0]
        assert (await run.cancel()).changed
        assert await asyncio.to_thread(request.wait, 10)
        assert request.hung_up

    async with answering.host() as host:
        run = await host.start(ask())
        await cancel(run)
        ended = await Ended.of(host, run)
    assert ended.ending[:3] == ("cancelled", "cancelled", "caller")
    assert ended.view.cancel is not None
    assert ended.view.cancel.complete


def test_from_the_command_line(answering: World) -> None:
    """`remit run -b NAME` of such a binding needs no workspace: stdout is the answer alone."""
    answering.fake.script(Reply(text="A calm chat"))
    process = answering.start_run("-b", "title")
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, "A calm chat\n"), errors


async def test_pictures_reach_every_stage_or_are_refused(world: World) -> None:
    """A picture passes where the stage's model takes pictures, and is refused by name where none does."""
    content = [{"type": "text", "text": "Build what it shows."}, {"type": "image", "url": PICTURE}]
    world.fake.script(planned(), use("list_files"), worked(), judged())
    ended = await world.run(delivery="patch", prompt=None, content=content)
    assert ended.view.status == "completed"
    assert all(PICTURE in request.text for request in world.fake.requests)
    with pytest.raises(InvalidRequest) as refused:
        await world.run(delivery="patch", prompt=None, content=content, model="fake:gpt-3.5-turbo")
    assert refused.value.fields["param"] == "content"
