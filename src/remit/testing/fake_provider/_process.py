"""The fake provider as a process of its own, so that a bench doesn't count its work."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self


class FakeProviderProcess:
    """Starts `python -m remit.testing.fake_provider`, and ends it when the context ends.

    Args:
        replies: Replies as JSON data (`Reply.from_json`).
        delay_ms: Wait before every answer.
    """

    def __init__(self, replies: Sequence[Mapping[str, Any]], *, delay_ms: int = 0) -> None:
        self._settings = {"replies": list(replies), "delay_ms": delay_ms}
        self.process: subprocess.Popen[str] | None = None
        self.base_url = ""
        self.api_key = ""

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "remit.testing.fake_provider"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(self._settings) + "\n")
        self.process.stdin.flush()
        ready = json.loads(self.process.stdout.readline())
        self.base_url, self.api_key = ready["base_url"], ready["api_key"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self.process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()  # it ends when its input does, so it dies with us too
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
