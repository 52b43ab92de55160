// kafkajs. It has gzip built in; the other codecs are plugged in as its
// documentation says.

const zlib = require('node:zlib')
const lz4 = require('lz4-napi')
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')
const { main } = require('./driver.js')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => lz4.compressFrameSync(encoder.buffer),
  decompress: async (buffer) => lz4.decompressFrameSync(buffer)
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => zlib.zstdCompressSync(encoder.buffer),
  decompress: async (buffer) => zlib.zstdDecompressSync(buffer)
})
const codecs = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD
}
const TOPIC = 2 // resource type

// refusals gives errors of the broker their code, which may be some causes down.
async function refusals (promise) {
  try {
    return await promise
  } catch (error) {
    const find = (e) => e && (Number.isInteger(e.code) ? e.code : [e.cause, e.error, ...(e.errors ?? []), ...(e.partitions ?? [])].map(find).find(Boolean))
    error.refusal = find(error)
    throw error
  }
}

// headers as kafkajs has them: an array where a key comes again.
function toHeaders (headers) {
  const out = {}
  for (const [k, v] of headers) {
    out[k] = k in out ? [out[k], v].flat() : v
  }
  return out
}

function record (partition, m) {
  const headers = Object.entries(m.headers).flatMap(([k, v]) => [v].flat().map((one) => [k, one]))
  return { partition, offset: m.offset, key: m.key, value: m.value, headers, time: m.timestamp }
}

function toMessages (records) {
  return records.map((r) => ({ partition: r.partition, key: r.key, value: r.value, headers: toHeaders(r.headers), timestamp: String(r.time) }))
}

class Transactor {
  constructor (producer) {
    this.producer = producer
  }

  async send (topic, records) {
    this.open ??= await refusals(this.producer.transaction())
    await refusals(this.open.send({ topic, acks: -1, messages: toMessages(records) }))
  }

  async offsets (group, topic, ends) {
    const partitions = [...ends].map(([partition, offset]) => ({ partition, offset }))
    await refusals(this.open.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions }] }))
  }

  async end (commit) {
    const transaction = this.open
    this.open = undefined
    await refusals(commit ? transaction.commit() : transaction.abort())
  }

  async close () {
    await this.producer.disconnect()
  }
}

class Client {
  constructor (address, name) {
    this.kafka = new Kafka({ clientId: name, brokers: [address], logLevel: logLevel.ERROR })
    this.reads = 0
  }

  async admin (f) {
    const admin = this.kafka.admin({ retry: { retries: 3 } })
    await admin.connect()
    try {
      return await refusals(f(admin))
    } finally {
      await admin.disconnect()
    }
  }

  async create ({ topic, partitions, configs }) {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    const created = await this.admin((a) => a.createTopics({ topics: [{ topic, numPartitions: partitions, replicationFactor: 1, configEntries }], waitForLeaders: true }))
    // It answers false for a topic that is there already.
    if (!created) throw Object.assign(new Error('the topic exists'), { refusal: 36 })
  }

  async partitions ({ topic }) {
    const { topics: [t] } = await this.admin((a) => a.fetchTopicMetadata({ topics: [topic] }))
    return t.partitions.length
  }

  async topics () {
    return await this.admin((a) => a.listTopics())
  }

  async alter ({ topic, config, value }) {
    await this.admin((a) => a.alterConfigs({ validateOnly: false, resources: [{ type: TOPIC, name: topic, configEntries: [{ name: config, value }] }] }))
  }

  async config ({ topic, config }) {
    const { resources: [r] } = await this.admin((a) => a.describeConfigs({ includeSynonyms: false, resources: [{ type: TOPIC, name: topic, configNames: [config] }] }))
    return r.configEntries[0].configValue
  }

  async grow ({ topic, count }) {
    await this.admin((a) => a.createPartitions({ topicPartitions: [{ topic, count }] }))
  }

