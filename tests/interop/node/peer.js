// The peer of kafkajs. Jobs are lines of JSON on stdin, answers lines of JSON on stdout: tests/interop/peer.py tells them.
'use strict'

const readline = require('node:readline')
const kafkajs = require('kafkajs')
const { secured } = require('./secured.js')

const { CompressionTypes, CompressionCodecs, ConfigResourceTypes, Kafka, logLevel } = kafkajs
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')

const COMPRESSION = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy }
const ACKS = { 0: 0, 1: 1, all: -1 }
const RETRY = { retries: 100, initialRetryTime: 100, maxRetryTime: 500 }

const say = answer => process.stdout.write(JSON.stringify(answer) + '\n')
const bytes = text => (text === null ? null : Buffer.from(text, 'base64'))
const text = data => (data === null || data === undefined ? null : Buffer.from(data).toString('base64'))

// What ends a group's job.
let leave = () => {}
let counter = 0

function client(job) {
  return new Kafka({ clientId: 'kafkajs', brokers: [job.bootstrap], logLevel: logLevel.NOTHING, retry: RETRY })
}

// kafkajs holds headers as an object: those of one name are a list.
function headers(record) {
  const object = {}
  for (const [name, value] of record.h) {
    if (name in object) object[name] = [].concat(object[name], bytes(value))
    else object[name] = bytes(value)
  }
  return object
}

function line(partition, message) {
  const pairs = []
  for (const [name, values] of Object.entries(message.headers || {})) {
    for (const value of Array.isArray(values) ? values : [values]) pairs.push([name, text(value)])
  }
  return {
    p: partition,
    o: Number(message.offset),
    t: Number(message.timestamp),
    k: text(message.key),
    v: text(message.value),
    h: pairs,
  }
}

async function produce(job) {
  const producer = client(job).producer({ idempotent: job.idempotent, allowAutoTopicCreation: false, retry: RETRY })
  await producer.connect()
  try {
    const messages = job.records.map(record => ({
      partition: record.p,
      timestamp: String(record.t),
      key: bytes(record.k),
      value: bytes(record.v),
      headers: headers(record),
    }))
    const send = async some => {
      const written = await producer.send({
        topic: job.topic,
        acks: ACKS[job.acks],
        compression: COMPRESSION[job.codec],
        messages: some,
      })
      const next = new Map((written || []).map(one => [one.partition, Number(one.baseOffset)]))
      for (const { partition } of some) {
        const offset = next.has(partition) ? next.get(partition) : -1
        next.set(partition, offset + 1)
        say({ p: partition, o: offset })
      }
    }
    if (job.each) for (const message of messages) await send([message])
    else await send(messages)
  } finally {
    await producer.disconnect()
  }
}

async function transact(job) {
  const left = new Promise(resolve => (leave = resolve))
  const producer = client(job).producer({ transactionalId: job.id, maxInFlightRequests: 1, idempotent: true, retry: RETRY })
  await producer.connect()
  try {
    const transaction = await producer.transaction()
    const messages = job.records.map(one => ({ partition: one.p, key: bytes(one.k), value: bytes(one.v) }))
    await transaction.send({ topic: job.topic, acks: -1, messages })
    const partitions = Object.entries(job.offsets).map(([partition, offset]) => ({
      partition: Number(partition),
      offset: String(offset),
    }))
    if (partitions.length > 0) {
      await transaction.sendOffsets({ consumerGroupId: job.group, topics: [{ topic: job.topic, partitions }] })
    }
    say({ open: true })
    await left
    await (job.commit ? transaction.commit() : transaction.abort())
  } finally {
    await producer.disconnect()
  }
}

// kafkajs reads in a group only: one of our own, that never commits and is sent to where the job says.
async function consume(job) {
  const groupId = `kafkajs-reader-${process.pid}-${++counter}`
  const readUncommitted = job.isolation === 'read_uncommitted'
  const consumer = client(job).consumer({ groupId, readUncommitted, retry: RETRY })
  await consumer.connect()
  try {
    await consumer.subscribe({ topics: [job.topic], fromBeginning: true })
    await new Promise((resolve, reject) => {
      let count = 0
      const timer = setTimeout(resolve, job.timeout_ms)
      const finish = () => {
        clearTimeout(timer)
        resolve()
      }
      if (job.count === 0) finish()
      consumer
        .run({
          autoCommit: false,
          eachMessage: async ({ partition, message }) => {
            const start = job.from[partition]
            if (start === undefined || Number(message.offset) < start || count >= job.count) return
            say(line(partition, message))
            if (++count >= job.count) finish()
          },
        })
        .catch(reject)
      consumer.on(consumer.events.CRASH, ({ payload }) => {
        // One that it starts again after is no crash: the coordinator was loading, say.
        if (!payload.restart) reject(payload.error)
      })
      for (const [partition, offset] of Object.entries(job.from)) {
        consumer.seek({ topic: job.topic, partition: Number(partition), offset: String(offset) })
      }
    })
  } finally {
    await consumer.disconnect()
  }
}

