"""The file that a scripted provider plays: closed, checked as a whole before anything runs."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from remit.contract import Model, say_fault
from remit.errors import ConfigError
from remit.models._wire import is_array
from remit.primitives import StrictJsonError, dump_json, load_json

_MAX_SCRIPT_BYTES = 16 * 1024 * 1024


class ScriptedCall(Model):
    """A tool call of a reply."""

    id: str | None = None
    """None: made, and unique within the script."""
    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict[str, Any])
    """Text is handed on exactly as it is."""

    @property
    def argument_text(self) -> str:
        """As a model would have written it."""
        return self.arguments if isinstance(self.arguments, str) else dump_json(self.arguments)


class ScriptedError(Model):
    """An error answer in place of a reply."""

    status: int = Field(ge=400, le=599)
    retry_after: float | str | None = None
    """Seconds, or any form of the header `Retry-After`."""
    body: Any = None


class ScriptedUsage(Model):
    """What the reply is said to have used."""

    input_tokens: int = Field(ge=0)
    output_tokens: int = Field(ge=0)
    cache_read_tokens: int = Field(default=0, ge=0)
    cache_write_tokens: int = Field(default=0, ge=0)
    reasoning_tokens: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _parts_fit(self) -> ScriptedUsage:
        if self.cache_read_tokens + self.cache_write_tokens > self.input_tokens:
            raise ValueError("cache_read_tokens and cache_write_tokens are parts of input_tokens")
        if self.reasoning_tokens > self.output_tokens:
            raise ValueError("reasoning_tokens is a part of output_tokens")
        return self


class ScriptedCondition(Model):
    """When a reply is given."""

    contains: str | None = None
    """Text that must stand somewhere in the conversation."""


class ScriptedReply(Model):
    """One reply: a text, a JSON answer, tool calls, or a fault."""

    stage: str = Field(pattern=r"^(plan|work|review)(-[1-9][0-9]*)?$")
    """A kind of stage, or one stage by its id."""
    when: ScriptedCondition | None = None
    text: str | None = None
    json_: Any = Field(default=None, alias="json")
    """The answer as data; it becomes the text."""
    tool_calls: tuple[ScriptedCall, ...] = ()
    usage: ScriptedUsage | None = None
    """Left out: counted from the sizes. `usage: null`: the reply reports none."""
    delay_ms: int = Field(default=0, ge=0, le=3_600_000)
    error: ScriptedError | None = None
    cut: bool = False
    """The stream breaks off after what the reply holds."""

    @model_validator(mode="after")
    def _one_content(self) -> ScriptedReply:
        has_json = "json_" in self.model_fields_set
        if self.text is not None and has_json:
            raise ValueError("give text or json, not both")
        has_content = self.text is not None or has_json or bool(self.tool_calls)
        if self.error is not None and (has_content or self.cut):
            raise ValueError("a reply that is an error has no text, json, tool_calls or cut")
        if self.error is None and not has_content and not self.cut:
            raise ValueError("a reply needs text, json, tool_calls, error or cut")
        return self

    @property
    def content(self) -> str:
        """The text of the reply."""
        if "json_" in self.model_fields_set:
            return dump_json(self.json_)
        return self.text or ""

    @property
    def reports_usage(self) -> bool:
        """Whether it reports any usage."""
        return self.usage is not None or "usage" not in self.model_fields_set

    def is_for(self, stage_id: str) -> bool:
        """Whether it is meant for this stage."""
        return self.stage in (stage_id, stage_id.partition("-")[0])


class Script(Model):
    """All replies, in order."""

    replies: tuple[ScriptedReply, ...] = Field(min_length=1)
    shared: bool = False
    """All runs draw from one store of replies; else each run starts anew."""


def load_script(path: Path) -> Script:
    """Read and check a script.

    Raises:
        ConfigError: It can't be read, isn't YAML or JSON, or has a wrong key; the message says where.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"can't read the script {path}: {error.strerror or error}") from None
    if len(data) > _MAX_SCRIPT_BYTES:
        raise ConfigError(f"the script {path} is larger than {_MAX_SCRIPT_BYTES} bytes")
    value = _parse(path, data)
    if is_array(value):
        value = {"replies": value}
    try:
        return Script.model_validate(value)
    except ValidationError as error:
        raise ConfigError(f"the script {path} is wrong at {_first_problem(error)}") from None


def _parse(path: Path, data: bytes) -> Any:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the script {path} isn't UTF-8 text (byte {error.start})") from None
    if path.suffix == ".json":
        try:
            return load_json(text)
        except StrictJsonError as error:
            raise ConfigError(f"the script {path} isn't JSON: {error}") from None
    yaml: Any = importlib.import_module("yaml")  # a fifth of a tenth of a second that only scripts pay for
    try:
        value = yaml.load(text, Loader=_yaml_loader(yaml))
        # Through JSON, so that a date or a number that isn't finite can't slip into an answer.
        return json.loads(json.dumps(value, allow_nan=False))
    except yaml.YAMLError as error:
        raise ConfigError(f"the script {path} isn't YAML: {' '.join(str(error).split())}") from None
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the script {path} holds what JSON can't: {error}") from None


def _yaml_loader(yaml: Any) -> Any:
    """A safe loader that refuses a key that stands twice."""

    class Loader(yaml.SafeLoader):
        pass

    def construct(loader: Any, node: Any, deep: bool = False) -> Any:
        keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
        for number, key in enumerate(keys):
            if key in keys[:number]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands twice", node.value[number][0].start_mark
                )
        build: Callable[..., Any] = yaml.SafeLoader.construct_mapping
        return build(loader, node, deep=deep)

    Loader.construct_mapping = construct
    return Loader


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the top"
    return f"{where}: {say_fault(first)}"