  async truncate ({ topic, partition, before }) {
    await this.admin(async (a) => {
      await a.fetchTopicOffsets(topic) // deleteTopicRecords needs the metadata, but does not ask for it
      await a.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] })
    })
  }

  async remove ({ topic }) {
    await this.admin((a) => a.deleteTopics({ topics: [topic] }))
  }

  async produce ({ topic, codec, idempotent, records }) {
    const producer = this.kafka.producer({ idempotent, maxInFlightRequests: idempotent ? 1 : undefined })
    await producer.connect()
    try {
      const messages = toMessages(records)
      // All messages of a call become one batch: large ones go alone.
      const large = records.some((r) => r.value?.length > 100_000)
      for (const batch of large ? messages.map((m) => [m]) : [messages]) {
        await refusals(producer.send({ topic, compression: codecs[codec], acks: -1, messages: batch }))
      }
    } finally {
      await producer.disconnect()
    }
  }

  // read is a group of its own: kafkajs has no other way.
  async read ({ topic, partition, offset, time, reset, isolation, n }) {
    if (time !== null) {
      const offsets = await this.admin((a) => a.fetchTopicOffsetsByTimestamp(topic, time))
      offset = offsets.find((o) => o.partition === partition).offset
    }
    const consumer = this.kafka.consumer({ groupId: `${topic}.read.${this.reads++}`, heartbeatInterval: 500, maxWaitTimeInMs: 100, readUncommitted: isolation === 'uncommitted' })
    await consumer.connect()
    try {
      await consumer.subscribe({ topic, fromBeginning: reset !== 'latest' })
      consumer.on(consumer.events.GROUP_JOIN, () => consumer.seek({ topic, partition, offset: String(offset) }))
      const out = []
      await new Promise((resolve, reject) => {
        consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
        consumer.run({
          autoCommit: false,
          eachMessage: async ({ partition: p, message }) => {
            if (p === partition) out.push(record(p, message))
            if (out.length >= n) resolve()
          }
        }).catch(reject)
      })
      return out
    } finally {
      await consumer.disconnect()
    }
  }

  async transactor (transactionalId) {
    const producer = this.kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    return new Transactor(producer)
  }

  async pipe ({ transactional, group, from, to, n, commit }) {
    const x = await this.transactor(transactional)
    const consumer = this.kafka.consumer({ groupId: group, heartbeatInterval: 500, maxWaitTimeInMs: 100, readUncommitted: false })
    await consumer.connect()
    try {
      await consumer.subscribe({ topic: from, fromBeginning: true })
      await new Promise((resolve, reject) => {
        consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
        consumer.run({
          autoCommit: false,
          eachBatchAutoResolve: false,
          partitionsConsumedConcurrently: 1,
          eachBatch: async ({ batch, resolveOffset, isRunning, isStale }) => {
            if (!isRunning() || isStale() || n <= 0) return
            const out = batch.messages.map((m) => ({ ...record(batch.partition, m), value: Buffer.concat([m.value, Buffer.from('!')]), time: m.timestamp }))
            await x.send(to, out)
            await x.offsets(group, from, new Map([[batch.partition, String(BigInt(batch.lastOffset()) + 1n)]]))
            await x.end(commit)
            resolveOffset(batch.lastOffset())
            n -= out.length
            if (n <= 0) resolve()
          }
        }).catch(reject)
      })
    } finally {
      await consumer.disconnect()
      await x.close()
    }
  }

  async join ({ group, topic }, emit, fail) {
    const consumer = this.kafka.consumer({ groupId: group, heartbeatInterval: 500, maxWaitTimeInMs: 100 })
    const ends = new Map()
    consumer.on(consumer.events.CRASH, ({ payload }) => fail(payload.error))
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        ends.set(partition, String(BigInt(message.offset) + 1n))
        emit(record(partition, message))
      }
    })
    return {
      commit: async () => {
        const offsets = [...ends].map(([partition, offset]) => ({ topic, partition, offset }))
        ends.clear()
        if (offsets.length > 0) await consumer.commitOffsets(offsets)
      },
      close: async () => await consumer.disconnect()
    }
  }
}

main(require('kafkajs/package.json').version, Client)
