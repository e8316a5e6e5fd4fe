"""What becomes of a provider's faults: over real HTTP, through the real SDK, to the ledger's last word."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import Any

import pytest

from model_kit import JumpingClock, MemoryLedger, ask, pool_for, request
from remit.errors import ProviderError
from remit.models import Delta, TextBlock
from remit.primitives import Secret
from remit.testing import FakeProvider, FakeToolCall, OpenAIChatDialect, Reply

COMPATIBLE = OpenAIChatDialect(models=None)
ODD = "x\u0085y\u2028z\u2029w\u000bv"
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
        **more,
    }


def stream(*records: Any, end: str = "\n", plain: bool = False) -> bytes:
    lines = [item if isinstance(item, str) else json.dumps(item, ensure_ascii=plain) for item in records]
    return "".join(f"data: {line}{end}{end}" for line in lines).encode()


GOOD = stream(chunk({"content": "whole"}), chunk({}, "stop"), chunk(choices=[], usage=USAGE), "[DONE]")


async def failure(
    *replies: Reply, dialect: OpenAIChatDialect | None = None, **settings: Any
) -> tuple[ProviderError, MemoryLedger, FakeProvider]:
    ledger = MemoryLedger()
    with FakeProvider(list(replies), dialect=dialect) as fake:
        async with pool_for(fake, **settings) as pool:
            with pytest.raises(ProviderError) as caught:
                await ask(pool, ledger=ledger)
    return caught.value, ledger, fake


async def success(*replies: Reply, **settings: Any) -> tuple[Any, MemoryLedger]:
    ledger = MemoryLedger()
    with FakeProvider(list(replies), dialect=COMPATIBLE) as fake:
        async with pool_for(fake, kind="openai-compatible", **settings) as pool:
            reply = await ask(pool, ledger=ledger)
    return reply, ledger


# Error answers.


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (401, None, "auth"),
        (403, None, "auth"),
        (404, None, "unavailable"),
        (400, {"error": {"message": "no", "code": "context_length_exceeded"}}, "context_length"),
        (400, {"error": {"message": "This model's maximum context length is 8192 tokens"}}, "context_length"),
        (413, "too large", "context_length"),
        (400, {"error": {"message": "filtered", "code": "content_filter"}}, "content_filter"),
        (400, {"error": {"message": "bad"}}, "protocol"),
        (422, {"detail": [{"msg": "x"}]}, "protocol"),
        (402, {"error": {"message": "Insufficient credits"}}, "rate_limited"),
        (429, {"error": {"message": "quota", "code": "insufficient_quota"}}, "rate_limited"),
        (302, "moved", "protocol"),
    ],
)
async def test_errors_that_cannot_get_better(status: int, body: Any, reason: str) -> None:
    """R56: one try, 0 tokens, and what the provider said in the attempt's record alone."""
    error, ledger, fake = await failure(Reply(status=status, body=body, repeat=True))
    assert error.reason == reason
    assert len(fake.requests) == 1
    assert ledger.statuses == ["refused"]
    assert ledger.last.code == reason
    assert (ledger.last.usage.coverage, ledger.last.usage.total_tokens) == ("refused", 0)
    assert f"HTTP {status}" in (ledger.last.detail or "")
    assert ledger.last.provider_request_id == "req_fake000001"


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_errors_that_may_get_better(status: int) -> None:
    """R22, R52: asked again; each attempt has a row of its own, and good ones aren't asked again."""
    ledger = MemoryLedger()
    with FakeProvider([Reply(status=status), Reply(text="ok")]) as fake:
        async with pool_for(fake) as pool:
            reply = await ask(pool, ledger=ledger)
        assert len(fake.requests) == 2
    assert reply.message.text == "ok"
    assert ledger.statuses == ["refused", "completed"]
    assert ledger.ends[0].code == ("rate_limited" if status == 429 else "unavailable")


