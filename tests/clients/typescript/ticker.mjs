// Drives the unmodified TypeScript SDK client: one session a line of standard input, all at once, one line of what it saw for each.
//
// In:  {"url", "count", "interval_ms", "key", "progress"}   (progress: ask for progress notifications instead of log messages)
// Out: {"url", "ticks": [...], "result" or "error", "revision"}

import { createInterface } from 'node:readline';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CallToolResultSchema, LoggingMessageNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

async function drive({ url, count, interval_ms, key, progress }) {
    const ticks = [];
    const client = new Client({ name: 'rejoin-tests', version: '0' });
    const transport = new StreamableHTTPClientTransport(new URL(url));
    client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => ticks.push(params.data.tick));
    try {
        await client.connect(transport);
        const call = { name: 'ticker', arguments: { count, interval_ms, payload_bytes: 10, key } };
        const options = { timeout: 120_000, ...(progress && { onprogress: ({ progress }) => ticks.push(progress) }) };
        const result = await client.callTool(call, CallToolResultSchema, options);
        return { url, ticks, result, revision: transport.protocolVersion };
    } catch (error) {
        return { url, ticks, error: String(error) };
    } finally {
        await client.close();
    }
}

const sessions = [];
for await (const line of createInterface({ input: process.stdin })) {
    sessions.push(drive(JSON.parse(line)).then(seen => console.log(JSON.stringify(seen))));
}
await Promise.all(sessions);
