"""What tests of models share: a clock that doesn't wait, a ledger that remembers, requests and pools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from remit.contract import ToolSpec
from remit.models import (
    AttemptFinish,
    AttemptStart,
    Delta,
    Message,
    ModelReply,
    ModelRequest,
    Pool,
    PoolMember,
    PoolSettings,
    Prices,
    Providers,
    ProviderSettings,
    SystemMessage,
    UserMessage,
    build_pool,
)
from remit.primitives import Secret, SystemIds
from remit.testing import FakeProvider

READ_TOOL = ToolSpec(
    name="read_file",
    description="Read a file.",
    parameters={
        "type": "object",
        "properties": {"relative_path": {"type": "string"}},
        "required": ["relative_path"],
    },
    effect="read",
)
SUBMIT_TOOL = ToolSpec(
    name="submit_work", description="Hand in.", parameters={"type": "object", "properties": {}}, effect="read"
)
PROMPT: tuple[Message, ...] = (SystemMessage(text="You work."), UserMessage(text="Do it."))


_SDKS = {"anthropic": "anthropic", "google": "google.genai", "vertex": "google.genai"}


def need_sdk(kind: str) -> None:
    """Skip a test of a provider kind whose extra isn't installed."""
    module = _SDKS.get(kind)
    if module is not None:
        pytest.importorskip(module, reason=f"the extra of provider kind {kind} isn't installed")


class JumpingClock:
    """A clock that moves only when somebody sleeps on it, and then at once."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self._elapsed = 0.0
        self._start = datetime(2026, 11, 30, 12, tzinfo=UTC)

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return 1_000.0 + self._elapsed

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._elapsed += max(0.0, seconds)
        await asyncio.sleep(0)


@dataclass
class MemoryLedger:
    """Remembers attempts, and holds the pool to the rules of `AttemptLedger`."""

    starts: list[AttemptStart] = field(default_factory=list)
    ends: list[AttemptFinish] = field(default_factory=list)
    grants: int | None = None
    refuses: Exception | None = None
    delay_s: float = 0.0
    waits: int = 0

    @contextmanager
    def waiting(self) -> Generator[None]:
        assert len(self.ends) == len(self.starts), "an open attempt doesn't wait"
        self.waits += 1
        yield

    async def begin(self, start: AttemptStart) -> int:
        assert all(start.attempt_id != earlier.attempt_id for earlier in self.starts)
        assert len(self.ends) == len(self.starts), "an attempt began while another was open"
        if self.refuses is not None:
            raise self.refuses
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        self.starts.append(start)
        return start.max_output_tokens if self.grants is None else self.grants

    async def end(self, finish: AttemptFinish) -> None:
        assert finish.attempt_id == self.starts[-1].attempt_id
        assert len(self.ends) == len(self.starts) - 1, "an attempt ended twice"
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        self.ends.append(finish)

    @property
    def last(self) -> AttemptFinish:
        """How the newest attempt ended."""
        return self.ends[-1]

    @property
    def statuses(self) -> list[str]:
        """How each attempt ended."""
        return [finish.status for finish in self.ends]


def request(
    *messages: Message,
    tools: tuple[ToolSpec, ...] = (READ_TOOL, SUBMIT_TOOL),
    options: Mapping[str, Any] | None = None,
    run_id: str = "run_01",
    stage_id: str = "work-1",
    max_output_tokens: int | None = None,
) -> ModelRequest:
    return ModelRequest(
        run_id=run_id,
        stage_id=stage_id,
        round=1,
        messages=messages or PROMPT,
        tools=tools,
        options=options or {},
        max_output_tokens=max_output_tokens,
    )


async def ask(
    pool: Pool,
    what: ModelRequest | None = None,
    *,
    ledger: MemoryLedger | None = None,
    deltas: list[Delta] | None = None,
    remaining_s: float | None = None,
) -> ModelReply:
    return await pool.request(
        what or request(),
        ledger=ledger or MemoryLedger(),
        on_delta=([] if deltas is None else deltas).append,
        remaining_s=lambda: remaining_s,
    )


@asynccontextmanager
async def pool_for(
    fake: FakeProvider,
    *,
    model: str = "gpt-4.1",
    kind: str = "openai-chat",
    clock: JumpingClock | None = None,
    prices: Prices | None = None,
    member: Mapping[str, Any] | None = None,
    shared: Providers | None = None,
    **settings: Any,
) -> AsyncGenerator[Pool]:
    """A pool of one model of the fake provider, over real HTTP and the real SDK."""
    values: dict[str, Any] = {
        "name": "fake",
        "kind": kind,
        "base_url": fake.base_url,
        "api_key": Secret(fake.api_key),
        **settings,
    }
    pool = build_pool(
        PoolSettings(name="default", members=(PoolMember(model=f"fake:{model}", **(member or {})),)),
        {"fake": ProviderSettings(**values)},
        clock=clock or JumpingClock(),
        ids=SystemIds(),
        prices=prices,
        shared=shared,
    )
    await pool.prepare()
    try:
        yield pool
    finally:
        if shared is None:
            await pool.aclose()
