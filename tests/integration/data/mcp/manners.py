"""An MCP server by hand, with the manners that it is told to have. Standard library only.

    manners.py [MANNER ...]

It writes each message that it gets, one a line, into `mcp-log.jsonl` of its working folder.
"""

import json
import os
import sys
import threading
import time

MANNERS = set(sys.argv[1:])
LOCK = threading.Lock()
TOOLS = [
    {"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}, "annotations": {"readOnlyHint": True}},
    {"name": "write", "description": "Writes a file.", "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}, "text": {"type": "string"}}}},
    {"name": "wait", "description": "Takes its time.", "inputSchema": {"type": "object", "properties": {"seconds": {"type": "number"}}}},
    {"name": "fail", "description": "Fails.", "inputSchema": {"type": "object"}},
    {"name": "die", "description": "Ends the server.", "inputSchema": {"type": "object"}},
    {"name": "large", "description": "Says much.", "inputSchema": {"type": "object", "properties": {"bytes": {"type": "integer"}}}},
    {"name": "look", "description": "Tells what it sees.", "inputSchema": {"type": "object"}},
    {"name": "ask", "description": "Asks the client for a completion.", "inputSchema": {"type": "object"}},
    {"name": "bad result", "description": "Answers nonsense.", "inputSchema": {"type": "object"}},
]
SCHEMALESS = {"name": "odd", "inputSchema": {"type": "object", "title": "y" * 20_000}}


def note(message):
    with LOCK, open("mcp-log.jsonl", "a") as file:
        file.write(json.dumps(message) + "\n")


def send(message):
    if "stderr" in MANNERS:
        flood()
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def flood():
    sys.stderr.write("a warning\n" * 13_108 + "x" * 131_072)
    sys.stderr.flush()


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def call(number, name, arguments):
    if name == "echo":
        return text(str(arguments.get("text")))
    if name == "write":
        with open(arguments["path"], "w") as file:
            file.write(arguments["text"])
        return text("written")
    if name == "wait":
        time.sleep(arguments.get("seconds", 60))
        return text("waited")
    if name == "fail":
        return text("it doesn't work", isError=True)
    if name == "die":
        sys.stderr.write("last words\n")
        sys.stderr.flush()
        os._exit(3)
    if name == "large":
        return text("y" * arguments["bytes"])
    if name == "look":
        return {"content": [], "structuredContent": {"pid": os.getpid(), "cwd": os.getcwd(), "variables": sorted(os.environ)}}
    if name == "ask":
        send({"id": "q1", "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}})
        return text("asked")
    if name == "bad result":
        return {"content": "no list"}
    return None


def answer(message):
    number, params = message["id"], message.get("params", {})
    result = call(number, params.get("name"), params.get("arguments") or {})
    if result is None:
        send({"id": number, "error": {"code": -32602, "message": "no such tool"}})
    else:
        send({"id": number, "result": result})


def handle(message):
    method, number = message.get("method"), message.get("id")
    if method == "initialize":
        if "mute" in MANNERS:
            return
        version = message["params"]["protocolVersion"]
        send({"id": number, "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "manners", "version": "1"}}})
    elif method == "tools/list":
        if "flood" in MANNERS:
            for place in range(5_000):
                send({"method": "notifications/message", "params": {"level": "info", "data": place}})
        tools = TOOLS + ([SCHEMALESS] if "odd" in MANNERS else [])
        send({"id": number, "result": {"tools": tools}})
    elif method == "tools/call":
        threading.Thread(target=answer, args=(message,), daemon=True).start()


def main():
    if "banner" in MANNERS:
        print("Welcome to the server\n{ not json\n[1, 2]\n", flush=True)
    if "stderr" in MANNERS:
        flood()
    if "endless" in MANNERS:
        while True:
            sys.stdout.write("z" * 1_000_000)
    if "broken" in MANNERS:
        sys.stderr.write("cannot find my settings\n")
        sys.exit(7)
    for line in sys.stdin:
        message = json.loads(line)
        note(message)
        handle(message)


main()