async def test_five_attempts_and_the_sdk_adds_none() -> None:
    """R53: one owner of retries: the SDK's own are off."""
    error, ledger, fake = await failure(Reply(status=500, repeat=True))
    assert (error.reason, len(fake.requests), len(ledger.ends)) == ("unavailable", 5, 5)


async def test_should_retry_says_no() -> None:
    """R56: a provider that says so isn't asked again."""
    _, _, fake = await failure(Reply(status=503, headers={"x-should-retry": "false"}, repeat=True))
    assert len(fake.requests) == 1


async def test_retry_after_from_the_wire() -> None:
    """R52: the header reaches the pool; the pause is told with the attempt that waited."""
    clock, ledger = JumpingClock(), MemoryLedger()
    limited = Reply(status=429, headers={"x-ratelimit-reset-tokens": "6m0s"})
    with FakeProvider([limited, Reply(text="ok")]) as fake:
        async with pool_for(fake, clock=clock) as pool:
            await ask(pool, ledger=ledger)
    assert ledger.last.waited_ms >= 360_000


@pytest.mark.parametrize("key", ["sk-test-0123456789abcdef01234567", "ab+/=cdef0123456789==", "k7"])
async def test_an_answer_that_echoes_the_key(key: str) -> None:
    """R79: the key is masked in what is stored and in what is raised; so is one in a header."""
    body = {
        "error": {"message": f"Bad key {key} (k). Token tok-987654321 too.", "type": "invalid_request_error"}
    }
    dialect = OpenAIChatDialect(api_key=key)
    error, ledger, _ = await failure(
        Reply(status=401, body=body), dialect=dialect, headers={"X-Extra": Secret("tok-987654321")}
    )
    shown = f"{ledger.last.detail} {error.message} {error.fields}"
    assert key not in shown.replace("[redacted]", "")
    assert "tok-987654321" not in shown
    assert "Bad key [redacted] (k)." in shown


async def test_something_else_that_echoes_the_key() -> None:
    """R79: what is quoted of a strange reply is masked too, in the stream and in place of one."""
    key = "sk-test-0123456789abcdef01234567"
    for raw in (
        f"<p>You sent {key}</p>".encode(),
        stream({"error": {"message": f"bad key {key}", "code": 400}}),
    ):
        _, ledger, _ = await failure(Reply(raw=raw), dialect=OpenAIChatDialect(models=None, api_key=key))
        assert key not in str(ledger.last)
        assert "[redacted]" in (ledger.last.detail or "")


async def test_a_long_error_body() -> None:
    """R79: what is stored of an error is bounded, and so is what is read of it."""
    error, ledger, fake = await failure(Reply(status=400, body="x" * 5_000_000))
    assert len(ledger.last.detail or "") <= 2_000
    assert error.reason == "protocol"
    assert fake.requests[0].sent_bytes < 5_000_000 or fake.requests[0].ended.is_set()


