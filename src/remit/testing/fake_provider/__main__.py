"""`python -m remit.testing.fake_provider`: settings as one line of JSON in, address as one line out.

Settings: `{"replies": [...], "delay_ms": 0}`. It serves until its standard input ends.
"""

from __future__ import annotations

import json
import sys

from remit.testing.fake_provider._provider import FakeProvider
from remit.testing.fake_provider._reply import Reply


def main() -> int:
    """Serve until standard input ends."""
    settings = json.loads(sys.stdin.readline())
    replies = [Reply.from_json(reply) for reply in settings["replies"]]
    with FakeProvider(replies, delay_ms=settings.get("delay_ms", 0)) as provider:
        sys.stdout.write(json.dumps({"base_url": provider.base_url, "api_key": provider.api_key}) + "\n")
        sys.stdout.flush()
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
