"""Drives an unmodified Python client, `mcp` or `fastmcp` as the argument says: one session a line of standard input, all at once, one line
of what it saw for each. `scenario.mjs` takes and says the same.

In:  {"url", "era": "sessions" or a revision, "timeout_ms", "calls": [arguments, arguments]}
Out: {"url", "revision", "calls": [{"ticks": [...], "result" or "error", "code", "timed_out"}...], "error"}
"""

import json
import os
import sys
import time

import anyio


class Sdk:
    def __init__(self, url: str, mode: str) -> None:
        from mcp import Client

        self.client = Client(url, mode=mode)

    def revision(self) -> str:
        return self.client.protocol_version

    async def call(self, asked: dict, seconds: float, on_progress) -> dict:
        result = await self.client.call_tool("ticker", asked, seconds, on_progress)
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)


class FastMCP:
    def __init__(self, url: str, mode: str) -> None:
        from fastmcp import Client

        self.client = Client(url, mode=mode)

    def revision(self) -> str:
        return self.client.protocol_version

    async def call(self, asked: dict, seconds: float, on_progress) -> dict:
        result = await self.client.call_tool("ticker", asked, timeout=seconds, progress_handler=on_progress)
        return {"content": [{"type": "text", "text": result.content[0].text}]}


CLIENT = {"mcp": Sdk, "fastmcp": FastMCP}[sys.argv[1]]


async def once(client, asked: dict, seconds: float) -> dict:
    ticks: list[float] = []
    began = time.monotonic()

    async def on_progress(progress: float, *_) -> None:
        ticks.append(progress)

    try:
        # A second bound, for a client that does not keep its own.
        with anyio.fail_after(seconds * 1.25):
            return {"ticks": ticks, "result": await client.call(asked, seconds, on_progress)}
    except Exception as error:  # What went wrong is the test's to judge.
        code = getattr(getattr(error, "error", None), "code", None)
        return {"ticks": ticks, "error": repr(error), "code": code, "timed_out": time.monotonic() - began >= seconds}


async def drive(asked: dict) -> None:
    seen: dict = {"url": asked["url"], "calls": []}
    try:
        client = CLIENT(asked["url"], "legacy" if asked["era"] == "sessions" else asked["era"])
        async with client.client:
            seen["revision"] = client.revision()
            for call in asked["calls"]:
                seen["calls"].append(await once(client, call, asked["timeout_ms"] / 1000))
    except BaseException as error:
        seen["error"] = repr(error)
    print(json.dumps(seen), flush=True)


async def main() -> None:
    async with anyio.create_task_group() as sessions:
        for line in sys.stdin:
            sessions.start_soon(drive, json.loads(line))


anyio.run(main)
# A client may still try to come back, for as long as its process lives.
os._exit(0)
