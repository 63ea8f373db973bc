"""Call tools as a client of MCP does."""

from mcp_types import CallToolResult, TextContent


async def call(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    return result


def words(result):
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text
