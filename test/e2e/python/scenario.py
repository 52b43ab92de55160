"""The scenario of every Python client, and what it checks.

A client module calls main() with a class that has these methods, sync or async:

  create(topic, partitions)         delete(topic)
  produce(topic, codec, records)    in order per partition, acks=all
  consume(topic, group, n)          joins the group, reads n records or a few
                                    more, commits exactly those, leaves
Records are tuples (partition, key, value, headers, timestamp in ms); consume
returns them with the offset in front.

Usage: CLIENT.py run|delete ADDRESS TOPIC GROUP BASE_TIMESTAMP
"""

import asyncio
import inspect
import sys

PARTITIONS = 3
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS = 1000


def records(base):
    """RECORDS keyed records with headers, then one with a null value."""
    out = [
        (i % PARTITIONS, b"key-%d" % i, b"value-%d " % i * 5, [("number", b"%d" % i), ("again", b"1"), ("again", b"2")], base + i)
        for i in range(RECORDS)
    ]
    out.append((0, b"null", None, [], base + RECORDS))
    return out


def check(got, want):
    """Every record once, in order per partition, offsets from 0 without a gap."""
    for p in range(PARTITIONS):
        mine = [r for r in got if r[1] == p]
        theirs = [r for r in want if r[0] == p]
        assert len(mine) == len(theirs), f"partition {p}: {len(mine)} records, want {len(theirs)}"
        for i, (g, w) in enumerate(zip(mine, theirs)):
            assert g == (i, *w), f"partition {p}: got {g}, want {(i, *w)}"


async def call(f, *args):
    out = f(*args)
    return await out if inspect.isawaitable(out) else out


async def scenario(client, action, topic, group, base):
    if action == "delete":
        await call(client.delete, topic)
        return
    await call(client.create, topic, PARTITIONS)
    want = records(base)
    step = len(want) // len(CODECS) + 1
    for i, codec in enumerate(CODECS):
        await call(client.produce, topic, codec, want[i * step:(i + 1) * step])
    got = await call(client.consume, topic, group, 400)
    assert 400 <= len(got) < len(want), f"first member read {len(got)} records"
    # a second member goes on where the first has committed
    got += await call(client.consume, topic, group, len(want) - len(got))
    check(got, want)


def main(cls):
    action, address, topic, group, base = sys.argv[1:]
    asyncio.run(asyncio.wait_for(scenario(cls(address), action, topic, group, int(base)), 120))
    print("ok")