async function group(job) {
  const consumer = client(job).consumer({
    groupId: job.group,
    sessionTimeout: 5000,
    heartbeatInterval: 500,
    rebalanceTimeout: 10000,
    maxWaitTimeInMs: 200,
    retry: RETRY,
  })
  const left = new Promise(resolve => (leave = resolve))
  await consumer.connect()
  try {
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      const list = []
      for (const [topic, partitions] of Object.entries(payload.memberAssignment)) {
        for (const partition of partitions) list.push([topic, partition])
      }
      say({ all: list })
    })
    await consumer.subscribe({ topics: job.topics, fromBeginning: true })
    await consumer.run({
      autoCommit: false,
      eachBatch: async ({ batch, resolveOffset, isRunning, isStale }) => {
        for (const message of batch.messages) {
          if (!isRunning() || isStale()) return
          say(line(batch.partition, message))
          resolveOffset(message.offset)
        }
        const offset = String(Number(batch.lastOffset()) + 1)
        await consumer.commitOffsets([{ topic: batch.topic, partition: batch.partition, offset }])
      },
    })
    await left
  } finally {
    await consumer.disconnect()
  }
}

async function admin(job) {
  // An unknown topic counts as worth another try: a few are enough.
  const admin = client(job).admin({ retry: { ...RETRY, retries: 5 } })
  await admin.connect()
  try {
    const answer = await ADMIN[job.op](admin, job)
    if (answer) say(answer)
  } finally {
    await admin.disconnect()
  }
}

const ADMIN = {
  create: async (admin, job) => {
    const configEntries = Object.entries(job.configs || {}).map(([name, value]) => ({ name, value }))
    const topic = { topic: job.topic, numPartitions: job.partitions, replicationFactor: 1, configEntries }
    if (!(await admin.createTopics({ topics: [topic], waitForLeaders: false }))) {
      // kafkajs tells this one error as false.
      throw Object.assign(new Error('the topic is there already'), { code: 36 })
    }
  },
  delete: async (admin, job) => void (await admin.deleteTopics({ topics: [job.topic] })),
  add_partitions: async (admin, job) =>
    void (await admin.createPartitions({ topicPartitions: [{ topic: job.topic, count: job.partitions }] })),
  topics: async admin => ({ topics: await admin.listTopics() }),
  describe: async (admin, job) => {
    const { topics } = await admin.fetchTopicMetadata({ topics: [job.topic] })
    const lines = topics[0].partitions.map(one => ({ p: one.partitionId, leader: one.leader, replicas: one.replicas }))
    return { partitions: lines }
  },
  configs: async (admin, job) => {
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: job.topic }]
    const described = await admin.describeConfigs({ includeSynonyms: false, resources })
    const entries = described.resources[0].configEntries
    return { configs: Object.fromEntries(entries.map(entry => [entry.configName, entry.configValue])) }
  },
  // kafkajs has AlterConfigs alone: what is not given goes back to its default.
  replace: async (admin, job) => {
    const configEntries = Object.entries(job.configs).map(([name, value]) => ({ name, value }))
    await admin.alterConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: job.topic, configEntries }] })
  },
  groups: async admin => ({ groups: (await admin.listGroups()).groups.map(one => one.groupId) }),
  committed: async (admin, job) => {
    const [found] = await admin.fetchOffsets({ groupId: job.group, topics: [job.topic] })
    return { offsets: Object.fromEntries(found.partitions.map(one => [one.partition, Number(one.offset)])) }
  },
  delete_group: async (admin, job) => void (await admin.deleteGroups([job.group])),
  offsets: async (admin, job) => {
    if (typeof job.at === 'number') {
      const found = await admin.fetchTopicOffsetsByTimestamp(job.topic, job.at)
      return { offset: Number(found.find(one => one.partition === job.partition).offset) }
    }
    const found = (await admin.fetchTopicOffsets(job.topic)).find(one => one.partition === job.partition)
    return { offset: Number(job.at === 'earliest' ? found.low : found.high) }
  },
}

function about() {
  say({ client: `kafkajs ${require('kafkajs/package.json').version} (node ${process.version})` })
}

function codeOf(problem) {
  for (let one = problem; one; one = one.cause) {
    if (typeof one.code === 'number') return one.code
    const inner = (one.errors || []).find(error => typeof error.code === 'number')
    if (inner) return inner.code
  }
  return null
}

async function run(job) {
  try {
    await ({ about, produce, transact, consume, group, secured: job => secured(job, say) }[job.op] || admin)(job)
    say({ done: true })
  } catch (problem) {
    console.error(problem)
    say({ error: { code: codeOf(problem), name: problem.name, message: problem.message } })
  }
}

async function main() {
  let last = Promise.resolve()
  for await (const input of readline.createInterface({ input: process.stdin })) {
    const job = JSON.parse(input)
    if (job.op === 'leave') leave()
    else last = last.then(() => run(job))
  }
  await last
}

main()
