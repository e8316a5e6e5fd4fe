"""From files, environment and flags to the settings in force: flags > environment > file > default."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from remit.admission import Binding, StageBinding
from remit.config._config import (
    DEFAULT_BINDING,
    DEFAULT_MAX_COST_USD,
    Config,
    default_bindings,
    pool_of_model,
)
from remit.config._environment import environment_settings
from remit.config._files import ConfigFile, find_config_files
from remit.config._folders import data_folder
from remit.config._local import find_local_server
from remit.config._merge import Table, merge_settings, narrow_limits_of
from remit.config._providers import DEFAULT_MODELS, IMPLICIT_PROVIDERS, find_implicit
from remit.config._schema import FileShape, NodeTable, ProviderTable
from remit.config._trust import TrustStore, is_inside, refuse_untrusted, untrusted_keys
from remit.contract import say_fault
from remit.errors import ConfigError
from remit.models import PoolSettings
from remit.usage import PriceSetting
from remit.workspaces import KeepLimits, McpServer, WorkspaceSettings, find_sdk, is_server_name

_Shape = TypeVar("_Shape", bound=BaseModel)


def load_config(
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    repository: Path | None = None,
    named: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    allow_unconfined: bool = False,
) -> Config:
    """The settings in force.

    Args:
        environment: Variables; `REMIT_*` settings and keys come from here. None: those of this process.
        folder: Where the search for `remit.toml` begins, upwards; None: the current folder.
        repository: The root of what is worked on; a file inside it may set little unless it is trusted.
        named: A file named by hand, in place of the search.
        overrides: Settings from flags, nested as in a file.
        allow_unconfined: Whether sandbox level `none` was allowed by hand.

    Raises:
        ConfigError: A file can't be read, a key is wrong (the message names it), or a stranger's file
        sets what it
            may not.
    """
    environment = dict(os.environ) if environment is None else environment
    folder = folder or Path.cwd()
    data = data_folder(environment)
    files = find_config_files(named=named, folder=folder, environment=environment)
    settings: Table = {}
    for file in files:
        settings = _add_file(settings, file, repository, TrustStore(data))
    settings = merge_settings(settings, environment_settings(environment))
    settings = merge_settings(settings, dict(overrides or {}))
    shape = _check(FileShape, settings, (), files)
    workspaces = _workspaces(shape, files)
    servers = _servers(shape, files)
    _check_server_names(workspaces, servers, files)
    bindings = _bindings(shape, files, {workspace.ref: workspace for workspace in workspaces})
    bindings = bindings or default_bindings()
    return Config(
        data=data,
        environment=environment,
        files=tuple(file.path for file in files),
        host=shape.host,
        providers=shape.providers,
        pools={name: _check_pool(name, table, files) for name, table in shape.pools.items()},
        bindings=bindings,
        workspaces={workspace.ref: workspace for workspace in workspaces},
        servers=servers,
        keep=_keep(shape),
        prices={
            name: _check(PriceSetting, table, ("prices", name), files) for name, table in shape.prices.items()
        },
        default_binding=DEFAULT_BINDING if DEFAULT_BINDING in bindings else next(iter(bindings)),
        allow_unconfined=allow_unconfined,
    )


def _keep(shape: FileShape) -> KeepLimits:
    node = shape.nodes.get("local", NodeTable())
    return KeepLimits(
        max_age_s=node.keep_checkouts_ms / 1000,
        max_bytes=node.keep_checkouts_bytes,
        max_setups_bytes=node.keep_setups_bytes,
    )


def with_default_model(config: Config) -> Config:
    """The same settings with a pool `default`: the first provider with a key, else a server on this machine.

    Raises:
        ConfigError: There is neither; the message says what to do.
    """
    if "default" in config.pools:
        return config
    for name, model in DEFAULT_MODELS.items():
        table = find_implicit(name, config.environment)
        if table is None or table.api_key_env is None:
            continue
        if config.environment.get(table.api_key_env, "").strip():
            return _with_pool(config, model, note=f"model {model}, since {table.api_key_env} is set")
    local = find_local_server()
    if local is not None:
        model = f"local:{local.model}"
        config = _with_local(config, model, local.provider())
        return _with_pool(config, model, note=f"model {model} of the server at {local.base_url}")
    keys = [table.api_key_env for table in IMPLICIT_PROVIDERS.values() if table.api_key_env is not None]
    raise ConfigError(
        f"no model to run with: set {', '.join(keys[:-1])} or {keys[-1]}, or name one with "
        "--model NAME:MODEL or in [pools.default] of a remit.toml; `remit demo` needs none",
        param="model",
    )


def _with_local(config: Config, model: str, table: ProviderTable) -> Config:
    return replace(
        config,
        providers={**config.providers, "local": table},
        prices={model: PriceSetting(free=True), **config.prices},
    )


def _with_pool(config: Config, model: str, *, note: str) -> Config:
    pools = {**config.pools, "default": pool_of_model(model).model_copy(update={"name": "default"})}
    return replace(config, pools=pools, notes=(*config.notes, note))


# ---- files


def _add_file(settings: Table, file: ConfigFile, repository: Path | None, trust: TrustStore) -> Table:
    added = _with_absolute_paths(file)
    if repository is not None and is_inside(file.path, repository):
        trusted = trust.is_trusted(file)
        _refuse_unknown(file)
        refuse_untrusted(file, trusted=trusted)
        if not trusted:
            _refuse_roots_outside(file, added, repository)
            _refuse_use_of_secrets(file, added, settings)
            settings = merge_settings(_default_caps(added, settings), settings)
            added = narrow_limits_of(settings, added)
    return merge_settings(settings, added)


def _refuse_unknown(file: ConfigFile) -> None:
    """A key that there isn't is a slip of the pen: nobody should be told to trust the file for its sake."""
    for path in untrusted_keys(file):
        first, _, rest = path.partition(".")
        key = rest.rpartition(".")[2] or first
        if not any(key in shape.model_fields for shape in _SHAPES.get(first if rest else "", ())):
            raise ConfigError(f"{file.path}: `{path}`: there is no such setting", param=path)


