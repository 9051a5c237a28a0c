"""Drives the unmodified Python SDK client, in revisions that have sessions: one a line of standard input, all at once, one line of what
each saw.

In:  {"url", "count", "interval_ms", "key", "progress"}   (progress: ask for progress notifications instead of log messages)
Out: {"url", "ticks": [...], "result" or "error", "revision"}
"""

import json
import sys

import anyio
from mcp import Client


async def drive(asked: dict) -> None:
    ticks: list[float] = []
    seen: dict = {"url": asked["url"], "ticks": ticks}

    async def on_message(params) -> None:
        ticks.append(params.data["tick"])

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        ticks.append(progress)

    arguments = {name: asked[name] for name in ("count", "interval_ms", "key")} | {"payload_bytes": 10}
    try:
        async with Client(asked["url"], mode="legacy", logging_callback=on_message) as client:
            on_progress_or_none = on_progress if asked["progress"] else None
            result = await client.call_tool("ticker", arguments, 120, on_progress_or_none)
            seen["result"] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
            seen["revision"] = client.protocol_version
    except Exception as error:  # What went wrong is the test's to judge.
        seen["error"] = repr(error)
    print(json.dumps(seen), flush=True)


async def main() -> None:
    async with anyio.create_task_group() as sessions:
        for line in sys.stdin:
            sessions.start_soon(drive, json.loads(line))


anyio.run(main)
