"""The reference pages that come from the errors, the contract, the events and the status table."""

from __future__ import annotations

from typing import get_args

from reference_shapes import summary, table
from remit import contract, errors
from remit.events import EPHEMERAL_TYPES, PAYLOADS, TERMINAL_TYPES
from remit.runs._states import TRANSITIONS


def errors_page() -> str:
    """Every error with its code, and every code that a run can end with."""
    tree = (errors.__doc__ or "").strip()
    drawn = "\n".join(line[4:] for line in tree.splitlines() if line.startswith("    "))
    rows = "".join(
        f"| `{kind.code}` | {kind.status} | {'yes' if kind.retryable else 'no'} | {kind.exit_code} "
        f"| `{kind.__name__}`: {summary(kind)} |\n"
        for kind in _leaves_and_branches()
    )
    ends = "".join(
        f"| `{class_}` | `{code}` | {contract.CLI_EXIT[class_]} | {sentence} |\n"
        for class_, codes in contract.CODES.items()
        for code, sentence in codes.items()
    )
    return (
        f"# Errors and ends\n\n## Errors\n\n```\n{drawn}\n```\n\n"
        "| code | HTTP | try again | exit | what it says |\n|---|---|---|---|---|\n"
        f"{rows}\n## How a run can end otherwise than completed\n\n"
        "The kind is `failed`, but for the classes `cancelled` (kind `cancelled`), `usage` and `lost` "
        "(kind `indeterminate`).\n\n| class | code | exit | sentence |\n|---|---|---|---|\n" + ends
    )


def _leaves_and_branches() -> list[type[errors.RemitError]]:
    kinds = [getattr(errors, name) for name in errors.__all__]
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, errors.RemitError)]


def limits_page() -> str:
    """Every limit with its default."""
    meanings = table(contract.LimitRequest, defaults=False)
    defaults = "".join(
        f"| `{name}` | {'none' if field.default is None else f'`{field.default}`'} |\n"
        for name, field in contract.Limits.model_fields.items()
    )
    return (
        f"# Limits\n\n{summary(contract.LimitRequest)} Of two statements of one limit the narrower wins; "
        f"0 or less and unknown names are refused.\n\n{meanings}\n"
        f"## Defaults\n\n| limit | default |\n|---|---|\n{defaults}"
    )


def request_page() -> str:
    """What a caller may ask."""
    parts = (
        contract.WorkspaceRequest,
        contract.StageRequest,
        contract.DeliveryRequest,
        contract.TextPart,
        contract.ImagePart,
    )
    return f"# The request\n\n{summary(contract.RunRequest)}\n\n{table(contract.RunRequest)}\n" + _sections(
        parts
    )


def run_page() -> str:
    """What a run looks like, and the edges between its statuses."""
    edges = "".join(
        f"    {before.value} --> {after.value}: {trigger.value}\n"
        for (before, trigger), after in TRANSITIONS.items()
    )
    parts = (
        contract.RunWorkspace,
        contract.Terminal,
        contract.LimitHit,
        contract.Review,
        contract.CheckResult,
        contract.PatchSummary,
        contract.Delivery,
        contract.Usage,
        contract.Coverage,
        contract.CancelReceipt,
        contract.CancelItem,
        contract.AbandonedWork,
    )
    return (
        f"# The run\n\n{summary(contract.RunView)}\n\n{table(contract.RunView, defaults=False)}\n"
        f"## Statuses\n\n```mermaid\nstateDiagram-v2\n    [*] --> queued\n{edges}```\n\n" + _sections(parts)
    )


def events_page() -> str:
    """Every event with the shape of its data."""
    lines = ["# Events\n"]
    for name, payload in PAYLOADS.items():
        if name in TERMINAL_TYPES:
            lines.append(f"## `{name}`\n\n{summary(payload)} See [the run](run.md).\n")
            continue
        lines.append(f"## `{name}`\n\n{summary(payload)}\n\n{table(payload, defaults=False)}")
    lines.append("## Not stored\n\n" + "".join(f"* `{name}`\n" for name in sorted(EPHEMERAL_TYPES)))
    return "\n".join(lines)


def node_page() -> str:
    """Every message between host and node."""
    requests, responses = get_args(contract.NodeRequest), get_args(contract.NodeResponse)
    return (
        f"# Node messages\n\nVersion {contract.PROTOCOL_VERSION}. The host asks, the node answers.\n\n"
        + "## Requests\n\n"
        + _sections(_unwrap(requests), level=3)
        + "\n## Responses\n\n"
        + _sections(_unwrap(responses), level=3)
    )


def _unwrap(members: tuple[object, ...]) -> tuple[type[contract.Model], ...]:
    """The models of a union, also where it is annotated with its discriminator."""
    inner = [part for member in members for part in (get_args(member) or (member,))]
    return tuple(part for part in inner if isinstance(part, type) and issubclass(part, contract.Model))


def _sections(models: tuple[type[contract.Model], ...], *, level: int = 2) -> str:
    mark = "#" * level
    return "\n".join(f"{mark} {model.__name__}\n\n{summary(model)}\n\n{table(model)}" for model in models)
