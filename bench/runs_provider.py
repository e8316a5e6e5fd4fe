"""The provider that runs are measured against, in a process of its own: `python -m bench.runs_provider`.

It plays the same reviewed run to everybody who asks. One line of JSON comes out once it listens, and one for
each line that comes in; it serves until its standard input ends. With the word `forget` it keeps no record,
for those who go on for long and ask nothing.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

from remit.testing import FakeProvider, FakeToolCall, RecordedRequest, Reply

PLAN = {"plan": "Look at it, then say so.", "verification": "Nothing to run."}
WORK = {"completion": "Looked at it.", "verification": "It ran."}
REVIEW = {"decision": "pass", "output": "All is well.", "summary": "Nothing was to be done."}


def first(request: RecordedRequest) -> bool:
    """Whether no tool has been used yet in this conversation."""
    return all(message["role"] != "tool" for message in request.json["messages"])


def blocks(request: RecordedRequest) -> bool:
    """Whether the request's first tool is to wait."""
    return "[block]" in request.text and first(request)


def calls(request: RecordedRequest) -> bool:
    """Whether the request uses a tool, and hasn't yet."""
    return "[direct]" not in request.text and first(request)


def replies() -> list[Reply]:
    """A reviewed run of four calls and one tool call; `[block]` in the request makes its tool wait."""
    call = Reply(tool_calls=(FakeToolCall(name="run_shell", arguments=json.dumps({"command": "true"})),))
    block = Reply(
        tool_calls=(FakeToolCall(name="run_shell", arguments=json.dumps({"command": "sleep 600"})),)
    )
    told: list[Reply] = [
        Reply(text=json.dumps(PLAN), stage="plan"),
        replace(block, stage="work", when=blocks),
        replace(call, stage="work", when=calls),
        Reply(text=json.dumps(WORK), stage="work"),
        Reply(text=json.dumps(REVIEW), stage="review"),
        Reply(text="ok"),
    ]
    return [replace(reply, repeat=True) for reply in told]


def main() -> int:
    """Serve until standard input ends."""
    keep = 1 if "forget" in sys.argv[1:] else None
    with FakeProvider(replies(), keep_requests=keep) as provider:
        sys.stdout.write(json.dumps({"base_url": provider.base_url, "api_key": provider.api_key}) + "\n")
        sys.stdout.flush()
        seen = 0
        for _ in sys.stdin:  # each line asks when the first request since the last question came
            new = provider.requests[seen:]
            seen += len(new)
            answer = {"count": len(new), "first": new[0].arrived_at if new else None}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
