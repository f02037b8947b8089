"""An agent without a client: NATS over a TCP socket, with nothing but Python's standard library."""

import hashlib, json, os, random, socket, time, urllib.parse


class World:
    def __init__(self, url, world="main"):
        at = urllib.parse.urlsplit(url)
        self.socket = socket.create_connection((at.hostname, at.port or 4222), timeout=5)
        self.lines, self.subject = self.socket.makefile("rb"), f"worldengine.v1.{world}."
        self.inbox, self.asked = f"_INBOX.{os.urandom(11).hex()}", 0
        self.lines.readline()  # INFO
        self.send('CONNECT {"verbose": false, "headers": true, "no_responders": true}', f"SUB {self.inbox}.* 1")

    def send(self, *lines):
        self.socket.sendall("".join(line + "\r\n" for line in lines).encode())

    def ask(self, verb, request):
        """Ask once, and return the headers and the body of the answer."""
        self.asked += 1
        inbox, body = f"{self.inbox}.{self.asked}", json.dumps(request)
        self.send(f"PUB {self.subject}{verb} {inbox} {len(body)}", body)  # json.dumps writes ASCII
        while line := self.lines.readline().split():
            if line[0] == b"PING":
                self.send("PONG")
            elif line[0] == b"-ERR":
                raise ConnectionError(b" ".join(line).decode())
            elif line[0] in (b"MSG", b"HMSG"):
                data = self.lines.read(int(line[-1]) + 2)[:-2]
                head = int(line[-2]) if line[0] == b"HMSG" else 0
                if line[1].decode() == inbox:
                    if data.startswith(b"NATS/1.0 503"):  # nobody serves the world
                        return {"Nats-Service-Error-Code": "503"}, {}
                    headers = (line.split(": ", 1) for line in data[:head].decode().split("\r\n") if ": " in line)
                    return dict(headers), json.loads(data[head:])
        raise ConnectionError("the connection ended")


def sha256(value):
    """Hash canonical JSON (RFC 8785). This is all of it for objects of texts; numbers need more care."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def make_handoff(town, type, argument, value, actor, reason):
    state = {"snapshotHash": town["snapshotHash"], "decisionEpoch": town["decisionEpoch"]}
    command = f"project advance {town['townId']} {value}"  # the mapping of PROJECT_ADVANCE
    key = "proposal_" + sha256({"actor": actor, "town": town["townId"], "command": command, "state": str(state)})
    proposal = {"schemaVersion": "proposal.v2", "proposalId": key, **state, "type": type, "actorId": actor,
                "townId": town["townId"], "priority": 0.5, "reason": reason, "reasonTags": [],
                "args": {argument: value}}
    return {"schemaVersion": "execution-handoff.v1", "advisory": True, "proposalId": key, "idempotencyKey": key,
            "handoffId": "handoff_" + sha256({"proposalId": key, "command": command}), **state,
            "proposal": proposal, "command": command, "executionRequirements": {
                "expectedSnapshotHash": state["snapshotHash"], "expectedDecisionEpoch": state["decisionEpoch"],
                "preconditions": []}}


world = World(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"))
_, town = world.ask("town.get", {"townId": "town-threatened"})
handoff = make_handoff(town, "PROJECT_ADVANCE", "projectId", "wall-perimeter", "mayor-1", "The wall is low.")
while True:  # a real agent stores the handoff first, and also connects again
    headers, result = world.ask("handoff", handoff)
    if headers.get("Nats-Service-Error-Code") not in ("429", "503"):
        break
    time.sleep(int(headers.get("Retry-After-Ms", 1000)) / 1000 + random.random())
if "error" in result:
    raise SystemExit(result["error"])
print(result["status"], result["reasonCode"])
for event in world.ask("run.events", {"runId": headers["Run-Id"]})[1]["events"]:
    print(event["runSeq"], event["eventType"])
