"""The dashboard over HTTP: who sees it, what it shows, what its forms do, what can't reach it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from door_kit import PLAN, REVIEWED, SLEEP, WORK, WRITE, Door, DoorWorld

HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>"
SPOKEN = (
    {"stage": "plan", "json": {"plan": HOSTILE, "verification": HOSTILE}},
    {
        "stage": "work",
        "tool_calls": [
            {
                "name": "write_file",
                "arguments": {"relative_path": "<b>.html", "content": f"{HOSTILE}\n"},
            },
            {"name": "run_shell", "arguments": {"command": f"echo {HOSTILE!r}; false"}},
        ],
    },
    {"stage": "work", "json": {"completion": HOSTILE, "verification": HOSTILE}},
    {"stage": "review", "json": {"decision": "pass", "output": HOSTILE, "summary": HOSTILE}},
)


@asynccontextmanager
async def visitor(door: Door, secret: str | None = None) -> AsyncGenerator[httpx2.AsyncClient]:
    """A browser that has logged in, as far as HTTP goes."""
    async with door.client("", follow_redirects=False) as client:
        client.headers["Origin"] = door.base_url
        token = _token((await client.get("/login")).text)
        form = {"key": secret or door.secret, "token": token}
        answer = await client.post("/login", data=form)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        yield client


def _token(html: str) -> str:
    found = re.search(r'name="token" value="([0-9a-f]{64})"', html)
    assert found is not None
    return found[1]


async def started(door: Door, **body: Any) -> str:
    """A run that has ended, or has had ten seconds to."""
    async with door.client() as client:
        asked = {"binding": "reviewed", "prompt": "Mend it.", **body}
        answer = await client.post("/api/v1/runs", params={"wait_ms": 10_000}, json=asked)
        assert answer.status_code in {201, 202}, answer.text
        return answer.json()["id"]


async def test_every_page_needs_a_key_and_the_login_none(tmp_path: Path) -> None:
    """R77: without a key all ways lead to the login; its files and `HEAD /` are for everybody."""
    async with DoorWorld(home=tmp_path).open() as door, door.client("") as client:
        for path in (
            "/",
            "/work",
            "/sessions",
            "/nodes",
            "/usage",
            "/runs/x",
            "/runs/x/patch",
            "/runs/x/live",
        ):
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["location"]) == (303, "/login"), path
        for path in ("/login", "/static/app.css", "/static/app.js", "/static/icon.svg"):
            assert (await client.get(path)).status_code == 200
        assert (await client.head("/")).status_code == 200
        assert (await client.get("/static/../_login.py")).status_code == 404
        token = _token((await client.get("/login")).text)
        client.headers["Origin"] = door.base_url
        answer = await client.post("/login", data={"key": "rk_" + "x" * 43, "token": token})
        assert answer.status_code == 401
        assert "no key of this host" in answer.text
        assert "Bearer" not in answer.text
        assert "set-cookie" not in answer.headers


async def test_cookie_is_out_of_reach_and_no_key_of_the_api(tmp_path: Path) -> None:
    """R79: scripts can't read the cookie, other sites can't send it, and the API doesn't take it."""
    async with DoorWorld(home=tmp_path).open() as door, visitor(door) as client:
        answer = await client.get("/login")
        kept = client.cookies.get("remit_key")
        assert kept == door.secret
        token = _token(answer.text)
        header = (await client.post("/login", data={"key": door.secret, "token": token})).headers[
            "set-cookie"
        ]
        assert "HttpOnly" in header
        assert "SameSite=strict" in header
        assert (await client.get("/api/v1/runs")).status_code == 401
        assert (await client.post("/api/v1/runs", json={"prompt": "x"})).status_code == 401


