"""The tools that a model is told of, and which of them a stage gets."""

from __future__ import annotations

from typing import Final, Literal, cast

from remit.contract import StageKind, ToolSpec
from remit.workspaces._network import describe_network
from remit.workspaces._settings import CommandDefinition, WorkspaceSettings

__all__ = ["DELEGATE", "MAX_COMMAND_CHARS", "READ_TOOLS", "stage_kind_of", "strict_parameters", "tools_for"]

MAX_COMMAND_CHARS: Final = 100_000
"""The kernel takes at most 128 KiB in one argument."""

Schema = dict[str, object]
Effect = Literal["read", "write", "command"]

READ_TOOLS: Final = frozenset({"list_files", "read_file", "read_output", "search"})

_PATH: Final[Schema] = {"type": "string", "description": "Path from the workspace root, such as src/app.py."}
_FOLDER: Final[Schema] = {
    "type": "string",
    "description": "Folder from the workspace root; default: the root.",
}
_GLOB: Final[Schema] = {
    "type": "string",
    "description": "Pattern below that folder, such as src/**/*.{ts,tsx}; without a slash: any depth.",
}


def _count(description: str, *, minimum: int = 0) -> Schema:
    return {"type": "integer", "minimum": minimum, "description": description}


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


def _spec(
    name: str,
    effect: Effect,
    description: str,
    properties: dict[str, Schema],
    *,
    optional: tuple[str, ...] = (),
) -> ToolSpec:
    parameters: Schema = {
        "type": "object",
        "properties": properties,
        "required": [key for key in properties if key not in optional],
        "additionalProperties": False,
    }
    return ToolSpec(name=name, description=description, parameters=parameters, effect=effect)


_LIST_FILES: Final = _spec(
    "list_files",
    "read",
    "List files below a folder, or those that match a glob. Sorted; without .git and what git ignores. "
    "A large tree is cut: folders that end in / aren't opened, name them to see inside.",
    {"relative_path": _FOLDER, "glob": _GLOB},
    optional=("relative_path", "glob"),
)
_READ_FILE: Final = _spec(
    "read_file",
    "read",
    "Read a text file exactly as it is, without line numbers. A long file comes in parts: read on with "
    "offset_lines.",
    {
        "relative_path": _PATH,
        "offset_lines": _count("How many lines to skip; default 0."),
        "limit_lines": _count("How many lines to read at most; default: as many as can be shown.", minimum=1),
    },
    optional=("offset_lines", "limit_lines"),
)
_READ_OUTPUT: Final = _spec(
    "read_output",
    "read",
    "Read the whole output of an earlier call that was shown only in part, or left out later to save room.",
    {
        "tool_call_id": _text("The id that the cut output names."),
        "offset_bytes": _count("Where to begin."),
    },
)
_SEARCH: Final = _spec(
    "search",
    "read",
    "Search files for a regular expression (Python syntax) and get path:line: text. "
    "Without .git, binary files and what git ignores.",
    {"pattern": _text("The regular expression."), "relative_path": _FOLDER, "glob": _GLOB},
    optional=("relative_path", "glob"),
)
_WRITE_FILE: Final = _spec(
    "write_file",
    "write",
    "Create a file, or replace all of its content. Missing folders are made. "
    "For a change to a part, use edit_file.",
    {"relative_path": _PATH, "content": _text("The whole content.")},
)
_EDIT_FILE: Final = _spec(
    "edit_file",
    "write",
    "Replace a text in a file. The old text must stand there exactly, and once unless replace_all is true. "
    "Line ends of the file are kept.",
    {
        "relative_path": _PATH,
        "old": _text("The text to replace, with enough lines around it to be unique."),
        "new": _text("The text to put there; empty to delete."),
        "replace_all": {"type": "boolean", "description": "Replace every place; default false."},
    },
    optional=("replace_all",),
)
_APPLY_PATCH: Final = _spec(
    "apply_patch",
    "write",
    "Add, update, move and delete files by one patch: all of it or nothing. Form: *** Begin Patch, then "
    "per file *** Add File: P (lines with +), *** Delete File: P or *** Update File: P (optionally "
    "*** Move to: Q, then hunks: @@ with a line above, and lines with space, - or +), then *** End Patch.",
    {"patch": _text("The patch text.")},
)
_MOVE_FILE: Final = _spec(
    "move_file",
    "write",
    "Move or rename a file. Never replaces another one.",
    {"relative_path": _PATH, "new_relative_path": _text("The new path from the workspace root.")},
)
_DELETE_FILE: Final = _spec("delete_file", "write", "Delete a file, not a folder.", {"relative_path": _PATH})


