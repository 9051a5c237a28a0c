// Drives an unmodified TypeScript SDK client, `1` or `2` as the argument says: one session a line of standard input, all at once, one line
// of what it saw for each. Each session makes two calls of `ticker` one after the other, whatever becomes of the first.
//
// In:  {"url", "era": "sessions" or a revision, "timeout_ms", "calls": [arguments, arguments]}
// Out: {"url", "revision", "calls": [{"ticks": [...], "result" or "error", "code", "status", "timed_out"}...], "error"}

import { createInterface } from 'node:readline';

const sdk = {
    1: async () => {
        const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
        const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
        const call = (client, request, options) => client.callTool(request, undefined, options);
        return { Client, StreamableHTTPClientTransport, call };
    },
    2: async () => {
        const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
        return { Client, StreamableHTTPClientTransport, call: (client, request, options) => client.callTool(request, options) };
    },
};
const { Client, StreamableHTTPClientTransport, call } = await sdk[process.argv[2]]();

async function once(client, asked, timeout) {
    const ticks = [];
    const began = performance.now();
    try {
        const options = { timeout, onprogress: ({ progress }) => ticks.push(progress) };
        return { ticks, result: await call(client, { name: 'ticker', arguments: asked }, options) };
    } catch (error) {
        const timed_out = performance.now() - began >= timeout;
        return { ticks, error: String(error), code: error.code ?? null, status: error.status ?? null, timed_out };
    }
}

async function drive({ url, era, timeout_ms, calls }) {
    const seen = { url, calls: [] };
    const versionNegotiation = { mode: era === 'sessions' ? 'legacy' : { pin: era } };
    const client = new Client({ name: 'rejoin-tests', version: '0' }, { versionNegotiation });
    // What fails in the background is told here, and to nobody otherwise.
    client.onerror = () => {};
    try {
        const transport = new StreamableHTTPClientTransport(new URL(url));
        await client.connect(transport);
        seen.revision = transport.protocolVersion;
        for (const asked of calls) seen.calls.push(await once(client, asked, timeout_ms));
    } catch (error) {
        seen.error = String(error);
    } finally {
        await client.close();
    }
    return seen;
}

const sessions = [];
for await (const line of createInterface({ input: process.stdin })) {
    sessions.push(drive(JSON.parse(line)).then(seen => console.log(JSON.stringify(seen))));
}
await Promise.all(sessions);
// A client may still try to come back, for as long as its process lives.
process.exit(0);
