"""What is configured: providers with their keys, and pools of models that can serve a stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, field_validator, model_validator

from remit.contract import Model
from remit.primitives import Secret

ProviderKind = Literal[
    "openai",
    "openai-chat",
    "openai-compatible",
    "anthropic",
    "google",
    "azure",
    "bedrock",
    "vertex",
    "openrouter",
    "ollama",
    "scripted",
]
PROVIDER_KINDS: tuple[str, ...] = get_args(ProviderKind)


def check_known_kind(kind: str) -> str:
    """The kind, where there is one of that name.

    Raises:
        ValueError: There is none; the message lists those that there are.
    """
    if kind not in PROVIDER_KINDS:
        raise ValueError(f"unknown provider kind {kind!r}; there are {', '.join(PROVIDER_KINDS)}")
    return kind


_OPENAI_URL = "https://api.openai.com/v1"
_ANTHROPIC_URL = "https://api.anthropic.com"
_OPENROUTER_URL = "https://openrouter.ai/api/v1"
_OLLAMA_URL = "http://127.0.0.1:11434"
_OF_COMPATIBLE = ("openai-compatible", "openrouter")
_GOOGLE_URL = "https://generativelanguage.googleapis.com"


class AwsCredentials(Model):
    """What requests to AWS are signed with."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    access_key_id: str
    secret_access_key: Secret
    session_token: Secret | None = None
    """Of credentials that end after some hours."""

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """What must never be shown."""
        token = () if self.session_token is None else (self.session_token,)
        return (self.secret_access_key, *token)


class ProviderSettings(Model):
    """One configured provider. Building it checks it; keys are resolved by `config`."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    name: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    """The key of its table; the `NAME` of `NAME:MODEL`."""
    kind: str
    base_url: str | None = None
    """None: the vendor's own; required for `openai-compatible`."""
    api_key: Secret | None = None
    """None: no `Authorization` is sent."""
    aws: AwsCredentials | None = None
    """Of Bedrock, where it has no `api_key`."""
    organization: str | None = None
    project: str | None = None
    headers: dict[str, Secret | str] = Field(default_factory=dict[str, Secret | str])
    """Sent with every request."""
    extra_body: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Fields added to every request body (`openai-compatible` and `openrouter`)."""
    api_version: str | None = Field(default=None, pattern=r"^[0-9A-Za-z.-]+$")
    """Of Azure: the dated version of its older paths, by deployment; None: its `/openai/v1`."""
    location: str | None = Field(default=None, pattern=r"^[a-z0-9-]+$")
    """Of Vertex: the region of a project, or `global`. Of Bedrock: the region."""
    script: Path | None = None
    """The file that a scripted provider plays."""
    proxy: str | None = None
    """None: as `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` say."""
    ca_file: Path | None = None
    """Certificates to trust, in place of the system's."""
    connect_timeout_ms: int = Field(default=10_000, gt=0)
    first_byte_timeout_ms: int = Field(default=600_000, gt=0)
    """From the request to the first byte of the reply's body; models think long."""
    idle_timeout_ms: int = Field(default=120_000, gt=0)
    """Between two bytes of a reply."""
    call_timeout_ms: int | None = Field(default=None, gt=0)
    """Of one attempt from begin to end; None: only stage and run bound it."""

    @field_validator("kind")
    @classmethod
    def _known_kind(cls, kind: str) -> str:
        return check_known_kind(kind)

    @field_validator("base_url")
    @classmethod
    def _plain_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("base_url must be a http or https address, such as http://127.0.0.1:8000/v1")
        if parts.username is not None or parts.password is not None:
            raise ValueError("base_url must not hold a user or password; use api_key_env or headers")
        if parts.query or parts.fragment:
            raise ValueError("base_url must not hold a query or fragment")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _whole(self) -> ProviderSettings:
        if self.kind == "scripted":
            if self.script is None:
                raise ValueError("a scripted provider needs `script`, the file that it plays")
        elif self.script is not None:
            raise ValueError(f"`script` is for providers of kind scripted, not {self.kind}")
        if self.kind == "openai-compatible" and self.base_url is None:
            raise ValueError("an openai-compatible provider needs `base_url`")
        if self.kind in ("openai", "openai-chat") and self.api_key is None:
            raise ValueError("an OpenAI provider needs a key: set `api_key_env` or `api_key_file`")
        if self.kind == "anthropic" and self.api_key is None and self.base_url is None:
            raise ValueError("an Anthropic provider needs a key: set `api_key_env` or `api_key_file`")
        if self.kind == "google" and self.api_key is None and self.base_url is None:
            raise ValueError("a Google provider needs a key: set `api_key_env` or `api_key_file`")
        if self.extra_body and self.kind not in _OF_COMPATIBLE:
            raise ValueError(f"`extra_body` is for providers of kind {' and '.join(_OF_COMPATIBLE)}")
        self._check_clouds()
        return self

    def _check_clouds(self) -> None:
        if self.kind == "azure" and (self.base_url is None or self.api_key is None):
            raise ValueError(
                "an Azure provider needs a key, and `base_url`: https://RESOURCE.openai.azure.com"
            )
        if self.kind == "openrouter" and self.api_key is None and self.base_url is None:
            raise ValueError("an OpenRouter provider needs a key: set `api_key_env` or `api_key_file`")
        if self.kind == "vertex" and self.api_key is None and self.project is None:
            raise ValueError(
                "a Vertex provider needs a key, or `project` and the login that "
                "`gcloud auth application-default login` makes"
            )
        if self.kind == "bedrock":
            if self.api_key is None and self.aws is None:
                raise ValueError("a Bedrock provider needs an API key, or the credentials of an AWS account")
            if self.location is None and (self.base_url is None or self.aws is not None):
                raise ValueError("a Bedrock provider needs `location`, its region, or AWS_REGION")
        if self.aws is not None and (self.kind != "bedrock" or self.api_key is not None):
            raise ValueError("`aws` is for providers of kind bedrock without an API key")
        if self.api_version is not None and self.kind != "azure":
            raise ValueError("`api_version` is for providers of kind azure")
        if self.location is not None and self.kind not in ("vertex", "bedrock"):
            raise ValueError("`location` is for providers of kind vertex and bedrock")

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """What must never be shown."""
        headers = tuple(value for value in self.headers.values() if isinstance(value, Secret))
        key = () if self.api_key is None else (self.api_key,)
        return (*headers, *key, *(() if self.aws is None else self.aws.secrets))

    @property
    def url(self) -> str:
        """The base URL in force."""
        if self.kind == "anthropic":
            # Written with or without the version: the SDK adds it.
            return (self.base_url or _ANTHROPIC_URL).removesuffix("/v1")
        if self.kind == "google":
            return (self.base_url or _GOOGLE_URL).removesuffix("/v1beta")
        if self.kind == "azure":
            return (self.base_url or "").removesuffix("/v1").removesuffix("/openai")
        if self.kind == "openrouter":
            return self.base_url or _OPENROUTER_URL
        if self.kind == "ollama":
            # Written as for a server that speaks Chat Completions, or without that.
            return (self.base_url or _OLLAMA_URL).removesuffix("/v1")
        if self.kind == "bedrock":
            return self.base_url or f"https://bedrock-runtime.{self.location}.amazonaws.com"
        if self.kind == "vertex":
            return self.base_url or self._vertex_url()
        return self.base_url or _OPENAI_URL

    def _vertex_url(self) -> str:
        location = self.location or "global"
        if self.api_key is not None or location == "global":
            return "https://aiplatform.googleapis.com"
        if location in ("us", "eu"):
            return f"https://aiplatform.{location}.rep.googleapis.com"
        return f"https://{location}-aiplatform.googleapis.com"


