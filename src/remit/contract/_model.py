"""The ground of every stored or sent shape: frozen, closed, and the same keys always present."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer

from remit.primitives import format_time


class Model(BaseModel):
    """A frozen shape that refuses unknown keys and numbers that aren't finite."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        populate_by_name=True,
        serialize_by_alias=True,
        ser_json_inf_nan="constants",
    )

    def to_json(self) -> dict[str, Any]:
        """The shape as JSON values, every key present."""
        return self.model_dump(mode="json")


def _in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("a moment must name its zone")
    return moment.astimezone(UTC)


Moment = Annotated[
    datetime, AfterValidator(_in_utc), PlainSerializer(format_time, return_type=str, when_used="json")
]
"""An aware moment in UTC; `…Z` in JSON."""

Money = Annotated[
    Decimal, Field(gt=0, max_digits=15), PlainSerializer(float, return_type=float, when_used="json")
]
"""USD, more than 0: exact inside, a number in JSON, which carries 15 digits there and back unchanged."""
