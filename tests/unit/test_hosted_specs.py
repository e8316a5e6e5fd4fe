"""A request in two parts and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.contract import RunRequest
from remit.errors import InvalidRequest, NotFound
from remit.requests import fingerprint
from remit.runs import ModelTarget, SessionSpec, TurnSpec, join_request, split_request

FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "id": st.just("mine"),
    "binding": st.sampled_from(["reviewed", "other"]),
    "session_id": st.just("thread"),
    "continues": st.just("before"),
    "instructions": st.text(min_size=1, max_size=5),
    "workspace": st.fixed_dictionaries({"ref": st.just("app")}, optional={"base": st.just("head")}),
    "profile": st.sampled_from(["reviewed", "direct"]),
    "model": st.just("openai:m"),
    "stages": st.just({"plan": {"model": "openai:m", "options": {"temperature": 1}}}),
    "limits": st.just({"max_cost_usd": "1.5", "wall_clock_ms": 10}),
    "delivery": st.sampled_from(["patch", {"mode": "apply", "approval": "required"}]),
    "preserve": st.just("always"),
    "usage": st.just("required"),
    "acknowledge": st.just("required"),
    "on_busy": st.just("enqueue"),
    "webhook": st.just("https://example.invalid/"),
    "metadata": st.just({"a": [1, None]}),
    "in_place": st.booleans(),
    "unreviewed": st.booleans(),
    "allow_protected": st.booleans(),
}
CONTENT = st.one_of(
    st.fixed_dictionaries({"prompt": st.text(min_size=1, max_size=5)}),
    st.just({"content": [{"type": "text", "text": "a"}, {"text": "b"}]}),
    st.just({"content": [{"type": "image", "url": "data:image/png;base64,AA=="}, {"text": "b"}]}),
)


def known(root: str) -> str | None:
    return "app" if root == "/home/me/app" else None


@given(
    body=st.builds(
        lambda content, more: {**more, **content}, CONTENT, st.fixed_dictionaries({}, optional=FIELDS)
    )
)
def test_both_parts_are_the_whole(body: dict[str, Any]) -> None:
    """R63: joined again it is the same request, with the same fields set, so it has the same fingerprint."""
    request = RunRequest.model_validate(body)
    joined = RunRequest.model_validate(join_request(*split_request(request), find_workspace=known))
    assert joined == request
    assert joined.model_fields_set == request.model_fields_set
    assert fingerprint(joined) == fingerprint(request)


def test_each_field_has_its_place() -> None:
    """M27: each field of a request is in exactly one of the two parts, a new one too."""
    session, turn = set(SessionSpec.model_fields), set(TurnSpec.model_fields)
    assert session & turn == set()
    assert (session | turn) - {"folder", "target"} == set(RunRequest.model_fields)


def test_a_folder_and_a_target() -> None:
    """M7, M27: a root names its workspace, as it is written; a target names its provider's model."""
    target = ModelTarget(connection_id="openai", connection_slug="openai", model="gpt-5.2")
    spec = SessionSpec(folder="/home/me/app", target=target)
    body = join_request(spec, TurnSpec(prompt="a"), find_workspace=known)
    assert body == {"workspace": {"ref": "app"}, "model": "openai:gpt-5.2", "prompt": "a"}


@pytest.mark.parametrize(
    ("spec", "error", "param"),
    [
        ({"folder": "/home/me/app/"}, NotFound, "folder"),
        ({"folder": "/home/me/../me/app"}, NotFound, "folder"),
        ({"folder": "/home/me/app", "workspace": {"ref": "app"}}, InvalidRequest, "folder"),
        (
            {"target": {"connection_id": "a", "connection_slug": "a", "model": "m"}, "model": "a:m"},
            InvalidRequest,
            "target",
        ),
        (
            {"target": {"connection_id": "a", "connection_slug": "b", "model": "m"}},
            InvalidRequest,
            "target.connection_id",
        ),
    ],
)
def test_what_doesnt_go_together(spec: dict[str, Any], error: type[Exception], param: str) -> None:
    """S8: a root isn't resolved here; two ways of saying the same are one too many."""
    with pytest.raises(error) as raised:
        join_request(SessionSpec.model_validate(spec), TurnSpec(prompt="a"), find_workspace=known)
    assert raised.value.fields["param"] == param  # type: ignore[attr-defined] - each error of the table has them
