// Drives the unmodified TypeScript SDK client through a script: one session a line of standard input, all at once, one line of what it saw
// for each. `script.py` takes and says the same.
//
// In:  {"url", "roots": [uri...], "steps": [{"do", ...}...]}
// Out: {"url", "did": [one outcome a step], "logs": [...], "updates": [uri...], "asked": [method...], "revision", "error"}

import { createInterface } from 'node:readline';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import * as types from '@modelcontextprotocol/sdk/types.js';

const TIMEOUT = { timeout: 60_000 };

const pause = () => new Promise(wait => setTimeout(wait, 10));

function steps(client, seen) {
    return {
        async call({ tool, arguments: args, progress, cancel_after, says }) {
            const ticks = [];
            const cancel = new AbortController();
            const onprogress = ({ progress }) => ticks.push(progress) === cancel_after && cancel.abort('enough');
            const options = { ...TIMEOUT, signal: cancel.signal, ...(progress && { onprogress }) };
            try {
                for (const deadline = Date.now() + TIMEOUT.timeout; ; await pause()) {
                    const result = await client.callTool({ name: tool, arguments: args }, types.CallToolResultSchema, options);
                    if (!says || result.content[0].text.includes(says)) return { ticks, result };
                    if (Date.now() > deadline) throw new Error(`never says ${says}`);
                }
            } catch (error) {
                return { ticks, error: String(error), code: error.code };
            }
        },
        async task({ tool, arguments: args }) {
            const statuses = [];
            for await (const message of client.experimental.tasks.callToolStream({ name: tool, arguments: args }, types.CallToolResultSchema)) {
                if (message.type === 'result') return { statuses, result: message.result };
                if (message.type === 'error') throw message.error;
                statuses.push(message.task.status);
            }
        },
        tools: async () => (await client.listTools()).tools.map(tool => tool.name),
        level: ({ level }) => client.setLoggingLevel(level),
        subscribe: ({ uri }) => client.subscribeResource({ uri }),
        unsubscribe: ({ uri }) => client.unsubscribeResource({ uri }),
        read: ({ uri }) => client.readResource({ uri }),
        prompt: ({ name, arguments: args }) => client.getPrompt({ name, arguments: args }),
        complete: ({ prompt, name, value }) => client.complete({ ref: { type: 'ref/prompt', name: prompt }, argument: { name, value } }),
        async roots({ roots }) {
            seen.roots = roots;
            await client.sendRootsListChanged();
        },
        async until({ what, count }) {
            for (const deadline = Date.now() + TIMEOUT.timeout; seen[what].length < count; ) {
                if (Date.now() > deadline) throw new Error(`${seen[what].length} of ${count} ${what}`);
                await pause();
            }
        },
    };
}

async function drive({ url, roots, steps: script }) {
    const seen = { url, roots, did: [], logs: [], updates: [], asked: [] };
    const capabilities = { roots: { listChanged: true }, sampling: {}, elicitation: { form: {} } };
    const client = new Client({ name: 'rejoin-tests', version: '0' }, { capabilities });
    const transport = new StreamableHTTPClientTransport(new URL(url));
    client.setNotificationHandler(types.LoggingMessageNotificationSchema, ({ params }) => seen.logs.push(params.data));
    client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, ({ params }) => seen.updates.push(params.uri));
    const asked = (schema, answer) => client.setRequestHandler(schema, request => (seen.asked.push(request.method), answer(request.params)));
    asked(types.ListRootsRequestSchema, () => ({ roots: seen.roots.map(uri => ({ uri })) }));
    asked(types.CreateMessageRequestSchema, ({ messages }) => ({
        role: 'assistant', model: 'none', content: { type: 'text', text: `sampled ${messages[0].content.text}` },
    }));
    asked(types.ElicitRequestSchema, () => ({ action: 'accept', content: { name: 'Ann', interpretation: 'current' } }));
    try {
        // A server may take long to start, and its first answer waits for it.
        await client.connect(transport, { timeout: 120_000 });
        seen.revision = transport.protocolVersion;
        const can = steps(client, seen);
        for (const step of script) {
            seen.did.push((await can[step.do](step)) ?? null);
        }
    } catch (error) {
        seen.error = String(error);
    } finally {
        // Each session has a process: it is not left to expire.
        await transport.terminateSession().catch(error => (seen.error ??= String(error)));
        await client.close();
    }
    return seen;
}

const sessions = [];
for await (const line of createInterface({ input: process.stdin })) {
    sessions.push(drive(JSON.parse(line)).then(seen => console.log(JSON.stringify(seen))));
}
await Promise.all(sessions);