_SHAPES: Mapping[str, tuple[type[BaseModel], ...]] = {
    "": (FileShape,),
    "bindings": (Binding, StageBinding),
    "nodes": (NodeTable, WorkspaceSettings),
}
"""Whose keys a path's last part may be, by its first part."""


def _default_caps(added: Table, settings: Table) -> Table:
    """The money cap of a run without config, for bindings that only a stranger's file makes."""
    names = added.get("bindings")
    known = cast("Table", settings.get("bindings") or {})
    strange = [name for name in cast("Table", names) if name not in known] if isinstance(names, dict) else []
    cap = float(DEFAULT_MAX_COST_USD)
    return {"bindings": {name: {"limits": {"max_cost_usd": cap}} for name in strange}} if strange else {}


def _refuse_roots_outside(file: ConfigFile, settings: Table, repository: Path) -> None:
    for name, node in cast("Table", settings.get("nodes", {})).items():
        workspaces: Any = cast("Table", node).get("workspaces", []) if isinstance(node, dict) else []
        tables = cast("list[Any]", workspaces) if isinstance(workspaces, list) else []
        for table in tables:
            root = cast("Table", table).get("root") if isinstance(table, dict) else None
            if root is None:
                continue
            inside = is_inside(Path(str(root)) / "x", repository) if Path(str(root)).is_dir() else False
            if not inside:
                raise ConfigError(
                    f"{file.path}: `nodes.{name}.workspaces.root` lies outside the repository; "
                    f"trust the file with `remit trust {file.path}` if that is meant"
                )


def _refuse_use_of_secrets(file: ConfigFile, added: Table, settings: Table) -> None:
    """A stranger's commands mustn't be those that the user's secrets are given to."""
    guarded = {table.get("ref") for _, table in _workspace_tables(settings) if table.get("secrets")}
    for name, table in _workspace_tables(added):
        for key in ("setup", "commands", "checks"):
            if key in table and table.get("ref") in guarded:
                raise ConfigError(
                    f"{file.path}: `nodes.{name}.workspaces.{key}` would be given the secrets of the "
                    f"workspace {table.get('ref')}; read the file, then trust it with "
                    f"`remit trust {file.path}`",
                    param=f"nodes.{name}.workspaces.{key}",
                )


def _workspace_tables(settings: Table) -> Iterator[tuple[str, Table]]:
    nodes = settings.get("nodes")
    for name, node in cast("Table", nodes).items() if isinstance(nodes, dict) else ():
        workspaces = cast("Table", node).get("workspaces") if isinstance(node, dict) else None
        for table in cast("list[Any]", workspaces) if isinstance(workspaces, list) else []:
            if isinstance(table, dict):
                yield name, cast("Table", table)


def _with_absolute_paths(file: ConfigFile) -> Table:
    """The file's settings, with the paths that are relative to it made absolute."""
    folder = file.path.parent
    settings = dict(file.settings)
    nodes = settings.get("nodes")
    if isinstance(nodes, dict):
        settings["nodes"] = {name: _rooted(node, folder) for name, node in cast("Table", nodes).items()}
    providers = settings.get("providers")
    if isinstance(providers, dict):
        settings["providers"] = {
            name: _placed(table, folder, ("script", "api_key_file", "ca_file"))
            for name, table in cast("Table", providers).items()
        }
    host = settings.get("host")
    if isinstance(host, dict):
        settings["host"] = _placed(host, folder, ("webhook_secret_file",))
    return settings


def _rooted(node: Any, folder: Path) -> Any:
    if not isinstance(node, dict):
        return node
    table = cast("Table", node)
    workspaces = table.get("workspaces")
    if not isinstance(workspaces, list):
        return table
    placed = [
        _with_placed_lists(_placed(workspace, folder, ("root",)), folder)
        for workspace in cast("list[Any]", workspaces)
    ]
    return {**table, "workspaces": placed}


