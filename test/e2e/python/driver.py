"""Runs a client library as a program for test/e2e/clients.

The protocol is in process_test.go there. A client module calls main() with its
version and a class: one method per call, named and with parameters as there,
and join(group, topic, instance, cooperative), which returns a member:

  poll()    the next records, waits up to about 0.1 s
  commit()  commits what poll has returned
  close()   ends the member

transactor(transactional) returns a producer with a transactional id: send(topic,
records) in the open transaction or a new one, end(commit), close(); and pipe
copies from one topic to another: see transform().

read returns records as poll does: (partition, offset, key, value, headers,
time in ms). A Refused is an error of the broker with its code, and so is what
main() is told that the library raises for one.
"""

import base64
import json
import queue
import sys
import threading
import traceback

printing = threading.Lock()


class Refused(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def say(**line):
    text = json.dumps(line)
    with printing:
        print(text, flush=True)


def encode(b):
    return None if b is None else base64.b64encode(b).decode()


def decode(s):
    return None if s is None else base64.b64decode(s)


def to_json(r):
    partition, offset, key, value, headers, time = r
    headers = [[encode(k.encode()), encode(v)] for k, v in headers or []]
    return {"partition": partition, "offset": offset, "key": encode(key), "value": encode(value), "headers": headers, "time": time}


def transform(records):
    """What a pipe writes for what it has read, and the offsets after it."""
    out, ends = [], {}
    for partition, offset, key, value, headers, time in records:
        out.append((partition, key, value + b"!", headers, time))
        ends[partition] = offset + 1
    return out, ends


class Transactor:
    """Begins a transaction with the first records. self.producer, write(topic,
    records), commit(), abort() and close() are the client's."""

    open = False

    def send(self, topic, records):
        if not self.open:
            self.producer.begin_transaction()
        self.open = True
        self.write(topic, records)

    def end(self, commit):
        self.open = False
        if commit:
            self.commit()
        else:
            self.abort()


def from_json(r):
    """(partition, key, value, headers, time)"""
    headers = [(decode(k).decode(), decode(v)) for k, v in r["headers"]]
    return r["partition"], decode(r["key"]), decode(r["value"]), headers, r["time"]


class Member(threading.Thread):
    """Polls a member of a group; commits and leaves between two polls."""

    def __init__(self, name, member):
        super().__init__(daemon=True)
        self.member_name, self.member = name, member
        self.calls = queue.SimpleQueue()

    def run(self):
        while True:
            try:
                call, done = self.calls.get_nowait()
            except queue.Empty:
                try:
                    for r in self.member.poll():
                        say(member=self.member_name, record=to_json(r))
                except Exception as e:
                    say(member=self.member_name, error=repr(e))
                continue
            try:
                call()
                done.put(None)
            except Exception as e:
                done.put(e)
            if call == self.member.close:
                return

    def call(self, f):
        done = queue.SimpleQueue()
        self.calls.put((f, done))
        error = done.get(timeout=60)
        if error:
            raise error


transactors = {}


def handle(client, members, op, params):
    if op == "join":
        name = params.pop("member")
        members[name] = Member(name, client.join(**params))
        members[name].start()
    elif op == "commit":
        m = members[params["member"]]
        m.call(m.member.commit)
    elif op == "leave":
        m = members.pop(params["member"])
        m.call(m.member.close)
    elif op == "produce":
        params["records"] = [from_json(r) for r in params["records"]]
        client.produce(**params)
    elif op.startswith("transactor_"):
        name = params.pop("producer")
        if op == "transactor_open":
            transactors[name] = client.transactor(**params)
            return
        if op == "transactor_send":
            params["records"] = [from_json(r) for r in params["records"]]
        getattr(transactors[name], op.removeprefix("transactor_"))(**params)
    elif op == "read":
        return [to_json(r) for r in client.read(**params)]
    else:
        return getattr(client, op)(**params)


def main(version, cls, error=Refused, code=lambda e: e.code):
    address, name = sys.argv[1:]
    client, members = cls(address, name), {}
    say(version=version)
    for line in sys.stdin:
        params = json.loads(line)
        id, op = params.pop("id"), params.pop("op")
        try:
            say(id=id, result=handle(client, members, op, params))
        except Refused as e:
            say(id=id, error=str(e), code=e.code)
        except error as e:
            say(id=id, error=repr(e), code=code(e))
        except Exception as e:
            traceback.print_exc()
            say(id=id, error=repr(e))
    sys.exit(0)
