"""The unmodified Python SDK server with an event store, for our client: one tool, `ticker`, that says numbers and then how often it ran.

Says the port that it listens on, on one line.
"""

import asyncio
import json
import socket
from collections import Counter

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.streamable_http import EventMessage, EventStore

executions: Counter[str] = Counter()


class Store(EventStore):
    """Events in the order in which they were stored, under ids that say nothing."""

    def __init__(self):
        self.events = []

    async def store_event(self, stream_id, message):
        self.events.append((stream_id, message))
        return f"event-{len(self.events)}"

    async def replay_events_after(self, last_event_id, send_callback):
        last = int(last_event_id.split("-")[1])
        stream = self.events[last - 1][0]
        for number, (of, message) in enumerate(self.events[last:], last + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, f"event-{number}"))
        return stream


server = MCPServer("python")


@server.tool()
async def ticker(count: int, interval_ms: int, key: str, ctx: Context) -> str:
    """Ticks."""
    executions[key] += 1
    for tick in range(1, count + 1):
        await asyncio.sleep(interval_ms / 1000)
        await ctx.report_progress(tick, count)
    return json.dumps({"executions": executions[key]})


listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
print(listener.getsockname()[1], flush=True)
app = server.streamable_http_app(event_store=Store(), retry_interval=200)
uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])
