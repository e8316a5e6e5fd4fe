"""An MCP server as people write them: by the official SDK."""

import asyncio
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("by-the-sdk")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def read(path: str) -> str:
    """Reads a file of the working folder."""
    return Path(path).read_text()


@server.tool()
async def nap(seconds: float) -> str:
    """Sleeps, unless it is told to stop."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        Path("nap-cancelled").write_text("yes")
        raise
    return "slept"


if __name__ == "__main__":
    server.run()
