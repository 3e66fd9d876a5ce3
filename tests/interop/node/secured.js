// The op "secured": one record through a secured listener and back.
'use strict'

const fs = require('node:fs')
const { Kafka, logLevel } = require('kafkajs')

function settings(job) {
  const found = {
    clientId: 'kafkajs',
    brokers: [job.bootstrap],
    logLevel: logLevel.NOTHING,
    retry: { retries: 2, initialRetryTime: 50 },
  }
  if (job.security.endsWith('SSL')) {
    found.ssl = { ca: [fs.readFileSync(job.ca)] }
    if (job.certificate) Object.assign(found.ssl, { cert: fs.readFileSync(job.certificate), key: fs.readFileSync(job.key) })
  }
  if (job.mechanism === 'OAUTHBEARER') {
    found.sasl = { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: job.token }) }
  } else if (job.mechanism) {
    const mechanism = job.mechanism.toLowerCase()
    found.sasl = { mechanism, username: job.user, password: job.password }
  }
  return found
}

async function secured(job, say) {
  const kafka = new Kafka(settings(job))
  const producer = kafka.producer({ allowAutoTopicCreation: false })
  await producer.connect()
  let at
  try {
    const sent = await producer.send({ topic: job.topic, acks: -1, messages: [{ value: job.id, partition: 0 }] })
    at = sent[0].baseOffset
  } finally {
    await producer.disconnect()
  }
  const consumer = kafka.consumer({ groupId: job.group, maxWaitTimeInMs: 200 })
  await consumer.connect()
  try {
    await consumer.subscribe({ topics: [job.topic], fromBeginning: true })
    await new Promise((resolve, reject) => {
      const eachMessage = async ({ message }) => {
        if (message.offset !== at) return
        say({ read: message.value.toString() })
        resolve()
      }
      consumer.on(consumer.events.CRASH, ({ payload }) => {
        if (!payload.restart) reject(payload.error)
      })
      consumer.run({ autoCommit: false, eachMessage }).catch(reject)
      consumer.seek({ topic: job.topic, partition: 0, offset: at })
    })
  } finally {
    await consumer.disconnect()
  }
}

module.exports = { secured }