async def test_what_a_run_says_is_never_markup(tmp_path: Path) -> None:
    """R49: prompt, plan, commands, file names, patch, output and review stand on the page as text."""
    async with DoorWorld(home=tmp_path, replies=SPOKEN).open() as door, visitor(door) as client:
        run_id = await started(door, prompt=HOSTILE, metadata={"x": HOSTILE})
        for path in ("/", f"/runs/{run_id}", f"/runs/{run_id}/stages/work-1"):
            answer = await client.get(path)
            assert answer.status_code == 200
            assert "<script>alert" not in answer.text
            assert "<img src=x" not in answer.text
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
        page = (await client.get(f"/runs/{run_id}")).text
        assert "&lt;script&gt;alert" in page
        assert "exit 1" in page
        assert re.search(r'class="chip completed"', page)
        answer = await client.get(f"/runs/{run_id}/patch")
        assert answer.headers["content-disposition"].startswith("attachment")


async def test_run_page_tells_stages_checks_patch_and_bill(tmp_path: Path) -> None:
    """S1: what a run did, why it ended and what it cost, on one page."""
    replies = (PLAN, WRITE, *REVIEWED[2:])
    async with DoorWorld(home=tmp_path, replies=replies).open() as door, visitor(door) as client:
        run_id = await started(door)
        page = (await client.get(f"/runs/{run_id}")).text
        for words in (
            "plan",
            "work-1",
            "review-1",
            "write_file",
            "new.txt",
            "It is mended.",
            "Usage and cost",
        ):
            assert words in page, words
        assert "data-events" not in page, "an ended run has nothing to follow"
        listed = (await client.get("/")).text
        assert run_id in listed
        assert 'class="ask" href="/runs/' in listed
        assert (await client.get("/?show=failed")).text.count(run_id) == 0
        assert (await client.get("/?show=nonsense")).status_code == 422
        assert run_id in (await client.get("/sessions")).text
        for path in ("/usage", "/nodes", "/work"):
            assert (await client.get(path)).status_code == 200


async def test_sessions_say_what_was_asked_how_it_ended_and_what_it_cost(tmp_path: Path) -> None:
    """R49: each session with its runs, their ends and links, and the cost of all; what was asked is text."""
    async with DoorWorld(home=tmp_path).open() as door, visitor(door) as client:
        first = await started(door, prompt=f"Begin here {HOSTILE}", session_id="thread")
        later = [await started(door, prompt=f"Go on {number}", session_id="thread") for number in range(3)]
        alone = await started(door, prompt="Something else")
        page = (await client.get("/sessions")).text
        assert "<script>alert" not in page
        assert [f'href="/runs/{run}"' in page for run in (*later, alone, first)] == [True] * 4 + [False]
        assert "1 earlier run<" in page, "the oldest one is behind a link"
        assert all(text in page for text in ("Go on 0", "Go on 2", "Something else"))
        assert page.count('<span class="chip completed">') == 4
        thread = page[page.index("Go on 2") : page.index("</tr>", page.index("Go on 2"))]
        assert 'href="/?session=thread"' in thread
        async with door.client() as api:
            bills = [(await api.get(f"/api/v1/runs/{run}")).json()["cost_usd"] for run in (first, *later)]
        assert f"${sum(bills):.4f}" in thread.partition('data-label="Cost"')[2]
        assert (await client.get("/sessions?cursor=nowhere")).status_code == 422


async def test_usage_has_a_plot_by_day_binding_and_key(tmp_path: Path) -> None:
    """Today has a column and a row; bindings and keys are named, a key by its name."""
    async with DoorWorld(home=tmp_path).open() as door, visitor(door) as client:
        run = await started(door)
        page = (await client.get("/usage")).text
        assert page.count('class="room"') == 2 * 31, "each of thirty days and today, twice"
        async with door.client() as api:
            today = (await api.get(f"/api/v1/runs/{run}")).json()["started_at"][:10]
        assert f"<title>{today}: " in page
        assert f'<td data-label="Day">{today}</td>' in page
        assert all(f">{word}</th>" in page for word in ("reviewed", "tests"))


