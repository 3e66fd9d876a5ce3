import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** The peer of the Java client. It speaks the protocol of tests/interop/peer.py on stdin and stdout. */
public final class Peer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private static final LinkedBlockingQueue<String> LINES = new LinkedBlockingQueue<>();
    private static final String END = "";

    public static void main(String[] arguments) throws Exception {
        Thread reader = new Thread(Peer::read);
        reader.setDaemon(true);
        reader.start();
        for (String line = LINES.take(); !line.equals(END); line = LINES.take()) {
            JsonNode job = JSON.readTree(line);
            try {
                run(job);
                say(JSON.createObjectNode().put("done", true));
            } catch (Exception problem) {
                problem.printStackTrace();
                say(error(problem));
            }
        }
    }

    private static void read() {
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                LINES.add(line);
            }
        } catch (IOException closed) {
            // The end of the input is the end of the program.
        }
        LINES.add(END);
    }

    private static void run(JsonNode job) throws Exception {
        switch (job.get("op").asText()) {
            case "about" -> say(JSON.createObjectNode().put("client", "kafka-clients " + AppInfoParser.getVersion()));
            case "produce" -> produce(job);
            case "consume" -> consume(job);
            case "transact" -> transact(job);
            case "group" -> group(job);
            case "secured" -> say(Secured.run(job));
            default -> admin(job);
        }
    }

    private static void produce(JsonNode job) throws Exception {
        Properties settings = settings(job);
        settings.put("acks", job.get("acks").asText());
        settings.put("compression.type", job.get("codec").asText());
        settings.put("enable.idempotence", job.get("idempotent").asText());
        settings.put("delivery.timeout.ms", "45000");
        settings.put("request.timeout.ms", "10000");
        boolean each = job.get("each").asBoolean();
        settings.put("linger.ms", each ? "0" : "5");
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> waiting = new ArrayList<>();
            for (JsonNode record : job.get("records")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode header : record.get("h")) {
                    headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
                }
                Future<RecordMetadata> sent = producer.send(new ProducerRecord<>(
                        job.get("topic").asText(),
                        record.get("p").asInt(),
                        record.get("t").asLong(),
                        bytes(record.get("k")),
                        bytes(record.get("v")),
                        headers));
                if (each) {
                    say(ack(sent.get()));
                } else {
                    waiting.add(sent);
                }
            }
            for (Future<RecordMetadata> sent : waiting) {
                say(ack(sent.get()));
            }
        }
    }

    private static void transact(JsonNode job) throws Exception {
        Properties settings = settings(job);
        settings.put("transactional.id", job.get("id").asText());
        String topic = job.get("topic").asText();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            for (JsonNode record : job.get("records")) {
                producer.send(new ProducerRecord<>(
                        topic, record.get("p").asInt(), bytes(record.get("k")), bytes(record.get("v"))));
            }
            producer.flush();
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            job.get("offsets").properties().forEach(one -> offsets.put(
                    new TopicPartition(topic, Integer.parseInt(one.getKey())),
                    new OffsetAndMetadata(one.getValue().asLong())));
            if (!offsets.isEmpty()) {
                producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(job.get("group").asText()));
            }
            say(JSON.createObjectNode().put("open", true));
            LINES.take();
            if (job.get("commit").asBoolean()) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
    }

    private static ObjectNode ack(RecordMetadata written) {
        return JSON.createObjectNode().put("p", written.partition()).put("o", written.offset());
    }

    private static KafkaConsumer<byte[], byte[]> consumer(Properties settings) {
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static void consume(JsonNode job) throws Exception {
        Properties settings = settings(job);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "none");
        settings.put("isolation.level", job.get("isolation").asText());
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings)) {
            Map<TopicPartition, Long> starts = new HashMap<>();
            job.get("from").properties().forEach(start -> starts.put(
                    new TopicPartition(job.get("topic").asText(), Integer.parseInt(start.getKey())),
                    start.getValue().asLong()));
            consumer.assign(starts.keySet());
            starts.forEach(consumer::seek);
            int count = 0;
            long deadline = System.nanoTime() + job.get("timeout_ms").asLong() * 1_000_000;
            while (count < job.get("count").asInt() && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    say(line(record));
                    count++;
                }
            }
        }
    }

    private static ObjectNode line(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode line = JSON.createObjectNode()
                .put("p", record.partition())
                .put("o", record.offset())
                .put("t", record.timestamp())
                .put("k", text(record.key()))
                .put("v", text(record.value()));
        ArrayNode headers = line.putArray("h");
        record.headers().forEach(header -> headers.addArray().add(header.key()).add(text(header.value())));
        return line;
    }

    private static void group(JsonNode job) throws Exception {
        Properties settings = settings(job);
        settings.put("group.id", job.get("group").asText());
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("group.protocol", job.get("protocol").asText());
        if (job.get("protocol").asText().equals("classic")) {
            settings.put("session.timeout.ms", "5000");
            settings.put("heartbeat.interval.ms", "500");
            if (job.path("assignor").asText("").equals("range")) {
                settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
            }
        }
        List<String> topics = new ArrayList<>();
        job.get("topics").forEach(topic -> topics.add(topic.asText()));
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings)) {
            consumer.subscribe(topics, new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    say(changed("assigned", partitions));
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    say(changed("revoked", partitions));
                }
            });
            while (LINES.poll() == null) {
                var records = consumer.poll(Duration.ofMillis(100));
                records.forEach(record -> say(line(record)));
                if (!records.isEmpty()) {
                    consumer.commitSync();
                }
            }
        }
    }

    private static ObjectNode changed(String how, Collection<TopicPartition> partitions) {
        ObjectNode line = JSON.createObjectNode();
        ArrayNode list = line.putArray(how);
        partitions.forEach(partition -> list.addArray().add(partition.topic()).add(partition.partition()));
        return line;
    }

    private static void admin(JsonNode job) throws Exception {
        String topic = job.path("topic").asText("");
        ObjectNode answer = JSON.createObjectNode();
        try (Admin admin = Admin.create(settings(job))) {
            switch (job.get("op").asText()) {
                case "create" -> {
                    Map<String, String> configs = new HashMap<>();
                    job.path("configs").properties().forEach(e -> configs.put(e.getKey(), e.getValue().asText()));
                    NewTopic made = new NewTopic(topic, job.get("partitions").asInt(), (short) 1).configs(configs);
                    admin.createTopics(List.of(made)).all().get();
                }
                case "delete" -> admin.deleteTopics(List.of(topic)).all().get();
                case "add_partitions" -> admin.createPartitions(
                                Map.of(topic, NewPartitions.increaseTo(job.get("partitions").asInt())))
                        .all()
                        .get();
                case "topics" -> admin.listTopics().names().get().forEach(answer.putArray("topics")::add);
                case "describe" -> {
                    ArrayNode partitions = answer.putArray("partitions");
                    var described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
                    described.partitions().forEach(one -> {
                        ObjectNode line = partitions.addObject().put("p", one.partition()).put("leader", one.leader().id());
                        ArrayNode replicas = line.putArray("replicas");
                        one.replicas().forEach(replica -> replicas.add(replica.id()));
                    });
                }
                case "configs" -> {
                    ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
                    ObjectNode configs = answer.putObject("configs");
                    admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()
                            .forEach(entry -> configs.put(entry.name(), entry.value()));
                }
                case "alter" -> {
                    List<AlterConfigOp> operations = new ArrayList<>();
                    job.get("configs").properties().forEach(e -> operations.add(new AlterConfigOp(
                            new ConfigEntry(e.getKey(), e.getValue().asText()), AlterConfigOp.OpType.SET)));
                    ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
                    admin.incrementalAlterConfigs(Map.of(resource, operations)).all().get();
                }
                case "groups" -> {
                    ArrayNode groups = answer.putArray("groups");
                    admin.listGroups().all().get().forEach(group -> groups.add(group.groupId()));
                }
                case "committed" -> {
                    ObjectNode offsets = answer.putObject("offsets");
                    admin.listConsumerGroupOffsets(job.get("group").asText())
                            .partitionsToOffsetAndMetadata().get()
                            .forEach((where, offset) -> {
                                if (where.topic().equals(topic) && offset != null) {
                                    offsets.put(Integer.toString(where.partition()), offset.offset());
                                }
                            });
                }
                case "delete_group" -> admin.deleteConsumerGroups(List.of(job.get("group").asText())).all().get();
                case "delete_records" -> {
                    TopicPartition where = new TopicPartition(topic, job.get("partition").asInt());
                    var to = Map.of(where, RecordsToDelete.beforeOffset(job.get("offset").asLong()));
                    long low = admin.deleteRecords(to).lowWatermarks().get(where).get().lowWatermark();
                    answer.put("low_watermark", low);
                }
                case "offsets" -> {
                    TopicPartition where = new TopicPartition(topic, job.get("partition").asInt());
                    JsonNode at = job.get("at");
                    OffsetSpec spec = at.isNumber()
                            ? OffsetSpec.forTimestamp(at.asLong())
                            : at.asText().equals("earliest") ? OffsetSpec.earliest() : OffsetSpec.latest();
                    answer.put("offset", admin.listOffsets(Map.of(where, spec)).partitionResult(where).get().offset());
                }
                default -> throw new IllegalArgumentException("no such op: " + job.get("op"));
            }
        }
        if (!answer.isEmpty()) {
            say(answer);
        }
    }

    private static Properties settings(JsonNode job) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", job.get("bootstrap").asText());
        settings.put("reconnect.backoff.max.ms", "500");
        return settings;
    }

    private static ObjectNode error(Throwable problem) {
        Throwable cause = problem instanceof ExecutionException ? problem.getCause() : problem;
        Errors known = Errors.forException(cause);
        ObjectNode error = JSON.createObjectNode();
        ObjectNode what = error.putObject("error");
        what.put("code", known == Errors.UNKNOWN_SERVER_ERROR ? null : (Integer) (int) known.code());
        what.put("name", cause.getClass().getSimpleName()).put("message", String.valueOf(cause.getMessage()));
        return error;
    }

    private static synchronized void say(ObjectNode line) {
        OUT.println(line);
        OUT.flush();
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String text(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }
}
