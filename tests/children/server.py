"""A stdio MCP server that behaves as its tests ask: each tool is one way to be a good or a bad child."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

REVISION = os.environ.get("REVISION")
LOCK = threading.Lock()
ANSWERS = {}
CANCELLED = []
STUBBORN = threading.Event()
HEARD = []


def write(text):
    with LOCK:
        sys.stdout.buffer.write(text if isinstance(text, bytes) else text.encode())
        sys.stdout.buffer.flush()


def say(**message):
    write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def note(data):
    say(method="notifications/message", params={"level": "info", "data": data})


def ask(own_id, method, params):
    """Asks the client, and waits for what it answers."""
    ready = threading.Event()
    ANSWERS[own_id] = [ready, None]
    say(id=own_id, method=method, params=params)
    ready.wait()
    return ANSWERS.pop(own_id)[1]


def echo(args, token, _):
    for step in range(args.get("steps", 0)):
        if token is not None:
            say(method="notifications/progress", params={"progressToken": token, "progress": step, "message": args["text"]})
        time.sleep(0.01)
    time.sleep(args.get("wait", 0))
    return args["text"]


def flood(args, *_):
    for at in range(args["count"]):
        note({"at": at, "pad": "x" * args.get("pad", 100)})
    return "flooded"


def garbage(*_):
    write(b"Listening...\n\n   \n\xff\xfe\n[]\n{}\n42\n{\"jsonrpc\":\"1.0\",\"id\":1,\"result\":1}\n{\"jsonrpc\":\"2.0\"\n\x00\n")
    return "still here"


def overlong(args, _, id):
    pad = "x" * args["bytes"]
    write('{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"' + pad + '"}}\n')
    if args.get("answer"):
        say(id=id, result={"content": [{"type": "text", "text": pad}]})
        return None
    return "still here"


def stderr(args, *_):
    for at in range(args["lines"]):
        print(f"noise {at} \x1b[31m" + "x" * args.get("pad", 0), file=sys.stderr, flush=True)
    return "noisy"


def sample(args, *_):
    return json.dumps(ask(args["id"], "sampling/createMessage", {"messages": [], "maxTokens": 1}))


def withdraw(*_):
    say(id="w", method="elicitation/create", params={"message": "never mind"})
    say(method="notifications/cancelled", params={"requestId": "w"})
    return "withdrawn"


def descriptors(*_):
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            pass  # the directory's own
    return json.dumps(found)


def facts(*_):
    return json.dumps({"pid": os.getpid(), "group": os.getpgid(0), "env": os.environ.get("GATEWAY_TEST")})


def grandchild(*_):
    return str(subprocess.Popen(["sleep", "600"]).pid)


def stubborn(*_):
    """From here on neither the end of the input nor SIGTERM ends it."""
    STUBBORN.set()
    threading.Thread(target=time.sleep, args=(600,)).start()
    return str(os.getpid())


def heard(*_):
    return json.dumps({"cancelled": CANCELLED, "notifications": HEARD})


def die(*_):
    os._exit(3)


def last_words(_, __, id):
    say(id=id, result={"content": [{"type": "text", "text": "farewell"}]})
    os._exit(0)


TOOLS = {tool.__name__: tool for tool in (
    echo, flood, garbage, overlong, stderr, sample, withdraw, descriptors, facts, grandchild, stubborn, heard, die, last_words
)}


def call(id, params):
    token = params.get("_meta", {}).get("progressToken")
    text = TOOLS[params["name"]](params.get("arguments", {}), token, id)
    if text is not None:
        say(id=id, result={"content": [{"type": "text", "text": text}]})


def receive(message):
    method, id, params = message.get("method"), message.get("id"), message.get("params", {})
    if method == "initialize":
        time.sleep(float(os.environ.get("START_DELAY", "0")))
        if "START_DIE" in os.environ:
            os._exit(1)
        if "START_ERROR" in os.environ:
            return say(id=id, error={"code": -32602, "message": "not today", "data": {"why": 1}})
        version = REVISION or params["protocolVersion"]
        say(id=id, result={"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}})
    elif method == "tools/call":
        threading.Thread(target=call, args=(id, params), daemon=True).start()
    elif method == "notifications/cancelled":
        CANCELLED.append(params["requestId"])
    elif id is None:
        HEARD.append(method)
    elif method is not None:
        say(id=id, error={"code": -32601, "message": "unknown"})
    else:
        ready = ANSWERS[id]
        ready[1] = {key: message[key] for key in ("result", "error") if key in message}
        ready[0].set()


signal.signal(signal.SIGTERM, lambda *_: STUBBORN.is_set() or os._exit(143))
if "DEAF" in os.environ:
    time.sleep(600)
for line in sys.stdin:
    receive(json.loads(line))
