"""The shape of `remit.toml` above the tables that other modules own."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

from pydantic import Field, field_validator

from remit.contract import Model
from remit.models import check_known_kind


class HostTable(Model):
    """`[host]`: the host process itself."""

    listen: str = "127.0.0.1:7433"
    """Address and port of `remit serve`."""
    database: str = "sqlite"
    """`sqlite` (in the data folder), or a `postgresql://` address."""
    link_grace_ms: int = Field(default=30_000, ge=0)
    """How long a node's lost link is waited for before its runs' tools are stopped."""
    max_running: int = Field(default=100, ge=1)
    """Runs that go on at once."""
    max_queued: int = Field(default=1_000, ge=0)
    """Runs that wait beside them."""
    drain_ms: int = Field(default=30_000, ge=0)
    """How long what runs may go on after the first signal; then it is cancelled, code `drain`."""
    audit_days: int = Field(default=400, ge=30)
    """How long `remit serve` keeps an act on the audit record; not less than thirty days."""
    allowed_hosts: tuple[str, ...] = ()
    """Names, with or without a port, by which clients reach `remit serve` beside its own address."""
    allowed_origins: tuple[str, ...] = ()
    """Origins whose pages may act, such as `https://console.example`, beside the host's own."""
    tls_certificate: str | None = None
    """A PEM file with the certificate chain; with `tls_key` the doors speak TLS."""
    tls_key: str | None = None
    """A PEM file with the certificate's key."""
    allow_plain_http: bool = False
    """Whether an address that others can reach may be served without TLS: something in front has it."""
    max_body_bytes: int = Field(default=33_554_432, ge=1_024)
    """Of one request; a larger one is refused without being read."""
    webhook_secret_env: str | None = None
    """The environment variable with the secret that webhooks are signed with: `whsec_` and base64 of 24 to 64
    bytes. Without a secret none are sent."""
    webhook_secret_file: str | None = None
    """A file that holds it, and nothing else."""
    webhook_networks: tuple[str, ...] = ()
    """Networks, such as `10.1.0.0/16`, that webhooks may reach beside the public one; `127.0.0.0/8` lets them
    reach this machine, also by plain http."""

    @field_validator("webhook_networks")
    @classmethod
    def _check_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for network in value:
            ip_network(network)
        return value

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if not host or not port.isdigit() or not 0 <= int(port) <= 65_535:
            raise ValueError("an address is HOST:PORT, such as 127.0.0.1:7433")
        return value

    @field_validator("database")
    @classmethod
    def _check_database(cls, value: str) -> str:
        if value != "sqlite":
            raise ValueError('only "sqlite" is supported by this version')
        return value


class ProviderTable(Model):
    """`[providers.NAME]`: a provider as it stands in a file; keys are named, never written inline."""

    kind: str
    """How it is spoken to: openai, openai-chat, openai-compatible, anthropic, google, azure, bedrock, vertex,
    openrouter, ollama or scripted."""
    api_key_env: str | None = None
    """The environment variable that holds the key."""
    api_key_file: str | None = None
    """A file that holds the key, and nothing else."""
    base_url: str | None = None
    script: str | None = None
    """The file that a scripted provider plays; a relative one is relative to the file that names it."""
    api_version: str | None = None
    """Of Azure's older paths; without it `/openai/v1` is used."""
    location: str | None = None
    """Of Vertex: a region, or `global`; of Bedrock: its region, else `AWS_REGION`'s or the profile's."""
    organization: str | None = None
    project: str | None = None
    header_env: dict[str, str] = Field(default_factory=dict[str, str])
    """Header -> the environment variable that holds its value."""
    extra_body: dict[str, Any] = Field(default_factory=dict[str, Any])
    proxy: str | None = None
    ca_file: str | None = None
    connect_timeout_ms: int | None = None
    first_byte_timeout_ms: int | None = None
    idle_timeout_ms: int | None = None
    call_timeout_ms: int | None = None

    @field_validator("kind")
    @classmethod
    def _check_kind(cls, value: str) -> str:
        return check_known_kind(value)


class NodeTable(Model):
    """`[nodes.NAME]`: what a node offers. `local` is the node inside the host's own process."""

    alias: str | None = None
    platform: str | None = None
    keep_checkouts_ms: int = Field(default=14 * 24 * 3_600_000, ge=0)
    """How long the checkout of an ended run is kept that `preserve` asks for, from its last use on."""
    keep_checkouts_bytes: int = Field(default=10 << 30, ge=0)
    """What all kept checkouts may take together on disk; the oldest go first, but none of the last day."""
    keep_setups_bytes: int = Field(default=10 << 30, ge=0)
    """The same for all that setup commands have made; it also goes while its disk is nearly full."""
    workspaces: tuple[dict[str, Any], ...] = ()


class McpTable(Model):
    """`[mcp]`: programs that offer tools."""

    servers: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])


class FileShape(Model):
    """The top of a file. What a table holds is checked by the module that owns it."""

    host: HostTable = Field(default_factory=HostTable)
    providers: dict[str, ProviderTable] = Field(default_factory=dict[str, ProviderTable])
    pools: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    bindings: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    nodes: dict[str, NodeTable] = Field(default_factory=dict[str, NodeTable])
    mcp: McpTable = Field(default_factory=McpTable)
    prices: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