def _run_shell(settings: WorkspaceSettings) -> ToolSpec:
    network = describe_network(settings.network)
    return _spec(
        "run_shell",
        "command",
        "Run a shell command in the working folder. Each call is a fresh shell without terminal or input; "
        f"what it leaves running is stopped at its end. Network is {network}.",
        {
            "command": _text("The command text."),
            "timeout_ms": _timeout(settings),
        },
        optional=("timeout_ms",),
    )


def _timeout(settings: WorkspaceSettings) -> Schema:
    limit = settings.max_command_timeout_ms
    return {
        "type": "integer",
        "minimum": 1,
        "maximum": limit,
        "description": f"Time limit in ms, at most {limit}; default: the run's own.",
    }


def _run_command(settings: WorkspaceSettings) -> ToolSpec:
    listed = "; ".join(_in_words(command) for command in settings.commands)
    properties: dict[str, Schema] = {
        "id": {
            "type": "string",
            "enum": [command.id for command in settings.commands],
            "description": "Which.",
        }
    }
    if any(command.extra_args for command in settings.commands):
        properties["args"] = {
            "type": "array",
            "items": {"type": "string"},
            "description": "Arguments of your own, where the command takes them; never seen by a shell.",
        }
    return _spec(
        "run_command",
        "command",
        f"Run one of the workspace's commands: {listed}.",
        properties,
        optional=("args",),
    )


def _in_words(command: CommandDefinition) -> str:
    more = " [args]" if command.extra_args else ""
    return f"{command.id} = {' '.join(command.argv)}{more}"


DELEGATE: Final = _spec(
    "delegate",
    "write",
    "Hand a part of the work to a run of its own. It starts from the files as they are now, plans, works "
    "and is reviewed; what its review passes is put into this checkout. It knows nothing but this prompt "
    "and the files, so say all that it needs. You get its outcome.",
    {
        "prompt": _text("What to do, complete in itself: the aim, the files, how it is verified."),
        "limits": {
            "type": "object",
            "description": 'Narrower limits, such as {"max_cost_usd": 0.5, "wall_clock_ms": 600000}.',
        },
    },
    optional=("limits",),
)
"""A child run; offered where the binding says so."""


def tools_for(settings: WorkspaceSettings, stage: StageKind | None = None) -> tuple[ToolSpec, ...]:
    """The tools that the workspace allows, in a fixed order.

    Args:
        settings: the workspace.
        stage: planning gets only those that read; None: all.
    """
    allowed = set(settings.operations)
    specs: list[ToolSpec] = []
    if "read" in allowed:
        specs += [_LIST_FILES, _READ_FILE, _SEARCH]
    if allowed & {"read", "command"}:
        specs.append(_READ_OUTPUT)
    if "write" in allowed:
        specs += [_WRITE_FILE, _EDIT_FILE, _APPLY_PATCH, _MOVE_FILE, _DELETE_FILE]
    if "command" in allowed and settings.shell:
        specs.append(_run_shell(settings))
    if "command" in allowed and settings.commands:
        specs.append(_run_command(settings))
    return tuple(spec for spec in specs if stage != "plan" or spec.effect == "read")


def stage_kind_of(stage_id: str) -> StageKind:
    """The kind of a stage, from its id: `plan`, `work-1`, `review-2`.

    Raises:
        ValueError: no stage has such an id.
    """
    kind, _, number = stage_id.partition("-")
    if kind == "plan" and not number:
        return "plan"
    if number.isascii() and number.isdigit():
        if kind == "work":
            return "work"
        if kind == "review":
            return "review"
    raise ValueError(f"{stage_id!r} is no stage id")


def strict_parameters(parameters: dict[str, object]) -> dict[str, object]:
    """The same schema for dialects that want every key required: optional ones may then be null."""
    properties = cast("dict[str, Schema]", parameters["properties"])
    required = cast("list[str]", parameters["required"])
    strict = {key: schema if key in required else _nullable(schema) for key, schema in properties.items()}
    return {**parameters, "properties": strict, "required": list(strict)}


def _nullable(schema: Schema) -> Schema:
    nullable = {**schema, "type": [schema["type"], "null"]}
    choices = cast("list[str] | None", schema.get("enum"))
    return nullable if choices is None else {**nullable, "enum": [*choices, None]}