async def test_nobody_listens() -> None:
    """R22: a connection that never was cost nothing; it is tried again, then the provider is unavailable."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{holder.getsockname()[1]}/v1"
        error, ledger, _ = await failure(base_url=url)
    assert error.reason == "unavailable"
    assert ledger.statuses == ["failed"] * 5
    assert {end.usage.coverage for end in ledger.ends} == {"refused"}


# Streams that break off.


async def test_a_stream_cut_at_every_byte() -> None:
    """R21, R69: whole only once the end was seen; a cut one is asked for again, and isn't free.

    The stream is cut after each of its bytes, as a clean close and in the middle of the chunked framing.
    """
    finish_at = GOOD.index(b'"stop"}]}') + len(b'"stop"}]}')
    cuts = [*range(0, len(GOOD), 3), *range(finish_at - 1, finish_at + 3)]
    for framing in ("close", "chunked"):
        replies = [Reply(raw=GOOD, framing=framing, break_after_bytes=cut) for cut in cuts]
        ledger = MemoryLedger()
        with FakeProvider(dialect=COMPATIBLE) as fake:
            async with pool_for(fake, kind="openai-compatible") as pool:
                for cut, reply in zip(cuts, replies, strict=True):
                    before = len(ledger.ends)
                    fake.script(reply, Reply(text="again"))
                    got = await ask(pool, ledger=ledger)
                    ends = ledger.ends[before:]
                    if cut < finish_at:
                        assert (got.message.text, [end.status for end in ends][1:]) == (
                            "again",
                            ["completed"],
                        )
                        assert ends[0].status in ("cut", "failed")
                        assert ends[0].usage.coverage == "interrupted"
                        assert ends[0].usage.total_tokens is None, "nothing was measured"
                    else:
                        assert (got.message.text, [end.status for end in ends]) == ("whole", ["completed"])
                        assert (await ask(pool, ledger=ledger)).message.text == "again"


async def test_a_complete_stream_with_an_odd_tail() -> None:
    """R69: what follows the end mark changes nothing, and is flagged: text, a broken connection, silence."""
    for reply in (
        Reply(raw=GOOD, tail=b""),
        Reply(raw=GOOD + b"data: {}\n\n"),
        Reply(raw=GOOD + b"garbage", framing="close"),
        Reply(raw=GOOD, break_after_bytes=len(GOOD), break_how="reset"),
        Reply(raw=GOOD, break_after_bytes=len(GOOD), break_how="hang"),
    ):
        got, ledger = await success(reply)
        assert got.message.text == "whole"
        assert got.usage.coverage == "reported"
        assert ledger.statuses == ["completed"]
        assert (got.usage.flags == ("odd_tail",)) is (
            reply.raw != GOOD or reply.break_after_bytes is not None
        )


async def test_a_stream_without_done() -> None:
    """R69: the reason why the model stopped is an end; a stream without either is cut."""
    whole = stream(chunk({"content": "whole"}), chunk({}, "stop"), chunk(choices=[], usage=USAGE))
    got, _ = await success(Reply(raw=whole, framing="close"))
    assert (got.message.text, got.usage.coverage) == ("whole", "reported")
    half = stream(chunk({"content": "half"}))
    error, ledger, _ = await failure(Reply(raw=half, framing="close", repeat=True), dialect=COMPATIBLE)
    assert (error.reason, ledger.statuses) == ("cut", ["cut"] * 5)


async def test_done_without_a_reason() -> None:
    """R69: `[DONE]` is the end mark, also of servers that give no reason."""
    got, _ = await success(Reply(raw=stream(chunk({"content": "x"}), "[DONE]")))
    assert (got.message.text, got.finish, got.usage.coverage) == ("x", "stop", "missing")


@pytest.mark.parametrize("word", ["error", "insufficient_system_resource", "abort"])
async def test_a_provider_that_says_it_broke_off(word: str) -> None:
    """R69: a stream that says that it was cut is incomplete, whatever its end mark."""
    got, ledger = await success(Reply(raw=stream(chunk({"content": "ha"}, word), "[DONE]")), Reply(text="ok"))
    assert (got.message.text, ledger.statuses) == ("ok", ["cut", "completed"])


async def test_usage_in_each_chunk() -> None:
    """R19, R75: cumulative counters: the last wins; cut off, they are a lower bound."""
    records = [
        chunk({"content": "a"}, usage={"prompt_tokens": 100, "completion_tokens": n, "total_tokens": 100 + n})
        for n in (1, 5, 9)
    ]
    got, _ = await success(Reply(raw=stream(*records, chunk({}, "stop", usage=USAGE), "[DONE]")))
    assert (got.usage.output_tokens, got.usage.coverage) == (10, "reported")
    _, ledger = await success(Reply(raw=stream(*records), framing="close"), Reply(text="ok"))
    cut = ledger.ends[0].usage
    assert (cut.input_tokens, cut.output_tokens, cut.coverage) == (100, 9, "interrupted")


async def test_two_attempts_are_two_bills() -> None:
    """R22: 100/10 then an error in the stream; then 100/20: the ledger has both, each once."""
    first = stream(chunk({"content": "a"}, usage=USAGE), {"error": {"message": "oops", "code": 502}})
    second = stream(
        chunk({"content": "b"}, "stop"),
        chunk(choices=[], usage={"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}),
        "[DONE]",
    )
    _, ledger = await success(Reply(raw=first), Reply(raw=second))
    assert [(end.usage.input_tokens, end.usage.output_tokens) for end in ledger.ends] == [
        (100, 10),
        (100, 20),
    ]
    assert [end.usage.coverage for end in ledger.ends] == ["interrupted", "reported"]


@pytest.mark.parametrize(
    ("error", "reason", "attempts"),
    [
        ({"message": "upstream", "code": 502}, "unavailable", 5),
        ({"message": "slow down", "code": "429"}, "rate_limited", 5),
        ({"message": "slow down", "type": "rate_limit_error"}, "rate_limited", 5),
        ({"message": "x", "code": "context_length_exceeded"}, "context_length", 1),
        ({"message": "x", "code": "content_filter"}, "content_filter", 1),
        ({"message": "x", "code": "insufficient_quota"}, "rate_limited", 1),
        ("just a text", "unavailable", 5),
        ({"type": "overloaded_error"}, "unavailable", 5),
    ],
)
async def test_an_error_object_in_the_stream(error: Any, reason: str, attempts: int) -> None:
    """R68, R69: an error after 200 is that error, never an end; what it used isn't known."""
    raw = stream(chunk({"content": "so far"}), {"error": error}, "[DONE]")
    caught, ledger, _ = await failure(Reply(raw=raw, repeat=True), dialect=COMPATIBLE)
    assert (caught.reason, len(ledger.ends)) == (reason, attempts)
    assert ledger.statuses[0] == "cut"
    assert ledger.last.usage.coverage == "interrupted"