def _with_placed_lists(table: Any, folder: Path) -> Any:
    """The folders that a workspace lists, in whichever form, seen from the file that names them."""
    if not isinstance(table, dict):
        return table
    workspace = dict(cast("Table", table))
    for key in ("mounts", "path", "toolchains"):
        listed = workspace.get(key)
        if isinstance(listed, list):
            workspace[key] = [_placed_item(item, folder) for item in cast("list[Any]", listed)]
    secrets = workspace.get("secrets")
    if isinstance(secrets, list):
        workspace["secrets"] = [_placed(one, folder, ("file",)) for one in cast("list[Any]", secrets)]
    return workspace


def _placed_item(item: Any, folder: Path) -> Any:
    if isinstance(item, str) and item:
        return _seen_from(folder, item)
    return _placed(item, folder, ("source",))


def _placed(table: Any, folder: Path, keys: Sequence[str]) -> Any:
    if not isinstance(table, dict):
        return table
    placed = dict(cast("Table", table))
    for key in keys:
        value = placed.get(key)
        if isinstance(value, str) and value:
            placed[key] = _seen_from(folder, value)
    return placed


def _seen_from(folder: Path, text: str) -> str:
    """A path as the file that stands in a folder means it: one that is relative has no links or steps.

    Sandboxes and checkouts need the place itself, and `--config ../remit.toml` is as good as any.
    """
    path = Path(text).expanduser()
    return str(path) if path.is_absolute() else os.path.normpath(os.path.realpath(folder) / path)


# ---- tables


def _workspaces(shape: FileShape, files: Sequence[ConfigFile]) -> list[WorkspaceSettings]:
    node = shape.nodes.get("local")
    found: list[WorkspaceSettings] = []
    for number, table in enumerate(node.workspaces if node else ()):
        path = ("nodes", "local", "workspaces", str(number))
        workspace = _check(WorkspaceSettings, table, path, files)
        if any(workspace.ref == other.ref for other in found):
            where = _origin(path, files)
            raise ConfigError(f"{where}`{'.'.join(path)}.ref`: the ref `{workspace.ref}` stands twice")
        found.append(workspace)
    return found


def _servers(shape: FileShape, files: Sequence[ConfigFile]) -> dict[str, McpServer]:
    found: dict[str, McpServer] = {}
    for name, table in shape.mcp.servers.items():
        path = ("mcp", "servers", name)
        if not is_server_name(name):
            raise ConfigError(
                f"{_origin(path, files)}`{'.'.join(path)}`: a server's name is 1 to 24 letters, digits, "
                "`-` or single `_`; it becomes a part of its tools' names",
                param=".".join(path),
            )
        found[name] = _check(McpServer, table, path, files)
    return found


def _check_server_names(
    workspaces: Sequence[WorkspaceSettings], servers: Mapping[str, McpServer], files: Sequence[ConfigFile]
) -> None:
    for number, workspace in enumerate(workspaces):
        path = ("nodes", "local", "workspaces", str(number), "mcp")
        where, param = f"{_origin(path, files)}`{'.'.join(path)}`", ".".join(path)
        for name in workspace.mcp:
            if name not in servers:
                raise ConfigError(f"{where}: there is no MCP server `{name}`", param=param)
        if workspace.mcp and not find_sdk():
            raise ConfigError(
                f"{where}: MCP servers need the extra `mcp`: pip install 'remit[mcp]'", param=param
            )


def _bindings(
    shape: FileShape, files: Sequence[ConfigFile], workspaces: Mapping[str, WorkspaceSettings]
) -> dict[str, Binding]:
    found: dict[str, Binding] = {}
    for name, table in shape.bindings.items():
        if "name" in table:
            where = _origin(("bindings", name), files)
            raise ConfigError(f"{where}`bindings.{name}.name`: a binding's name is the key of its table")
        workspace = workspaces.get(str(table.get("workspace")))
        usual = {} if workspace is None else {"preserve": workspace.preserve}
        found[name] = _check(Binding, {"name": name, **usual, **table}, ("bindings", name), files)
    return found


def _check_pool(name: str, table: Table, files: Sequence[ConfigFile]) -> PoolSettings:
    return _check(PoolSettings, {"name": name, **table}, ("pools", name), files)


def _check(
    shape: type[_Shape], table: Mapping[str, Any], path: tuple[str, ...], files: Sequence[ConfigFile]
) -> _Shape:
    try:
        return shape.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        where = (*path, *(str(part) for part in first["loc"]))
        origin = _origin(where, files)
        message = say_fault(first, mapping="a table")
        if first["type"] == "extra_forbidden":
            message = "there is no such setting"
        raise ConfigError(f"{origin}`{'.'.join(where)}`: {message}", param=".".join(where)) from None


def _origin(path: Sequence[str], files: Sequence[ConfigFile]) -> str:
    """The strongest file that says something at this path, for the message."""
    for file in reversed(files):
        place: Any = file.settings
        for part in path[:2]:
            place = cast("Table", place).get(part) if isinstance(place, dict) else None
        if place is not None:
            return f"{file.path}: "
    return ""