class PoolMember(Model):
    """A provider's model in a pool."""

    model: str = Field(pattern=r"^[A-Za-z0-9_-]+:\S+$")
    """`NAME:MODEL`."""
    order: int = Field(default=1, ge=1)
    """A member with a higher one is asked when those with lower ones can't."""
    weight: int = Field(default=1, ge=1)
    """Its share of the requests among members of one order."""
    max_concurrency: int | None = Field(default=None, ge=1)
    """Requests in flight at once; None: no bound."""
    tool_mode: Literal["auto", "native", "json"] = "auto"
    """`native`: it calls tools itself; `json`: each reply is one JSON object, a tool call. `auto`: native,
    but json once its server says that it can't."""
    max_output_tokens: int | None = Field(default=None, ge=1)
    """The model's longest reply, where it isn't known by name."""
    context_window_tokens: int | None = Field(default=None, ge=1)
    images: bool | None = None
    """Whether the model takes pictures, where it isn't known by name; None: it does."""

    @property
    def provider_name(self) -> str:
        """`NAME`."""
        return self.model.partition(":")[0]

    @property
    def model_name(self) -> str:
        """`MODEL`, as the provider knows it."""
        return self.model.partition(":")[2]


class PoolSettings(Model):
    """Models that can serve a stage."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.:/-]+$")
    members: tuple[PoolMember, ...] = Field(min_length=1)

    @field_validator("members")
    @classmethod
    def _each_once(cls, members: tuple[PoolMember, ...]) -> tuple[PoolMember, ...]:
        models = [member.model for member in members]
        doubled = sorted({model for model in models if models.count(model) > 1})
        if doubled:
            raise ValueError(f"a pool names a model once, not {', '.join(doubled)} twice; weight it instead")
        return members