async def test_an_error_event_and_an_error_body() -> None:
    """R69: `event: error`, and a JSON error with status 200."""
    raw = b'event: error\ndata: {"message": "gone", "code": 503}\n\n'
    caught, _, _ = await failure(Reply(raw=raw, repeat=True), dialect=COMPATIBLE)
    assert caught.reason == "unavailable"
    body = b'{"error": {"message": "context_length_exceeded"}}'
    caught, ledger, _ = await failure(Reply(raw=body, repeat=True), dialect=COMPATIBLE)
    assert (caught.reason, len(ledger.ends)) == ("context_length", 1)


# Streams that come oddly.


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [None, 1, 7])
async def test_separators_and_framings(end: str, size: int | None) -> None:
    """R70: U+0085, U+2028, U+2029 and VT unescaped in `data:`, all line ends, borders inside characters."""
    raw = stream(chunk({"content": f"中{ODD}😀"}), chunk({}, "stop", usage=USAGE), "[DONE]", end=end)
    raw = raw.replace(b"\\u000b", b"\x0b")
    assert "\u2028".encode() in raw
    assert b"\x0b" in raw
    got, _ = await success(Reply(raw=raw, piece_bytes=size))
    assert got.message.text == f"中{ODD}😀"
    assert got.usage.coverage == "reported"


async def test_odd_but_harmless_streams() -> None:
    """R75: a first chunk without choices, null deltas, comments, no blank lines, a BOM."""
    odd = (
        b"\xef\xbb\xbf: keep-alive\n\n"
        + stream(chunk(choices=[]), chunk(None), chunk({"role": "assistant", "content": None}))
        + b": ping\n\n"
        + b"data: "
        + json.dumps(chunk({"content": "a"})).encode()
        + b"\ndata: "
        + json.dumps(chunk({"content": "b"})).encode()
        + b"\n\n"
        + stream(
            {"choices": [{"index": 0, "message": {"content": "c"}, "finish_reason": "stop"}], "model": "m"}
        )
        + stream(chunk(choices=[], usage=USAGE), "[DONE]")
    )
    got, _ = await success(Reply(raw=odd))
    assert got.message.text == "abc"
    assert got.usage.flags == ("odd_framing",)


