"""Drives the unmodified Python SDK client through a script: one session a line of standard input, all at once, one line of what it saw for
each. `script.mjs` takes and says the same.

In:  {"url", "roots": [uri...], "steps": [{"do", ...}...]}
Out: {"url", "did": [one outcome a step], "logs": [...], "updates": [uri...], "asked": [method...], "revision", "error"}
"""

import json
import sys
import warnings

import anyio
import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError

TIMEOUT = 60

# What the newest revision no longer has, these tests are about.
warnings.simplefilter("ignore")


def plain(result):
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


class Session:
    def __init__(self, asked: dict) -> None:
        self.roots = asked["roots"]
        self.seen: dict = {"url": asked["url"], "did": [], "logs": [], "updates": [], "asked": []}
        self.client = Client(
            asked["url"],
            logging_callback=self.on_log,
            message_handler=self.on_message,
            list_roots_callback=self.on_roots,
            sampling_callback=self.on_sampling,
            elicitation_callback=self.on_elicitation,
        )

    async def on_log(self, params) -> None:
        self.seen["logs"].append(params.data)

    async def on_message(self, message) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            self.seen["updates"].append(str(message.params.uri))

    async def on_roots(self, _):
        self.seen["asked"].append("roots/list")
        return types.ListRootsResult(roots=[types.Root(uri=uri) for uri in self.roots])

    async def on_sampling(self, _, params):
        self.seen["asked"].append("sampling/createMessage")
        text = f"sampled {params.messages[0].content.text}"
        return types.CreateMessageResult(role="assistant", model="none", content=types.TextContent(type="text", text=text))

    async def on_elicitation(self, *_):
        self.seen["asked"].append("elicitation/create")
        return types.ElicitResult(action="accept", content={"name": "Ann", "interpretation": "current"})

    async def call(self, tool, arguments, progress=False, cancel_after=None, says=None):
        outcome: dict = {"ticks": []}

        async def on_progress(progress, *_) -> None:
            outcome["ticks"].append(progress)
            if len(outcome["ticks"]) == cancel_after:
                scope.cancel()

        with anyio.CancelScope() as scope:
            try:
                with anyio.fail_after(TIMEOUT):
                    while True:
                        result = await self.client.call_tool(tool, arguments, TIMEOUT, on_progress if progress else None)
                        if says is None or says in result.content[0].text:
                            break
                        await anyio.sleep(0.01)
                outcome["result"] = plain(result)
            except MCPError as error:
                outcome |= {"error": str(error), "code": error.error.code}
        if scope.cancelled_caught:
            outcome["error"] = "enough"
        return outcome

    async def tools(self):
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def level(self, level):
        return plain(await self.client.set_logging_level(level))

    async def subscribe(self, uri):
        return plain(await self.client.subscribe_resource(uri))

    async def unsubscribe(self, uri):
        return plain(await self.client.unsubscribe_resource(uri))

    async def read(self, uri):
        return plain(await self.client.read_resource(uri))

    async def prompt(self, name, arguments):
        return plain(await self.client.get_prompt(name, arguments))

    async def complete(self, prompt, name, value):
        reference = types.PromptReference(type="ref/prompt", name=prompt)
        return plain(await self.client.complete(reference, {"name": name, "value": value}))

    async def change_roots(self, roots):
        self.roots = roots
        await self.client.send_roots_list_changed()

    async def until(self, what, count):
        with anyio.fail_after(TIMEOUT):
            while len(self.seen[what]) < count:
                await anyio.sleep(0.01)

    async def run(self, steps: list[dict]) -> None:
        async with self.client:
            self.seen["revision"] = self.client.protocol_version
            for step in steps:
                name = step.pop("do")
                do = getattr(self, "change_roots" if name == "roots" else name)
                self.seen["did"].append(await do(**step))


async def drive(asked: dict) -> None:
    session = Session(asked)
    try:
        await session.run(asked["steps"])
    except BaseException as error:  # What went wrong is the test's to judge.
        session.seen["error"] = repr(error)
    print(json.dumps(session.seen), flush=True)


async def main() -> None:
    async with anyio.create_task_group() as sessions:
        for line in sys.stdin:
            sessions.start_soon(drive, json.loads(line))


anyio.run(main)
