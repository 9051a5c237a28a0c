// The unmodified TypeScript SDK server with an event store, for our client: one tool, `ticker`, that says numbers and then how often it ran.
//
// Says the port that it listens on, on one line.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { z } from 'zod';

const executions = new Map();

// Events in the order in which they were stored, under ids that say nothing.
class Store {
    events = [];

    async storeEvent(stream, message) {
        this.events.push({ stream, message });
        return `event-${this.events.length}`;
    }

    async getStreamIdForEventId(id) {
        return this.events[Number(id.split('-')[1]) - 1]?.stream;
    }

    async replayEventsAfter(last, { send }) {
        const from = Number(last.split('-')[1]);
        const stream = this.events[from - 1].stream;
        for (let at = from; at < this.events.length; at++) {
            if (this.events[at].stream === stream) await send(`event-${at + 1}`, this.events[at].message);
        }
        return stream;
    }
}

function serverOf() {
    const server = new McpServer({ name: 'typescript', version: '0' });
    const inputSchema = { count: z.number(), interval_ms: z.number(), key: z.string() };
    server.registerTool('ticker', { description: 'Ticks.', inputSchema }, async ({ count, interval_ms, key }, extra) => {
        executions.set(key, (executions.get(key) ?? 0) + 1);
        for (let tick = 1; tick <= count; tick++) {
            await new Promise(resolve => setTimeout(resolve, interval_ms));
            const params = { progressToken: extra._meta.progressToken, progress: tick, total: count };
            await extra.sendNotification({ method: 'notifications/progress', params });
        }
        return { content: [{ type: 'text', text: JSON.stringify({ executions: executions.get(key) }) }] };
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