async def test_the_head_chunk_of_a_gateway() -> None:
    """R75: the strict fake's own odd forms: an empty head chunk, usage in each chunk."""
    reply = Reply(text="ok", head_chunk=True, usage_form="each_chunk", line_end="\r\n")
    got, _ = await success(reply)
    assert (got.message.text, got.usage.coverage) == ("ok", "reported")


@pytest.mark.parametrize("bad", [float("nan"), -7, "12"])
async def test_usage_that_is_no_number(bad: Any) -> None:
    """R21, R84: it is never a measured zero, and doesn't cost the reply."""
    raw = stream(chunk({"content": "x"}, "stop", usage={**USAGE, "prompt_tokens": bad}), "[DONE]")
    got, _ = await success(Reply(raw=raw))
    assert got.message.text == "x"
    assert (got.usage.coverage, got.usage.input_tokens, got.usage.output_tokens) == ("partial", None, 10)
    assert "bad_number" in got.usage.flags
    json.dumps(got.usage.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    "records",
    [
        ("{broken",),
        (["a list"],),
        (chunk({"content": 7}),),
        ({"choices": "none"},),
        ({"choices": ["x"]},),
        (chunk({"tool_calls": "x"}),),
        (chunk({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}, "tool_calls"), "[DONE]"),
        ("[" * 5_000,),
    ],
)
async def test_garbage_in_the_stream(records: tuple[Any, ...]) -> None:
    """R82, R85: what can't be understood is a failed attempt, tried again; never a reply, never a crash."""
    got, ledger = await success(Reply(raw=stream(*records, plain=True)), Reply(text="ok"))
    assert got.message.text == "ok"
    assert ledger.statuses == ["failed", "completed"]
    assert ledger.ends[0].code == "protocol"


@pytest.mark.parametrize(
    "reply",
    [
        Reply(raw=b"<html><body>Sign in</body></html>", content_type="text/html"),
        Reply(raw=b'{"choices": [', content_type="application/json"),
    ],
)
async def test_something_else_answers(reply: Reply) -> None:
    """S85, R56: whatever answers there doesn't speak this dialect: once, and what it said is told."""
    error, ledger, _ = await failure(reply, dialect=COMPATIBLE)
    assert (error.reason, ledger.statuses) == ("protocol", ["failed"])
    assert "neither an event stream nor JSON" in (ledger.last.detail or "")


async def test_a_stream_with_a_wrong_content_type() -> None:
    """R75: the bytes tell what they are, not their label."""
    for kind in ("text/plain", "application/json", "application/octet-stream"):
        got, _ = await success(Reply(raw=GOOD, content_type=kind))
        assert got.message.text == "whole"


async def test_an_empty_reply() -> None:
    """R86: no choices at all: asked once more, then a failure of its own."""
    for raw in (stream("[DONE]"), stream(chunk(choices=[]), "[DONE]"), b'{"choices": []}'):
        error, ledger, _ = await failure(Reply(raw=raw, repeat=True), dialect=COMPATIBLE)
        assert (error.reason, len(ledger.ends)) == ("empty_result", 2), raw
    error, _, _ = await failure(Reply(raw=b"", repeat=True), dialect=COMPATIBLE)
    assert error.reason == "cut"


# Waits, and the caller's own end.


async def test_a_provider_that_never_answers() -> None:
    """R53: nearest clock wins: first byte; each attempt ends by itself, and the reason is named."""
    started = time.monotonic()
    error, ledger, fake = await failure(Reply(delay_ms=60_000, repeat=True), first_byte_timeout_ms=150)
    assert error.reason == "unavailable"
    assert ledger.statuses == ["failed"] * 5
    assert "0.15 s" in (ledger.last.detail or "")
    assert {end.usage.coverage for end in ledger.ends} == {"interrupted"}, "it may have worked for us"
    assert time.monotonic() - started < 10
    assert all(item.wait() and item.hung_up for item in fake.requests)


