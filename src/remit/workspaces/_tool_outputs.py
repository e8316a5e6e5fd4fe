"""The whole outputs of a run's commands, kept on the node: a model is shown only a part of a long one."""

from __future__ import annotations

import asyncio
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["KeptOutputs", "OutputPart"]


@dataclass(frozen=True, slots=True)
class OutputPart:
    """Some of a kept text."""

    text: str
    stop_bytes: int
    """Where it ends, and the next part begins."""
    total_bytes: int


class KeptOutputs:
    """Files in one folder of the run's own, named by hashes: ids come from outside."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def keep(
        self, stage_id: str, tool_call_id: str, *, text: bytes, stdout: bytes, stderr: bytes
    ) -> None:
        """Stores the readable text, and the raw bytes of both streams beside it.

        Raises:
            OSError: there is no space, or the folder can't be used.
        """
        files = {"txt": text, "out": stdout, "err": stderr}
        await asyncio.to_thread(self._write, self._stem(stage_id, tool_call_id), files)

    def _write(self, stem: str, files: dict[str, bytes]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for suffix, data in files.items():
            fd = os.open(self._folder / f"{stem}.{suffix}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(data)

    async def read(
        self, stage_id: str, tool_call_id: str, *, offset_bytes: int, max_bytes: int
    ) -> OutputPart:
        """A part of the readable text, cut at characters.

        Raises:
            FileNotFoundError: none is kept of this call.
        """
        path = self._folder / f"{self._stem(stage_id, tool_call_id)}.txt"
        return cut_part(
            await asyncio.to_thread(path.read_bytes), offset_bytes=offset_bytes, max_bytes=max_bytes
        )

    def _stem(self, stage_id: str, tool_call_id: str) -> str:
        key = f"{stage_id}\0{tool_call_id}".encode("utf-8", "surrogatepass")
        return hashlib.sha256(key).hexdigest()[:32]


def cut_part(data: bytes, *, offset_bytes: int, max_bytes: int) -> OutputPart:
    """The part of UTF-8 bytes from an offset on, begun and ended at a character."""
    start = min(offset_bytes, len(data))
    while start < len(data) and data[start] & 0xC0 == 0x80:
        start += 1
    stop = min(len(data), start + max(4, max_bytes))
    while stop < len(data) and stop > start and data[stop] & 0xC0 == 0x80:
        stop -= 1
    return OutputPart(data[start:stop].decode("utf-8", "replace"), stop, len(data))
