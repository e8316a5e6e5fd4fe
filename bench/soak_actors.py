"""What the clients of the soak do: each play is one run, followed to its end in some unfriendly way."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import httpx2

ENDS = frozenset({"completed", "failed", "cancelled", "indeterminate"})
RUN_S = 300.0
"""A run that hasn't ended after this has hung."""


class Broken(RuntimeError):
    """A promise wasn't kept."""


@dataclass(slots=True)
class Crowd:
    """Clients of one host, and what has come of their runs."""

    client: httpx2.AsyncClient
    random: random.Random
    ended: Counter[str] = field(default_factory=Counter[str])
    """Runs by how they ended."""
    acts: Counter[str] = field(default_factory=Counter[str])
    """What was done to them."""
    broken: list[str] = field(default_factory=list[str])
    """Promises that weren't kept."""

    async def play_until(self, stop: asyncio.Event, at_once: int) -> None:
        """Keep so many runs going until it is enough, and follow each to its end."""
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(self._play_on(stop))

    async def _play_on(self, stop: asyncio.Event) -> None:
        plays: list[Callable[[], Awaitable[str]]] = [
            self.watch_it_through,
            self.leave_and_come_back,
            self.wait_for_it,
            self.cancel_in_a_tool,
            self.cancel_at_once,
            self.chat,
            self.hang_up,
        ]
        while not stop.is_set():
            play = self.random.choice(plays)
            try:
                async with asyncio.timeout(RUN_S):
                    await self._check(await play(), play.__name__)
            except (Broken, TimeoutError) as error:
                self.broken.append(f"{play.__name__}: {str(error) or 'nothing came of it'}")

    # ---- plays

    async def watch_it_through(self) -> str:
        """Follow the events from the first to the last."""
        run_id = await self._create()
        await self._follow(run_id, leave_after=lambda: None)
        return run_id

    async def leave_and_come_back(self) -> str:
        """Hang up on the stream again and again, and resume it each time."""
        run_id = await self._create()
        await self._follow(run_id, leave_after=lambda: self.random.randrange(1, 7))
        return run_id

    async def wait_for_it(self) -> str:
        """Ask once, and wait."""
        return await self._create(wait_ms=200_000)

    async def cancel_in_a_tool(self) -> str:
        """Cancel while a command runs."""
        run_id = await self._create("[block] Look at it.")
        async with aclosing(self._events(run_id, 0)) as events:
            async for event in events:
                if event["type"] == "tool.started":
                    break
        await self._cancel(run_id)
        return run_id

    async def cancel_at_once(self) -> str:
        """Cancel somewhere on the way."""
        run_id = await self._create()
        await asyncio.sleep(self.random.random() * 2)
        await self._cancel(run_id)
        return run_id

    async def chat(self) -> str:
        """Come by OpenAI's door, and read the answer."""
        async with self._ask_chat("Look at it.") as answer:
            text = "".join([line async for line in answer.aiter_lines()])
        if "All is well." not in text or "[DONE]" not in text:
            raise Broken(f"a chat was answered with {text[-300:]!r}")
        return answer.headers["x-remit-run-id"]

    async def hang_up(self) -> str:
        """Come by OpenAI's door, and leave in the middle."""
        async with self._ask_chat("[block] Look at it.") as answer:
            run_id = answer.headers["x-remit-run-id"]
            await asyncio.sleep(self.random.random() * 4)
        return run_id

    # ---- calls

    async def _create(self, prompt: str = "Look at it.", *, wait_ms: int = 0) -> str:
        body = {"binding": "reviewed", "prompt": prompt}
        answer = await self.client.post("/api/v1/runs", params={"wait_ms": wait_ms}, json=body)
        if answer.status_code not in {201, 202}:
            raise Broken(f"a run was refused: {answer.status_code} {answer.text[:300]}")
        return answer.json()["id"]

    def _ask_chat(self, text: str) -> Any:
        body = {"model": "reviewed", "messages": [{"role": "user", "content": text}], "stream": True}
        return self.client.stream("POST", "/v1/chat/completions", json=body)

    async def _cancel(self, run_id: str) -> None:
        answer = await self.client.post(f"/api/v1/runs/{run_id}/cancel?wait_ms=200000", json={})
        said = answer.json()
        if answer.status_code != 200 or (said["changed"] and not said["receipt"]["complete"]):
            raise Broken(f"a cancel was answered with {answer.status_code} {answer.text}")

    async def _events(self, run_id: str, after: int) -> AsyncGenerator[dict[str, Any]]:
        headers = {"Last-Event-ID": str(after)} if after else {}
        async with self.client.stream("GET", f"/api/v1/runs/{run_id}/events", headers=headers) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data:"):
                    yield json.loads(line.removeprefix("data:"))

    async def _follow(self, run_id: str, *, leave_after: Callable[[], int | None]) -> None:
        """Read all events, in as many visits as it takes; none is missed and none comes twice."""
        last, kind = 0, ""
        while kind.removeprefix("run.") not in ENDS:
            visit, most, began = 0, leave_after(), last
            async with aclosing(self._events(run_id, last)) as events:
                async for event in events:
                    if event["seq"] is None:
                        continue
                    if event["seq"] != last + 1:
                        raise Broken(f"{run_id}: after event {last} came {event['seq']}")
                    last, kind, visit = event["seq"], event["type"], visit + 1
                    if most is not None and visit >= most:
                        break
            self.acts["visits"] += 1
            if most is None and last == began:
                raise Broken(f"{run_id}: a stream ended before its run, at event {last}")

    async def _check(self, run_id: str, play: str) -> None:
        """Wait for the run's end, and look whether it is the right one."""
        while True:
            view = (await self.client.get(f"/api/v1/runs/{run_id}")).json()
            if view["status"] in ENDS:
                break
            await asyncio.sleep(0.5)
        self.ended[view["status"]] += 1
        self.acts[play] += 1
        right = {
            "cancel_in_a_tool": {"cancelled"},
            "hang_up": {"cancelled"},
            "cancel_at_once": {"cancelled", "completed"},
        }
        if view["status"] not in right.get(play, {"completed"}):
            raise Broken(f"{run_id}: {play} ended {view['status']}: {view['terminal']}")
