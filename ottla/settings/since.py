"""The release of Apache Kafka that introduced each setting: the first whose documentation has it.

The oldest documentation used is that of 0.9 (0.10.1 for topics), so the settings listed there may be older. Settings
that Kafka's documentation omits are not listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

_RELEASES: Mapping[str, Mapping[str, str]] = {
    "server": {
        "0.9": """
            advertised.listeners authorizer.class.name auto.create.topics.enable auto.leader.rebalance.enable
            background.threads broker.id compression.type connections.max.idle.ms controlled.shutdown.enable
            controller.socket.timeout.ms default.replication.factor delete.topic.enable
            fetch.purgatory.purge.interval.requests group.max.session.timeout.ms group.min.session.timeout.ms
            leader.imbalance.check.interval.seconds listeners log.cleaner.backoff.ms
            log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms log.cleaner.enable
            log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second
            log.cleaner.min.cleanable.ratio log.cleaner.threads log.cleanup.policy log.dir log.dirs
            log.flush.interval.messages log.flush.interval.ms log.flush.offset.checkpoint.interval.ms
            log.flush.scheduler.interval.ms log.index.interval.bytes log.index.size.max.bytes log.preallocate
            log.retention.bytes log.retention.check.interval.ms log.retention.hours log.retention.minutes
            log.retention.ms log.roll.hours log.roll.jitter.hours log.roll.jitter.ms log.roll.ms log.segment.bytes
            log.segment.delete.delay.ms max.connections.per.ip max.connections.per.ip.overrides message.max.bytes
            metric.reporters metrics.num.samples metrics.sample.window.ms min.insync.replicas num.io.threads
            num.network.threads num.partitions num.recovery.threads.per.data.dir num.replica.fetchers
            offset.metadata.max.bytes offsets.commit.timeout.ms offsets.load.buffer.size
            offsets.retention.check.interval.ms offsets.retention.minutes offsets.topic.compression.codec
            offsets.topic.num.partitions offsets.topic.replication.factor offsets.topic.segment.bytes
            principal.builder.class producer.purgatory.purge.interval.requests queued.max.requests
            quota.window.num quota.window.size.seconds replica.fetch.backoff.ms replica.fetch.max.bytes
            replica.fetch.min.bytes replica.fetch.wait.max.ms replica.high.watermark.checkpoint.interval.ms
            replica.lag.time.max.ms replica.socket.receive.buffer.bytes replica.socket.timeout.ms
            request.timeout.ms sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
            sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
            sasl.kerberos.ticket.renew.window.factor security.inter.broker.protocol socket.receive.buffer.bytes
            socket.request.max.bytes socket.send.buffer.bytes ssl.cipher.suites ssl.client.auth
            ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.key.password ssl.keymanager.algorithm
            ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider
            ssl.trustmanager.algorithm ssl.truststore.location ssl.truststore.password ssl.truststore.type
            unclean.leader.election.enable
        """,
        "0.10.0": """
            broker.rack log.message.timestamp.type sasl.enabled.mechanisms sasl.mechanism.inter.broker.protocol
        """,
        "0.10.1": """
            log.cleaner.min.compaction.lag.ms replica.fetch.response.max.bytes replication.quota.window.num
            replication.quota.window.size.seconds ssl.secure.random.implementation
        """,
        "0.10.2": """
            create.topic.policy.class.name inter.broker.listener.name listener.security.protocol.map
            metrics.recording.level
        """,
        "0.11.0": """
            alter.config.policy.class.name delete.records.purgatory.purge.interval.requests
            group.initial.rebalance.delay.ms log.flush.start.offset.checkpoint.interval.ms
            transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms
            transaction.remove.expired.transaction.cleanup.interval.ms transaction.state.log.load.buffer.size
            transaction.state.log.min.isr transaction.state.log.num.partitions
            transaction.state.log.replication.factor transaction.state.log.segment.bytes
            transactional.id.expiration.ms
        """,
        "1.0": "queued.max.request.bytes",
        "1.1": """
            alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
            delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms
            delegation.token.max.lifetime.ms max.incremental.fetch.session.cache.slots
            num.replica.alter.log.dirs.threads sasl.jaas.config
        """,
        "2.0": """
            client.quota.callback.class config.providers sasl.client.callback.handler.class
            sasl.login.callback.handler.class sasl.login.class sasl.login.refresh.buffer.seconds
            sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
            sasl.login.refresh.window.jitter sasl.server.callback.handler.class
        """,
        "2.1": """
            connection.failed.authentication.delay.ms kafka.metrics.polling.interval.secs kafka.metrics.reporters
        """,
        "2.2": "connections.max.reauth.ms group.max.size ssl.principal.mapping.rules",
        "2.3": "log.cleaner.max.compaction.lag.ms max.connections",
        "2.4": "replica.selector.class security.providers",
        "2.5": "fetch.max.bytes",
        "2.6": "ssl.engine.factory.class",
        "2.7": """
            controller.quota.window.num controller.quota.window.size.seconds max.connection.creation.rate
            socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
            ssl.keystore.certificate.chain ssl.keystore.key ssl.truststore.certificates
        """,
        "2.8": "delegation.token.secret.key sasl.server.max.receive.size",
        "3.0": """
            broker.heartbeat.interval.ms broker.session.timeout.ms controller.listener.names
            controller.quorum.append.linger.ms controller.quorum.election.backoff.max.ms
            controller.quorum.election.timeout.ms controller.quorum.fetch.timeout.ms
            controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms controller.quorum.voters
            initial.broker.registration.timeout.ms metadata.log.dir
            metadata.log.max.record.bytes.between.snapshots metadata.log.segment.bytes metadata.log.segment.ms
            metadata.max.retention.bytes metadata.max.retention.ms node.id process.roles
            sasl.mechanism.controller.protocol
        """,
        "3.1": """
            sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.retry.backoff.max.ms
            sasl.login.retry.backoff.ms sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
            sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms
            sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
            sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
            sasl.oauthbearer.token.endpoint.url
        """,
        "3.2": "socket.listen.backlog.size",
        "3.3": "early.start.listeners metadata.max.idle.interval.ms",
        "3.4": "metadata.log.max.snapshot.interval.ms producer.id.expiration.ms",
        "3.6": """
            log.local.retention.bytes log.local.retention.ms log.message.timestamp.after.max.ms
            log.message.timestamp.before.max.ms remote.log.manager.task.interval.ms
            remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes
            remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path
            remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name
            remote.log.reader.max.pending.tasks remote.log.reader.threads remote.log.storage.manager.class.name
            remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix
            remote.log.storage.system.enable transaction.partition.verification.enable
        """,
        "3.7": """
            group.consumer.assignors group.consumer.heartbeat.interval.ms group.consumer.max.heartbeat.interval.ms
            group.consumer.max.session.timeout.ms group.consumer.max.size group.consumer.min.heartbeat.interval.ms
            group.consumer.min.session.timeout.ms group.consumer.session.timeout.ms
            group.coordinator.rebalance.protocols group.coordinator.threads
            remote.log.index.file.cache.total.size.bytes ssl.allow.dn.changes ssl.allow.san.changes
            telemetry.max.bytes
        """,
        "3.8": """
            compression.gzip.level compression.lz4.level compression.zstd.level group.consumer.migration.policy
            group.coordinator.append.linger.ms log.dir.failure.timeout.ms max.request.partition.size.limit
            remote.fetch.max.wait.ms remote.log.manager.copy.max.bytes.per.second
            remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
            remote.log.manager.fetch.max.bytes.per.second remote.log.manager.fetch.quota.window.num
            remote.log.manager.fetch.quota.window.size.seconds
        """,
        "3.9": """
            controller.quorum.bootstrap.servers group.share.delivery.count.limit group.share.heartbeat.interval.ms
            group.share.max.heartbeat.interval.ms group.share.max.record.lock.duration.ms
            group.share.max.session.timeout.ms group.share.max.size group.share.min.heartbeat.interval.ms
            group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
            group.share.partition.max.record.locks group.share.record.lock.duration.ms
            group.share.session.timeout.ms remote.log.manager.copier.thread.pool.size
            remote.log.manager.expiration.thread.pool.size
        """,
        "4.0": """
            add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
            remote.list.offsets.request.timeout.ms share.coordinator.append.linger.ms
            share.coordinator.load.buffer.size share.coordinator.snapshot.update.records.per.snapshot
            share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
            share.coordinator.state.topic.num.partitions share.coordinator.state.topic.replication.factor
            share.coordinator.state.topic.segment.bytes share.coordinator.threads
            share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests
        """,
        "4.1": """
            group.share.assignors group.share.max.share.sessions group.streams.heartbeat.interval.ms
            group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
            group.streams.max.standby.replicas group.streams.min.heartbeat.interval.ms
            group.streams.min.session.timeout.ms group.streams.num.standby.replicas
            group.streams.session.timeout.ms sasl.oauthbearer.assertion.algorithm
            sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
            sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
            sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
            sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
            sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
            sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
            sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
            transaction.two.phase.commit.enable
        """,
        "4.2": """
            controller.quorum.auto.join.enable group.streams.initial.rebalance.delay.ms
            remote.log.manager.follower.thread.pool.size
        """,
        "4.3": """
            controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes cordoned.log.dirs
            follower.fetch.last.tiered.offset.enable group.consumer.assignment.interval.ms
            group.consumer.max.assignment.interval.ms group.consumer.min.assignment.interval.ms
            group.coordinator.background.threads group.coordinator.cached.buffer.max.bytes
            group.share.assignment.interval.ms group.share.max.assignment.interval.ms
            group.share.max.delivery.count.limit group.share.max.partition.max.record.locks
            group.share.min.assignment.interval.ms group.share.min.delivery.count.limit
            group.share.min.partition.max.record.locks group.streams.assignment.interval.ms
            group.streams.max.assignment.interval.ms group.streams.min.assignment.interval.ms
            share.coordinator.cached.buffer.max.bytes
        """,
    },
    "topic": {
        "0.10.1": """
            cleanup.policy compression.type delete.retention.ms file.delete.delay.ms flush.messages flush.ms
            follower.replication.throttled.replicas index.interval.bytes leader.replication.throttled.replicas
            max.message.bytes message.timestamp.type min.cleanable.dirty.ratio min.compaction.lag.ms
            min.insync.replicas preallocate retention.bytes retention.ms segment.bytes segment.index.bytes
            segment.jitter.ms segment.ms unclean.leader.election.enable
        """,
        "2.3": "max.compaction.lag.ms",
        "3.0": "local.retention.bytes local.retention.ms remote.storage.enable",
        "3.6": "message.timestamp.after.max.ms message.timestamp.before.max.ms",
        "3.8": "compression.gzip.level compression.lz4.level compression.zstd.level",
        "3.9": "remote.log.copy.disable remote.log.delete.on.disable",
    },
    "group": {
        "4.0": """
            consumer.heartbeat.interval.ms consumer.session.timeout.ms share.auto.offset.reset
            share.heartbeat.interval.ms share.record.lock.duration.ms share.session.timeout.ms
        """,
        "4.1": """
            share.isolation.level streams.heartbeat.interval.ms streams.num.standby.replicas
            streams.session.timeout.ms
        """,
        "4.2": "streams.initial.rebalance.delay.ms",
        "4.3": """
            consumer.assignment.interval.ms share.assignment.interval.ms share.delivery.count.limit
            share.partition.max.record.locks share.renew.acknowledge.enable streams.assignment.interval.ms
        """,
    },
    "client": {
        "0.9": """
            acks auto.commit.interval.ms auto.offset.reset batch.size bootstrap.servers buffer.memory check.crcs
            client.id compression.type connections.max.idle.ms enable.auto.commit fetch.max.wait.ms
            fetch.min.bytes group.id heartbeat.interval.ms key.deserializer key.serializer linger.ms
            max.block.ms max.in.flight.requests.per.connection max.partition.fetch.bytes max.request.size
            metadata.max.age.ms partition.assignment.strategy reconnect.backoff.ms request.timeout.ms retries
            retry.backoff.ms sasl.kerberos.service.name security.protocol session.timeout.ms
            ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.key.password ssl.keystore.location
            ssl.keystore.password ssl.keystore.type ssl.truststore.location ssl.truststore.password
            ssl.truststore.type value.deserializer value.serializer
        """,
        "0.10.0": "exclude.internal.topics max.poll.records sasl.mechanism",
        "0.10.1": "fetch.max.bytes max.poll.interval.ms",
        "0.10.2": "sasl.jaas.config",
        "0.11.0": """
            enable.idempotence isolation.level reconnect.backoff.max.ms transaction.timeout.ms transactional.id
        """,
        "2.0": "default.api.timeout.ms",
        "2.1": "delivery.timeout.ms",
        "2.3": "allow.auto.create.topics client.rack group.instance.id",
        "2.5": "metadata.max.idle.ms",
        "2.7": """
            socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
            ssl.keystore.certificate.chain ssl.keystore.key ssl.truststore.certificates
        """,
        "3.1": "sasl.oauthbearer.token.endpoint.url",
        "3.7": "enable.metrics.push group.protocol group.remote.assignor retry.backoff.max.ms",
        "3.8": "compression.gzip.level compression.lz4.level compression.zstd.level metadata.recovery.strategy",
        "4.0": "metadata.recovery.rebootstrap.trigger.ms",
        "4.1": """
            sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
            sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
            sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
            sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
            sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
            sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
            sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.jwt.retriever.class
            sasl.oauthbearer.scope share.acknowledgement.mode transaction.two.phase.commit.enable
        """,
        "4.2": "share.acquire.mode",
    },
    # Apache Kafka has none of these.
    "own": {},
    "client-metrics": {
        "3.7": "interval.ms match metrics",
    },
    "quota": {
        "0.9": "consumer_byte_rate producer_byte_rate",
        "0.10.1": "follower.replication.throttled.rate leader.replication.throttled.rate",
        "0.11.0": "request_percentage",
        "1.1": "replica.alter.log.dirs.io.max.bytes.per.second",
        "2.7": "connection_creation_rate controller_mutation_rate",
    },
}


@cache
def _since(scope: str) -> Mapping[str, str]:
    return {name: release for release, names in _RELEASES[scope].items() for name in names.split()}


def since(scope: str, name: str) -> str:
    """Return the release; empty if unknown. `scope` is server, topic, group, client, client-metrics, quota or own."""
    return _since(scope).get(name, "")


def listed(scope: str) -> set[str]:
    """Return the names of all settings that have a release."""
    return set(_since(scope))
