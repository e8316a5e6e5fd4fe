"""What is wrong with a value is said in its writer's words, not in Python's."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from pydantic import Field, ValidationError, field_validator

from remit.contract import Model, say_fault
from remit.errors import InvalidRequest
from remit.requests import parse_request


class Inner(Model):
    a: int = 1


class Shape(Model):
    table: dict[str, int] = Field(default_factory=dict[str, int])
    inner: Inner = Inner()
    names: tuple[str, ...] = ()
    count: int = Field(default=1, gt=0)
    share: float = 1.0
    word: str = ""
    flag: bool = False
    at: datetime | None = None
    own: str = ""

    @field_validator("own")
    @classmethod
    def _refuse(cls, value: str) -> str:
        if value:
            raise ValueError("Nothing may stand here")
        return value


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("table", 1, "must be an object"),
        ("inner", "x", "must be an object"),
        ("names", 1, "must be a list"),
        ("count", "x", "must be a whole number"),
        ("count", 1.5, "must be a whole number"),
        ("count", 0, "input should be greater than 0"),
        ("share", "x", "must be a number"),
        ("word", 1, "must be text"),
        ("flag", "perhaps", "must be true or false"),
        ("at", "x", "must be a moment, such as 2026-01-31T12:00:00Z"),
        ("own", "x", "nothing may stand here"),
        ("other", 1, "there is no such field"),
    ],
)
def test_a_wrong_value_is_told_what_it_must_be(field: str, value: object, said: str) -> None:
    """Each kind, by what it has to be; what a shape says itself stays as it says it."""
    with pytest.raises(ValidationError) as caught:
        Shape.model_validate({field: value})
    assert say_fault(caught.value.errors()[0]) == said


def test_a_table_is_no_object_in_a_file() -> None:
    """Where TOML was written its word is used."""
    with pytest.raises(ValidationError) as caught:
        Shape.model_validate({"inner": 1})
    assert say_fault(caught.value.errors()[0], mapping="a table") == "must be a table"


@pytest.mark.parametrize(
    ("field", "value"),
    [("limits", 1), ("workspace", []), ("metadata", "x"), ("content", {}), ("delivery", 5)],
)
def test_no_name_of_the_code_is_in_a_refusal(field: str, value: Any) -> None:
    """R73: a caller over HTTP reads of objects and lists, of no class of ours and no tuple."""
    body = {"binding": "b", "prompt": "x", field: value}
    if field == "content":
        del body["prompt"]
    with pytest.raises(InvalidRequest) as caught:
        parse_request(body)
    assert caught.value.fields["param"] == field
    assert not any(word in caught.value.message for word in ("Request", "dictionary", "tuple", "instance"))
