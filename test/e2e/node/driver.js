// Runs a client library as a program for test/e2e/clients.
//
// The protocol is in process_test.go there. A client module calls main() with
// its version and a class: one async method per call, its parameters in one
// object, and join({ member, group, topic, instance, cooperative }, emit), which
// returns a member with async commit() and close(), and emits each record.
// transactor(id) returns a producer with a transactional id: send(topic, records)
// in the open transaction or a new one, end(commit), close().
// Records have buffers or null, headers as [key, value], time as a number. An
// error with the property refusal is the broker's: its code.

const readline = require('node:readline')

const say = (line) => process.stdout.write(JSON.stringify(line) + '\n')
const encode = (b) => b === null || b === undefined ? null : Buffer.from(b).toString('base64')
const decode = (s) => s === null ? null : Buffer.from(s, 'base64')

function toJSON (r) {
  return {
    partition: r.partition,
    offset: Number(r.offset),
    key: encode(r.key),
    value: encode(r.value),
    headers: r.headers.map(([k, v]) => [encode(k), encode(v)]),
    time: Number(r.time)
  }
}

function fromJSON (r) {
  return { ...r, key: decode(r.key), value: decode(r.value), headers: r.headers.map(([k, v]) => [decode(k), decode(v)]) }
}

const transactors = {}

async function handle (client, members, op, params) {
  switch (op) {
    case 'transactor_open':
      transactors[params.producer] = await client.transactor(params.transactional)
      return null
    case 'transactor_send':
      return await transactors[params.producer].send(params.topic, params.records.map(fromJSON))
    case 'transactor_end':
      return await transactors[params.producer].end(params.commit)
    case 'transactor_close':
      return await transactors[params.producer].close()
    case 'join': {
      const name = params.member
      members[name] = await client.join(params,
        (record) => say({ member: name, record: toJSON(record) }),
        (error) => say({ member: name, error: String(error) }))
      return null
    }
    case 'commit':
      return await members[params.member].commit()
    case 'leave':
      return await members[params.member].close()
    case 'produce':
      return await client.produce({ ...params, records: params.records.map(fromJSON) })
    case 'read':
      return (await client.read(params)).map(toJSON)
    default:
      return await client[op](params)
  }
}

exports.main = async function main (version, Client) {
  const [address, name] = process.argv.slice(2)
  const client = new Client(address, name)
  const members = {}
  say({ version })
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { id, op, ...params } = JSON.parse(line)
    try {
      say({ id, result: await handle(client, members, op, params) ?? null })
    } catch (error) {
      console.error(error)
      say({ id, error: String(error), code: error.refusal })
    }
  }
  process.exit(0)
}
