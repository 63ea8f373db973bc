"""Call tools as a client of MCP does."""

from typing import Any

from mcp.client import Client
from mcp_types import CallToolResult, TextContent


async def call(client: Client, tool: str, **arguments: Any) -> CallToolResult:
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    return result


def words(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text