async def test_cancel_from_the_page_stops_the_run_and_shows_the_receipt(tmp_path: Path) -> None:
    """M12: the button does what the call does; the page it leads back to names what was stopped."""
    async with DoorWorld(home=tmp_path, replies=(PLAN, SLEEP, WORK)).open() as door, visitor(door) as client:
        async with door.client() as api:
            run_id = (await api.post("/api/v1/runs", json={"binding": "reviewed", "prompt": "x"})).json()[
                "id"
            ]
        async with asyncio.timeout(60):
            while ">pid " not in (page := (await client.get(f"/runs/{run_id}")).text):
                await asyncio.sleep(0.05)
        assert re.search(r">pid [0-9 ]+<", page), "the live work goes down to the process"
        assert re.search(r">pid [0-9 ]+<", (await client.get("/work")).text)
        assert f'data-events="/runs/{run_id}/live' in page
        form = {"token": _token(page), "reason": "enough"}
        answer = await client.post(f"/runs/{run_id}/cancel", data=form)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{run_id}")
        page = (await client.get(f"/runs/{run_id}")).text
        assert "cancelled/operator" in page
        assert "enough" in page
        assert "Complete: nothing is left." in page


async def test_patch_is_applied_or_discarded_from_the_page(tmp_path: Path) -> None:
    """R80: what may be done with a stored patch is offered while it may be, and done once."""
    replies = (PLAN, WRITE, *REVIEWED[2:])
    world = DoorWorld(home=tmp_path, replies=replies)
    async with world.open() as door, visitor(door) as client:
        run_id = await started(door)
        page = (await client.get(f"/runs/{run_id}")).text
        assert "Apply the patch" in page
        answer = await client.post(f"/runs/{run_id}/deliver", data={"token": _token(page)})
        assert answer.status_code == 303, answer.text
        assert (world.root / "new.txt").read_text() == "new\n"
        page = (await client.get(f"/runs/{run_id}")).text
        assert "Apply the patch" not in page
        answer = await client.post(f"/runs/{run_id}/discard", data={"token": _token(page)})
        assert answer.status_code == 409
        assert "text/html" in answer.headers["content-type"]


@pytest.mark.parametrize(
    ("headers", "token", "status"),
    [
        ({"Origin": "https://evil.example"}, True, 403),
        ({"Origin": "null"}, True, 403),
        ({}, True, 403),
        ({"Sec-Fetch-Site": "cross-site"}, True, 403),
        ({"Sec-Fetch-Site": "same-origin"}, False, 403),
        ({"Sec-Fetch-Site": "same-origin"}, True, 303),
    ],
)
async def test_other_sites_cannot_act(
    tmp_path: Path, headers: dict[str, str], status: int, *, token: bool
) -> None:
    """R79: a form counts only from a page of this host, with that page's own token."""
    async with DoorWorld(home=tmp_path).open() as door, visitor(door) as client:
        run_id = await started(door)
        form = {"token": _token((await client.get("/")).text) if token else "0" * 64}
        del client.headers["Origin"]
        answer = await client.post(f"/runs/{run_id}/cancel", data=form, headers=headers)
        assert answer.status_code == status, answer.text


async def test_forms_take_forms_only_and_the_api_none(tmp_path: Path) -> None:
    """R79: JSON at a form's path, a form at the API's, a huge form: refused, never a traceback."""
    async with DoorWorld(home=tmp_path).open() as door, visitor(door) as client:
        assert (await client.post("/runs/x/cancel", json={})).status_code == 415
        assert (await client.post("/api/v1/runs/x/cancel", data={"a": "b"})).status_code == 415
        assert (await client.post("/login", data={"key": "k" * 100_000})).status_code == 413
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        assert (await client.post("/login", content=b"\xff\xfe=%ff", headers=kind)).status_code == 422
        assert (await client.get("/logout")).status_code == 405
        for path in ("/runs/" + "x" * 500, "/runs/x/stages/y", "/?cursor=nonsense", "/sessions?cursor=%00"):
            answer = await client.get(path)
            assert answer.status_code in {400, 404, 422}, (path, answer.status_code)
            assert "Traceback" not in answer.text