async def test_a_head_without_body() -> None:
    """R53: a server that sends its headers at once and then nothing is bounded by the same clock."""
    _, ledger, _ = await failure(Reply(body_delay_ms=60_000, repeat=True), first_byte_timeout_ms=150)
    assert ledger.statuses == ["failed"] * 5


async def test_a_stream_that_falls_silent() -> None:
    """R53: the idle clock ends it; what came before is cut."""
    silent = Reply(raw=GOOD, break_after_bytes=60, break_how="hang")
    got, ledger = await success(silent, Reply(text="ok"), idle_timeout_ms=150)
    assert (got.message.text, ledger.statuses) == ("ok", ["cut", "completed"])
    assert "silent for 0.15 s" in (ledger.ends[0].detail or "")


async def test_a_byte_now_and_then_for_ever() -> None:
    """R53: no single wait is too long; the attempt's own bound, or the stage's, ends it."""
    dripping = Reply(raw=GOOD, piece_bytes=1, piece_delay_ms=40, repeat=True)
    error, ledger, _ = await failure(dripping, dialect=COMPATIBLE, idle_timeout_ms=5_000, call_timeout_ms=200)
    assert error.reason == "cut"
    assert "call_timeout_ms = 200" in (ledger.last.detail or "")
    ledger = MemoryLedger()
    with FakeProvider([dripping], dialect=COMPATIBLE) as fake:
        async with pool_for(fake) as pool:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await ask(pool, ledger=ledger)
        assert fake.requests[0].wait()
        assert fake.requests[0].hung_up
    assert ledger.statuses == ["cancelled"]


@pytest.mark.parametrize(
    "reply",
    [
        Reply(delay_ms=20_000),
        Reply(body_delay_ms=20_000),
        Reply(raw=GOOD, break_after_bytes=60, break_how="hang"),
    ],
    ids=["before the head", "before the body", "in the stream"],
)
async def test_a_cancel_hangs_up(reply: Reply) -> None:
    """R3, R4, S42: the provider sees the hang-up at once, the row ends, and nothing more is sent."""
    ledger = MemoryLedger()
    with FakeProvider([reply], dialect=COMPATIBLE) as fake:
        async with pool_for(fake) as pool:
            task = asyncio.get_running_loop().create_task(ask(pool, ledger=ledger))
            await asyncio.to_thread(fake.wait_for_requests, 1)
            await asyncio.sleep(0.1)
            task.cancel()
            started = time.monotonic()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert fake.requests[0].wait(2)
            assert time.monotonic() - started < 1
            assert fake.requests[0].hung_up
            await asyncio.sleep(0.05)
            assert len(fake.requests) == 1
    assert ledger.statuses == ["cancelled"]
    assert ledger.last.usage.coverage == "interrupted"
    assert ledger.last.code is None


async def test_a_cancel_keeps_the_usage_that_was_read() -> None:
    """R21: a lower bound, marked as interrupted."""
    raw = stream(chunk({"content": "a"}, usage=USAGE), chunk({"content": "b"}))
    ledger, deltas = MemoryLedger(), list[Delta]()
    with FakeProvider(
        [Reply(raw=raw, break_after_bytes=len(raw), break_how="hang")], dialect=COMPATIBLE
    ) as fake:
        async with pool_for(fake) as pool:
            task = asyncio.get_running_loop().create_task(ask(pool, ledger=ledger, deltas=deltas))
            while len(deltas) < 2:
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    usage = ledger.last.usage
    assert (usage.input_tokens, usage.output_tokens, usage.coverage) == (100, 10, "interrupted")


async def test_a_connection_is_used_again() -> None:
    """A whole reply leaves its connection fit for the next request; a broken one doesn't spoil it."""
    with FakeProvider([Reply(text="ok", repeat=True)]) as fake:
        async with pool_for(fake) as pool:
            for _ in range(3):
                await ask(pool)
            assert fake.connection_count == 1


