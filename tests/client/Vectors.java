// Answers the questions of tests/golden/client/java.json with Apache's own classes, and prints the whole file anew:
// murmur2 of keys, what the assignors assign, and the batches of the producer byte for byte.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.Utils;

public class Vectors {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        ObjectNode golden = (ObjectNode) JSON.readTree(new File(arguments[0]));
        for (JsonNode pair : golden.get("murmur2")) {
            ((ArrayNode) pair).set(1, Utils.murmur2(bytes(pair.get(0))) & 0xFFFFFFFFL);
        }
        for (JsonNode one : golden.get("assignments")) {
            ((ObjectNode) one).set("assigned", assigned(one));
        }
        for (JsonNode one : golden.get("batches")) {
            ((ObjectNode) one).put("bytes", batch(one));
        }
        System.out.println(JSON.writeValueAsString(golden));
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : HexFormat.of().parseHex(text.asText());
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            default: return new CooperativeStickyAssignor();
        }
    }

    private static JsonNode assigned(JsonNode question) {
        String name = question.get("assignor").asText();
        int generation = question.get("generation").asInt();
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (JsonNode member : question.get("members")) {
            List<String> topics = new ArrayList<>();
            member.get("topics").forEach(topic -> topics.add(topic.asText()));
            List<TopicPartition> owned = new ArrayList<>();
            member.get("owned").forEach(one -> owned.add(new TopicPartition(one.get(0).asText(), one.get(1).asInt())));
            // What a member sends is what its own assignor has kept of the last assignment.
            ConsumerPartitionAssignor own = assignor(name);
            String id = member.get("id").asText();
            if (!owned.isEmpty()) {
                own.onAssignment(new Assignment(owned), new ConsumerGroupMetadata("g", generation, id, Optional.empty()));
            }
            ByteBuffer userData = own.subscriptionUserData(Set.copyOf(topics));
            Optional<String> rack = member.hasNonNull("rack") ? Optional.of(member.get("rack").asText()) : Optional.empty();
            Subscription subscription = new Subscription(topics, userData, owned, generation, rack);
            if (!member.get("instance").isNull()) {
                subscription.setGroupInstanceId(Optional.of(member.get("instance").asText()));
            }
            subscriptions.put(id, subscription);
        }
        Node node = new Node(1, "localhost", 9092);
        Node[] nodes = {node};
        List<PartitionInfo> partitions = new ArrayList<>();
        question.get("partitions").properties().forEach(topic -> {
            for (int number = 0; number < topic.getValue().asInt(); number++) {
                Node[] replicas = nodes;
                if (question.has("racks")) {
                    List<Node> there = new ArrayList<>();
                    for (JsonNode rack : question.get("racks").get(topic.getKey()).get(number)) {
                        there.add(new Node(rack.asText().charAt(0), "localhost", 9092, rack.asText()));
                    }
                    replicas = there.toArray(new Node[0]);
                }
                partitions.add(new PartitionInfo(topic.getKey(), number, node, replicas, replicas));
            }
        });
        Cluster cluster = new Cluster("c", List.of(node), partitions, Set.of(), Set.of());
        ObjectNode found = JSON.createObjectNode();
        assignor(name).assign(cluster, new GroupSubscription(subscriptions)).groupAssignment().forEach((id, assignment) -> {
            TreeMap<String, List<Integer>> byTopic = new TreeMap<>();
            assignment.partitions().forEach(one -> byTopic.computeIfAbsent(one.topic(), t -> new ArrayList<>()).add(one.partition()));
            ArrayNode list = found.putArray(id);
            byTopic.forEach((topic, numbers) -> numbers.stream().sorted().forEach(number -> list.addArray().add(topic).add(number)));
        });
        return found;
    }

    private static String batch(JsonNode question) {
        JsonNode producer = question.get("producer");
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
            ByteBuffer.allocate(1 << 16), RecordBatch.MAGIC_VALUE_V2, Compression.NONE, TimestampType.CREATE_TIME, 0L,
            RecordBatch.NO_TIMESTAMP, producer.get(0).asLong(), (short) producer.get(1).asInt(), producer.get(2).asInt(),
            false, false, RecordBatch.NO_PARTITION_LEADER_EPOCH, 1 << 20);
        for (JsonNode record : question.get("records")) {
            List<Header> headers = new ArrayList<>();
            record.get(3).forEach(pair -> headers.add(new RecordHeader(pair.get(0).asText(), bytes(pair.get(1)))));
            builder.append(record.get(0).asLong(), bytes(record.get(1)), bytes(record.get(2)), headers.toArray(new Header[0]));
        }
        MemoryRecords records = builder.build();
        byte[] made = new byte[records.sizeInBytes()];
        records.buffer().get(made);
        return HexFormat.of().formatHex(made);
    }
}
