// The unmodified TypeScript SDK server with an event store, for our client and our storm. One tool, `ticker`: numbered progress, then
// how often it ran.
//
// Says the port that it listens on, on one line.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { z } from 'zod';

const executions = new Map();

// One session's events, each stream's in order, under ids that nobody guesses.
class Store {
    streams = new Map();
    places = new Map();

    async storeEvent(stream, message) {
        const id = randomUUID();
        const events = this.streams.get(stream) ?? [];
        events.push({ id, message });
        this.streams.set(stream, events);
        this.places.set(id, { stream, next: events.length });
        return id;
    }

    async getStreamIdForEventId(id) {
        return this.places.get(id)?.stream;
    }

    async replayEventsAfter(last, { send }) {
        const { stream, next } = this.places.get(last);
        const events = this.streams.get(stream);
        // What is stored meanwhile is sent as well.
        for (let at = next; at < events.length; at++) await send(events[at].id, events[at].message);
        return stream;
    }
}

function serverOf() {
    const server = new McpServer({ name: 'typescript', version: '0' });
    const inputSchema = { count: z.number(), interval_ms: z.number(), payload_bytes: z.number().default(0), key: z.string() };
    server.registerTool('ticker', { description: 'Ticks.', inputSchema }, async (asked, extra) => {
        const { count, interval_ms, payload_bytes, key } = asked;
        executions.set(key, (executions.get(key) ?? 0) + 1);
        for (let tick = 1; tick <= count; tick++) {
            await new Promise(resolve => setTimeout(resolve, interval_ms));
            const params = { progressToken: extra._meta.progressToken, progress: tick, total: count, message: 'x'.repeat(payload_bytes) };
            await extra.sendNotification({ method: 'notifications/progress', params });
        }
        return { content: [{ type: 'text', text: JSON.stringify({ ticks: count, key, executions: executions.get(key) }) }] };
    });
    return server;
}

const sessions = new Map();

const http = createServer(async (request, response) => {
    let transport = sessions.get(request.headers['mcp-session-id']);
    if (!transport && request.headers['mcp-session-id']) {
        response.writeHead(404).end();
        return;
    }
    if (!transport) {
        transport = new StreamableHTTPServerTransport({
            sessionIdGenerator: randomUUID,
            eventStore: new Store(),
            retryInterval: 200,
            onsessioninitialized: id => sessions.set(id, transport),
        });
        await serverOf().connect(transport);
    }
    await transport.handleRequest(request, response);
});

http.listen(0, '127.0.0.1', () => console.log(http.address().port));
