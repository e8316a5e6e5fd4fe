"""The MCP door: runs as tools of a Model Context Protocol server, over HTTP and over stdin and stdout.

What it needs of a host is `ToolRuns`: a host in this process is one by `ServedRuns`; one that is reached over
HTTP by a client is adapted by whoever has the client. The SDK is loaded when a server is made.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from remit.api.mcp._ports import ToolRuns

if TYPE_CHECKING:
    from remit.api.mcp._door import McpDoor
    from remit.api.mcp._served import ServedRuns
    from remit.api.mcp._server import make_server
    from remit.api.mcp._stdio import claimed_wire, serve_streams

__all__ = ["McpDoor", "ServedRuns", "ToolRuns", "claimed_wire", "make_server", "serve_streams"]

_HOMES = {
    "McpDoor": "remit.api.mcp._door",
    "ServedRuns": "remit.api.mcp._served",
    "claimed_wire": "remit.api.mcp._stdio",
    "make_server": "remit.api.mcp._server",
    "serve_streams": "remit.api.mcp._stdio",
}
"""Name -> the module that defines it, for those that aren't loaded at once."""


def __getattr__(name: str) -> Any:
    """Load a name from its home, once."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
