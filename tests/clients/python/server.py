"""The unmodified Python SDK server, or FastMCP's with the argument `fastmcp`, with an event store, for our client, our storm and our
check. One tool, `ticker`: numbered progress, then how often it ran.

Says the port that it listens on, on one line.
"""

import asyncio
import json
import socket
import sys
from collections import Counter, defaultdict
from itertools import islice
from secrets import token_urlsafe

import uvicorn
from mcp.server.streamable_http import EventMessage, EventStore

FASTMCP = sys.argv[1:] == ["fastmcp"]
if FASTMCP:
    from fastmcp import Context
    from fastmcp import FastMCP as Server
else:
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver import MCPServer as Server

executions: Counter[str] = Counter()


class Store(EventStore):
    """Each stream's events in order, under ids that nobody guesses. The SDK has one store for all sessions, and does not say which asks."""

    def __init__(self):
        self.streams = defaultdict(list)
        self.places = {}

    async def store_event(self, stream_id, message):
        event_id = token_urlsafe(12)
        events = self.streams[stream_id]
        events.append((event_id, message))
        self.places[event_id] = (stream_id, len(events))
        return event_id

    async def replay_events_after(self, last_event_id, send_callback):
        if last_event_id not in self.places:
            return None
        stream_id, following = self.places[last_event_id]
        # A list's iterator comes to what is stored meanwhile as well.
        for event_id, message in islice(self.streams[stream_id], following, None):
            if message is not None:
                await send_callback(EventMessage(message, event_id))
        return stream_id


server = Server("fastmcp" if FASTMCP else "python")


@server.tool()
async def ticker(count: int, interval_ms: int, key: str, ctx: Context, payload_bytes: int = 0) -> str:
    """Ticks."""
    executions[key] += 1
    for tick in range(1, count + 1):
        await asyncio.sleep(interval_ms / 1000)
        await ctx.report_progress(tick, count, "x" * payload_bytes)
    return json.dumps({"ticks": count, "key": key, "executions": executions[key]})


listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
print(listener.getsockname()[1], flush=True)
application = server.http_app if FASTMCP else server.streamable_http_app
app = application(event_store=Store(), retry_interval=200)
uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])
