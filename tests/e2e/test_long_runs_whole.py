"""Runs that outgrow their window or their limits, whole: they go on, and they end with an answer."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from git_repository import git, write
from remit.testing import FakeToolCall, RecordedRequest, Reply
from whole_kit import MODEL, NO_CHECKS, World, calls, judged, planned, tool, worked

FILES = 8


@pytest.fixture(autouse=True)
def _without_checks(world: World) -> None:
    world.workspace = dict(NO_CHECKS)


def shortened(request: RecordedRequest) -> bool:
    return "Left out to save room" in request.text


async def test_a_run_outgrows_its_window_and_reads_an_old_result_again(world: World) -> None:
    """R28: old results give way, and the call that stands in their place brings one back."""
    write(world.root, {f"big{n}.txt": f"file {n} begins\n" + "some text\n" * 1_200 for n in range(FILES)})
    git(world.root, "add", "-A")
    git(world.root, "commit", "-q", "-m", "large files")
    member = {"model": MODEL, "context_window_tokens": 20_000, "max_output_tokens": 2_000}
    world.settings = {"pools": {"default": {"members": [member]}}}
    first = FakeToolCall(
        name="read_file", arguments=json.dumps({"relative_path": "big0.txt"}), id="call_first"
    )
    looks = [calls(first), *(calls(tool("read_file", relative_path=f"big{n}.txt")) for n in range(1, FILES))]
    again = replace(calls(tool("read_output", tool_call_id="call_first", offset_bytes=0)), when=shortened)
    replies = [*looks, again, worked()]
    world.fake.script(
        replace(planned(), stage="plan"),
        *(replace(reply, stage="work") for reply in replies),
        replace(judged(), stage="review"),
    )
    ended = await world.run(model=None)
    assert ended.ending == ("completed", None, None), ended.results[-1:]
    ended.check_story()
    assert len(ended.results) == FILES + 1
    assert all(
        result["content"].startswith(f"file {n} begins") for n, result in enumerate(ended.results[:-1])
    )
    assert ended.results[-1]["content"].startswith("file 0 begins")
    sent = [len(request.body) for request in world.fake.requests if request.stage == "work"]
    assert max(sent) < 20_000 * 4
    assert not world.fake.unused


async def test_the_last_request_within_a_token_limit_is_answered(world: World) -> None:
    """R13: a model that would go on for ever is told in time, and the run completes."""
    usage = {"prompt_tokens": 3_000, "completion_tokens": 500, "total_tokens": 3_500}

    def withheld(request: RecordedRequest) -> bool:
        return request.tool_names == ("submit_work",)

    answer = replace(worked("What there was time for."), stage="work", usage=usage, when=withheld)
    look = calls(tool("read_file", relative_path="README.md"))
    world.fake.script(answer, replace(look, stage="work", usage=usage, repeat=True))
    ended = await world.run(profile="direct", delivery="patch", limits={"max_total_tokens": 60_000})
    assert ended.ending == ("completed", None, None)
    assert ended.view.output == "What there was time for."
    assert ended.bill.total_tokens is not None
    assert 30_000 <= ended.bill.total_tokens <= 60_000
    assert [data["kind"] for data in ended.of_type("limit.warning")] in ([], ["max_total_tokens"])
    ended.check_story()


async def test_a_window_smaller_than_was_known_costs_one_refused_attempt(world: World) -> None:
    """R56: `context_length` is answered by a shorter request, once; the refused one cost nothing."""
    too_long = Reply(
        status=400,
        body={"error": {"message": "maximum context length exceeded", "code": "context_length_exceeded"}},
    )
    look = calls(tool("read_file", relative_path="README.md"))
    write(world.root, {"README.md": "some text\n" * 1_000})
    world.fake.script(
        replace(planned(), stage="plan"),
        *(replace(reply, stage="work") for reply in (look, look, look, too_long, worked())),
        replace(judged(), stage="review"),
    )
    ended = await world.run()
    assert ended.ending == ("completed", None, None)
    (failed,) = ended.of_type("attempt.failed")
    assert (failed["code"], failed["usage"]["coverage"]) == ("context_length", "refused")
    assert ended.bill.complete
    bodies = [len(request.body) for request in world.fake.requests if request.stage == "work"]
    assert bodies[-1] < bodies[-2] * 0.7
    ended.check_story()
