"""The unmodified Python SDK server with an event store, for our client and our storm. One tool, `ticker`: numbered progress, then how
often it ran.

Says the port that it listens on, on one line.
"""

import asyncio
import json
import socket
from collections import Counter, defaultdict
from itertools import islice
from secrets import token_urlsafe

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.streamable_http import EventMessage, EventStore

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


server = MCPServer("python")


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
app = server.streamable_http_app(event_store=Store(), retry_interval=200)
uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])