async def test_strangers_pages_answer_as_for_an_unknown_run(tmp_path: Path) -> None:
    """R78: another tenant's run has no page, no stream, no patch, and takes no order."""
    async with DoorWorld(home=tmp_path).open() as door:
        run_id, other = await started(door), await door.add_key("stranger", tenant="other")
        async with visitor(door, other) as client:
            assert run_id not in (await client.get("/")).text
            for path in ("/runs/{}", "/runs/{}/patch", "/runs/{}/live", "/runs/{}/stages/plan"):
                known, unknown = await client.get(path.format(run_id)), await client.get(path.format("run_x"))
                assert known.status_code == unknown.status_code == 404
                assert known.text.replace(run_id, "run_x") == unknown.text
            token = _token((await client.get("/")).text)
            answer = await client.post(f"/runs/{run_id}/cancel", data={"token": token})
            assert answer.status_code == 404


async def test_key_that_only_reads_is_offered_no_buttons(tmp_path: Path) -> None:
    """R77: who may only look can't act, on the page and behind it."""
    async with DoorWorld(home=tmp_path).open() as door:
        run_id, secret = await started(door), await door.add_key("reader", scopes=("read",))
        async with visitor(door, secret) as client:
            assert ">tests</th>" not in (await client.get("/usage")).text, "nor another key's name"
            page = (await client.get(f"/runs/{run_id}")).text
            assert "Discard it" not in page
            answer = await client.post(f"/runs/{run_id}/discard", data={"token": _token(page)})
            assert answer.status_code == 403


async def test_key_that_may_not_read_sees_no_page(tmp_path: Path) -> None:
    """R77: it doesn't log in, and a cookie with it opens nothing."""
    async with DoorWorld(home=tmp_path).open() as door:
        secret = await door.add_key("starter", scopes=("run",))
        async with door.client("", follow_redirects=False) as client:
            client.headers["Origin"] = door.base_url
            token = _token((await client.get("/login")).text)
            answer = await client.post("/login", data={"key": secret, "token": token})
            assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
            assert "scope" in answer.text
            client.headers["Cookie"] = f"remit_key={secret}"
            for path in ("/", "/work", "/sessions", "/nodes", "/usage", "/runs/run_1"):
                assert (await client.get(path)).status_code == 403


@pytest.mark.parametrize(("order", "status"), [("deliver", "delivered"), ("discard", "discarded")])
async def test_waiting_delivery_is_decided_from_the_page(tmp_path: Path, order: str, status: str) -> None:
    """R80: a delivery that waits for a person's word gets it from the page, and the run ends by it."""
    replies = (PLAN, WRITE, *REVIEWED[2:])
    world = DoorWorld(home=tmp_path, replies=replies)
    async with world.open() as door, visitor(door) as client, door.client() as api:
        asked = {"binding": "reviewed", "prompt": "x", "delivery": {"mode": "apply", "approval": "required"}}
        run_id = (await api.post("/api/v1/runs", json=asked)).json()["id"]
        async with asyncio.timeout(30):
            while "Approve the delivery" not in (page := (await client.get(f"/runs/{run_id}")).text):
                await asyncio.sleep(0.05)
        assert not (world.root / "new.txt").exists()
        answer = await client.post(f"/runs/{run_id}/{order}", data={"token": _token(page)})
        assert answer.status_code == 303, answer.text
        async with asyncio.timeout(30):
            while not (run := (await api.get(f"/api/v1/runs/{run_id}")).json())["ended_at"]:
                await asyncio.sleep(0.05)
        assert (run["status"], run["delivery"]["status"]) == ("completed", status)
        assert (world.root / "new.txt").exists() == (order == "deliver")
        assert status in (await client.get(f"/runs/{run_id}")).text
