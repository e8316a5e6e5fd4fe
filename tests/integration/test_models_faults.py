"""What becomes of a provider's faults: over real HTTP, through the real SDK, to the ledger's last word."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from chat_kit import COMPATIBLE, GOOD, USAGE, chunk, failure, stream, success
from model_kit import JumpingClock, MemoryLedger, ask, pool_for
from remit.primitives import Secret
from remit.testing import FakeProvider, OpenAIChatDialect, Reply

ODD = "x\u0085y\u2028z\u2029w\u000bv"


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
    """R69: an error after 200 is that error, never an end; what it used isn't known."""
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
    """R85: what can't be understood is a failed attempt, tried again; never a reply, never a crash."""
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