async def test_many_at_once() -> None:
    """No client library holds back what the pool lets through; every reply goes to its own caller."""
    calls = FakeToolCall(name="read_file")
    with FakeProvider(dialect=COMPATIBLE) as fake:
        for number in range(120):
            wanted = f"request {number}."

            def asks(item: Any, wanted: str = wanted) -> bool:
                return wanted in item.text

            fake.script(Reply(text=f"answer {number}.", tool_calls=(calls,), when=asks, delay_ms=300))
        async with pool_for(fake, kind="openai-compatible") as pool:
            started = time.monotonic()
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(ask(pool, request(_user(f"request {number}."), run_id=f"run_{number}")))
                    for number in range(120)
                ]
            assert time.monotonic() - started < 10
    texts = [task.result().message.text for task in tasks]
    assert texts == [f"answer {number}." for number in range(120)]


def _user(text: str) -> Any:
    from remit.models import UserMessage

    return UserMessage(text=text)


async def test_a_reply_is_never_shared_between_keys() -> None:
    """R80: the blocks of a reply name the provider that gave them."""
    got, _ = await success(Reply(text="x"))
    assert got.message.blocks == (TextBlock(text="x", provider="fake"),)


# The way there.


async def test_a_compressed_reply() -> None:
    """R65: compression that we didn't ask for is undone before anything is read."""
    import gzip

    packed = gzip.compress(GOOD)
    reply = Reply(raw=packed, headers={"content-encoding": "gzip"}, piece_bytes=11)
    got, _ = await success(reply)
    assert (got.message.text, got.usage.coverage) == ("whole", "reported")


async def test_a_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy that the environment names is used, unless the address is to be left out."""
    with FakeProvider([Reply(text="ok", repeat=True)]) as fake:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{nobody.getsockname()[1]}")
            monkeypatch.setenv("no_proxy", "")
            async with pool_for(fake) as pool:
                with pytest.raises(ProviderError) as caught:
                    await ask(pool)
            assert caught.value.reason == "unavailable"
            assert fake.requests == []
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        async with pool_for(fake) as pool:
            await ask(pool)
        assert len(fake.requests) == 1


async def test_a_proxy_that_is_configured() -> None:
    """A configured proxy gets the request with the whole address in it."""
    with FakeProvider() as proxy:
        url = proxy.base_url.removesuffix("/v1")
        async with pool_for(proxy, proxy=url, base_url="http://provider.invalid/v1") as pool:
            with pytest.raises(ProviderError):
                await ask(pool)
        assert proxy.requests[0].path == "http://provider.invalid/v1/chat/completions"


async def test_a_server_that_cannot_prove_who_it_is(tmp_path: Any) -> None:
    """R56: a certificate that nobody vouches for won't be better in a second: once, and nothing is sent."""
    import ssl
    import subprocess
    import threading

    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    made = subprocess.run(
        [*command, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=False,
        capture_output=True,
    )
    if made.returncode != 0:
        pytest.skip("no openssl to make a certificate with")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)

        def serve() -> None:
            while not seen:
                plain, _ = server.accept()
                plain.settimeout(3)
                try:
                    with context.wrap_socket(plain, server_side=True) as client:
                        asked = client.recv(65_536)
                        while asked and not asked.endswith(b"}"):  # head and body come apart
                            asked += client.recv(65_536)
                        if not asked:
                            continue  # it shook hands, didn't like what it saw, and left
                        seen.append(asked)
                        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(GOOD)}\r\n\r\n".encode()
                        client.sendall(head + GOOD)
                except OSError:
                    plain.close()

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"https://127.0.0.1:{server.getsockname()[1]}/v1"
        error, ledger, _ = await failure(base_url=url)
        assert (error.reason, ledger.statuses, seen) == ("unavailable", ["failed"], [])
        with FakeProvider() as fake:
            async with pool_for(fake, base_url=url, ca_file=certificate) as pool:
                assert (await ask(pool)).message.text == "whole"
        thread.join(10)
    assert len(seen) == 1
