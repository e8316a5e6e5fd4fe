"""Bindings: a public name, and all that stands behind it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from remit.contract import DeliveryMode, LimitRequest, Model, Preserve, Profile, StageKind

Override = Literal[
    "allow_protected",
    "base",
    "delivery",
    "in_place",
    "instructions",
    "options",
    "preserve",
    "profile",
    "unreviewed",
    "workspace",
]
"""What a request may set for itself beside its text, its limits and (`allow_models`) its models."""

DEFAULT_OVERRIDES: Final[tuple[Override, ...]] = (
    "base",
    "delivery",
    "instructions",
    "options",
    "preserve",
    "profile",
)
"""What it may set unless the binding says otherwise: nothing that weakens a promise."""

ALL_OVERRIDES: Final[tuple[Override, ...]] = (
    *DEFAULT_OVERRIDES,
    "allow_protected",
    "in_place",
    "unreviewed",
    "workspace",
)
"""For a binding whose only caller is the owner of the machine."""

STAGES_OF: Final[dict[Profile, tuple[StageKind, ...]]] = {
    "reviewed": ("plan", "work", "review"),
    "direct": ("work",),
    "answer": ("work",),
}
"""The stages that each profile runs; `answer` asks the work stage's model once."""


class StageBinding(Model):
    """Who a stage asks, and how."""

    pool: str | None = None
    """A pool's name; None: `model`, or the pool `default`."""
    model: str | None = None
    """`NAME:MODEL`, instead of a pool."""
    options: dict[str, Any] = Field(default_factory=dict[str, Any])
    """This stage's requests alone get them."""


class Binding(Model):
    """A public model name: workspace, profile, stages, limits, and what a request may change."""

    name: str
    """The public name: what a client puts in `model`, or in `binding`."""
    profile: Profile = "reviewed"
    workspace: str | None = None
    """A workspace's ref, which a node may bring later; None: the request must name one."""
    plan: StageBinding = Field(default_factory=StageBinding)
    work: StageBinding = Field(default_factory=StageBinding)
    review: StageBinding = Field(default_factory=StageBinding)
    limits: LimitRequest = Field(default_factory=LimitRequest)
    delivery: DeliveryMode = "patch"
    """Where it isn't stated, the door that a request came through may have another default."""
    require_evidence: bool = True
    """Whether work must have used a tool of the workspace before it may complete."""
    client_tools: Literal["refuse", "ignore"] = "refuse"
    """What happens to the tools that a client of a compatible door brings along."""
    progress: bool = True
    """Whether compatible doors show progress as reasoning."""
    on_disconnect: Literal["cancel", "continue"] = "cancel"
    """What a hang-up of a foreground call does to its run."""
    instructions: str | None = None
    """Standing instructions, before those of the request."""
    preserve: Preserve = "failed"
    """Which runs' checkouts are kept."""
    allow_models: tuple[str, ...] = ()
    """Models that a request may name, as patterns on `NAME:MODEL`, such as `openai:*`."""
    allow_override: tuple[Override, ...] = DEFAULT_OVERRIDES
    delegate: bool = False
    """Whether work may start child runs, which are reviewed as this run is."""

    @model_validator(mode="after")
    def _children_are_reviewed(self) -> Self:
        if self.delegate and self.profile != "reviewed":
            raise ValueError('`delegate = true` needs `profile = "reviewed"`: child runs are reviewed')
        return self

    def stage(self, kind: StageKind) -> StageBinding:
        """The binding of one stage."""
        match kind:
            case "plan":
                return self.plan
            case "work":
                return self.work
            case "review":
                return self.review

    def allows(self, override: Override) -> bool:
        """Whether a request may set this for itself."""
        return override in self.allow_override

    def allows_model(self, model: str) -> bool:
        """Whether a request may name this model."""
        return any(fnmatchcase(model, pattern) for pattern in self.allow_models)
