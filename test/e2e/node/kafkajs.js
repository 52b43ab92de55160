// kafkajs, with the scenario of python/scenario.py. kafkajs has gzip built in
// and needs other packages for the other codecs.
//
// Usage: kafkajs.js run|delete ADDRESS TOPIC GROUP BASE_TIMESTAMP

const assert = require('node:assert')
const { Kafka, CompressionTypes, logLevel } = require('kafkajs')

const PARTITIONS = 3
const RECORDS = 1000

const [action, address, topic, group, base] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'e2e', brokers: [address], logLevel: logLevel.ERROR })

function records () {
  const out = []
  for (let i = 0; i < RECORDS; i++) {
    out.push({
      partition: i % PARTITIONS,
      key: `key-${i}`,
      value: `value-${i} `.repeat(5),
      headers: { number: `${i}`, again: ['1', '2'] },
      timestamp: `${Number(base) + i}`
    })
  }
  out.push({ partition: 0, key: 'null', value: null, headers: {}, timestamp: `${Number(base) + RECORDS}` })
  return out
}

async function admin (f) {
  const a = kafka.admin()
  await a.connect()
  try {
    return await f(a)
  } finally {
    await a.disconnect()
  }
}

async function produce (compression, messages, idempotent) {
  const producer = kafka.producer({ idempotent, maxInFlightRequests: 1 })
  await producer.connect()
  await producer.send({ topic, compression, messages, acks: -1 })
  await producer.disconnect()
}

// consume joins the group, reads n records or a few more, commits exactly
// those and leaves.
async function consume (n) {
  const consumer = kafka.consumer({ groupId: group, heartbeatInterval: 500, maxWaitTimeInMs: 500 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const out = []
  let done
  const enough = new Promise((resolve) => { done = resolve })
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat }) => {
      if (out.length >= n) return
      const last = {}
      for (const m of batch.messages) {
        if (out.length >= n) break
        const text = (b) => b === null ? null : b.toString()
        const headers = {}
        for (const [k, v] of Object.entries(m.headers)) headers[k] = Array.isArray(v) ? v.map(text) : text(v)
        out.push({ offset: m.offset, partition: batch.partition, key: text(m.key), value: text(m.value), headers, timestamp: m.timestamp })
        resolveOffset(m.offset)
        last.offset = `${BigInt(m.offset) + 1n}`
      }
      await consumer.commitOffsets([{ topic, partition: batch.partition, ...last }])
      await heartbeat()
      if (out.length >= n) done()
    }
  })
  await enough
  await consumer.disconnect()
  return out
}

async function run () {
  if (action === 'delete') {
    await admin((a) => a.deleteTopics({ topics: [topic] }))
    return
  }
  await admin((a) => a.createTopics({ topics: [{ topic, numPartitions: PARTITIONS, replicationFactor: 1 }], waitForLeaders: true }))
  const want = records()
  await produce(CompressionTypes.None, want.slice(0, 500), false)
  await produce(CompressionTypes.GZIP, want.slice(500), true)
  const got = await consume(400)
  assert.strictEqual(got.length, 400)
  got.push(...await consume(want.length - got.length))
  for (let p = 0; p < PARTITIONS; p++) {
    const theirs = want.filter((r) => r.partition === p).map((r, i) => ({ offset: `${i}`, ...r }))
    assert.deepStrictEqual(got.filter((r) => r.partition === p), theirs)
  }
}

const timer = setTimeout(() => {
  console.error('not done within 120 s')
  process.exit(1)
}, 120_000)
run().then(() => {
  clearTimeout(timer)
  console.log('ok')
}, (err) => {
  console.error(err)
  process.exit(1)
})
