// @platformatic/kafka.

const fs = require('node:fs')
const path = require('node:path')
const { Admin, Consumer, Producer, ConfigResourceTypes, IncrementalAlterConfigOperationTypes } = require('@platformatic/kafka')
const { main } = require('./driver.js')

// refusals gives errors of the broker their code, which is some causes down.
async function refusals (promise) {
  try {
    return await promise
  } catch (error) {
    const find = (e) => e && (e.apiCode ?? [e.cause, ...(e.errors ?? [])].map(find).find(Boolean))
    error.refusal = find(error)
    // It says UNKNOWN_TOPIC_OR_PARTITION in its own words.
    if (error.message.startsWith('Unknown topic')) error.refusal = 3
    throw error
  }
}

function record (m) {
  return { partition: m.partition, offset: m.offset, key: m.key, value: m.value, headers: m.headerEntries, time: m.timestamp }
}

class Client {
  constructor (address, name) {
    this.settings = { clientId: name, bootstrapBrokers: [address], retries: 5, retryDelay: 200 }
    this.reads = 0
  }

  async admin (f) {
    const admin = new Admin(this.settings)
    try {
      return await refusals(f(admin))
    } finally {
      await admin.close()
    }
  }

  async create ({ topic, partitions, configs }) {
    await this.admin((a) => a.createTopics({ topics: [topic], partitions, replicas: 1, configs: Object.entries(configs).map(([name, value]) => ({ name, value })) }))
  }

  async partitions ({ topic }) {
    const { topics } = await this.admin((a) => a.metadata({ topics: [topic], forceUpdate: true }))
    return topics.get(topic).partitionsCount
  }

  async topics () {
    return await this.admin((a) => a.listTopics())
  }

  async alter ({ topic, config, value }) {
    const resource = { resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configs: [{ name: config, configOperation: IncrementalAlterConfigOperationTypes.SET, value }] }
    await this.admin((a) => a.incrementalAlterConfigs({ resources: [resource] }))
  }

  async config ({ topic, config }) {
    const [r] = await this.admin((a) => a.describeConfigs({ resources: [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configurationKeys: [config] }] }))
    return r.configs.find((c) => c.name === config).value
  }

  async grow ({ topic, count }) {
    await this.admin((a) => a.createPartitions({ topics: [{ name: topic, count, assignments: null }] }))
  }

  async truncate ({ topic, partition, before }) {
    await this.admin((a) => a.deleteRecords({ topics: [{ name: topic, partitions: [{ partition, offset: BigInt(before) }] }] }))
  }

  async remove ({ topic }) {
    await this.admin((a) => a.deleteTopics({ topics: [topic] }))
  }

  async produce ({ topic, codec, idempotent, records }) {
    const producer = new Producer({ ...this.settings, idempotent })
    try {
      const messages = records.map((r) => ({ topic, partition: r.partition, key: r.key, value: r.value, headers: new Map(r.headers), timestamp: BigInt(r.time) }))
      // All messages of a call become one batch: large ones go alone.
      const large = records.some((r) => r.value?.length > 100_000)
      for (const batch of large ? messages.map((m) => [m]) : [messages]) {
        await refusals(producer.send({ messages: batch, acks: -1, idempotent, compression: codec }))
      }
    } finally {
      await producer.close()
    }
  }

  // read is a group of its own: there is no other way to read a stream.
  async read ({ topic, partition, offset, time, reset, n }) {
    const consumer = new Consumer({ ...this.settings, groupId: `${topic}.read.${this.reads++}`, maxWaitTime: 100 })
    try {
      if (time !== null) {
        const offsets = await refusals(consumer.listOffsets({ topics: [topic], timestamp: BigInt(time) }))
        offset = offsets.get(topic)[partition]
      }
      const stream = await refusals(consumer.consume({
        topics: [topic],
        autocommit: false,
        heartbeatInterval: 500,
        mode: 'manual',
        fallbackMode: reset === 'none' ? 'fail' : reset,
        offsets: [{ topic, partition, offset: BigInt(offset) }]
      }))
      const out = []
      await refusals((async () => {
        for await (const m of stream) {
          if (m.partition === partition) out.push(record(m))
          if (out.length >= n) break
        }
      })())
      return out
    } finally {
      await consumer.close(true)
    }
  }

  async join ({ group, topic, instance }, emit, fail) {
    const consumer = new Consumer({ ...this.settings, groupId: group, groupInstanceId: instance || undefined, maxWaitTime: 100 })
    const stream = await consumer.consume({
      topics: [topic],
      autocommit: false,
      heartbeatInterval: 500,
      mode: 'committed',
      fallbackMode: 'earliest'
    })
    const ends = new Map()
    stream.on('error', fail)
    stream.on('data', (m) => {
      ends.set(m.partition, { topic, partition: m.partition, offset: m.offset + 1n, leaderEpoch: m.leaderEpoch })
      emit(record(m))
    })
    return {
      commit: async () => {
        const offsets = [...ends.values()]
        ends.clear()
        if (offsets.length > 0) await consumer.commit({ offsets })
      },
      close: async () => await consumer.close(true)
    }
  }
}

// Its package.json is not among its exports.
const packageFile = path.join(path.dirname(require.resolve('@platformatic/kafka')), '../package.json')
main(JSON.parse(fs.readFileSync(packageFile)).version, Client)
