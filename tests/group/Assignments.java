// Lets Apache's assignors work through groups that change at random (the seed is fixed) and prints every assignment as a line of JSON.
// The order in which Java walks its sets of topics is part of the input: it is printed with them.

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

public class Assignments {
    private static final Random RANDOM = new Random(848);

    record Member(String instance, List<Uuid> topics) {}

    public static void main(String[] arguments) {
        for (int group = 0; group < 36; group++) {
            play(group % 3 == 2 ? new RangeAssignor() : new UniformAssignor(), group % 2 == 0);
        }
    }

    private static void play(ConsumerGroupPartitionAssignor assignor, boolean alike) {
        Map<Uuid, Integer> counts = new LinkedHashMap<>();
        int topics = 1 + RANDOM.nextInt(5);
        for (int index = 0; index < topics; index++) {
            counts.put(new Uuid(RANDOM.nextLong(), RANDOM.nextLong()), 1 + RANDOM.nextInt(12));
        }
        Map<String, Member> members = new TreeMap<>();
        Map<String, Map<Uuid, Set<Integer>>> before = new HashMap<>();
        for (int step = 0; step < 5; step++) {
            int joining = step == 0 ? 1 + RANDOM.nextInt(6) : RANDOM.nextInt(3);
            for (int index = 0; index < joining; index++) {
                String instance = RANDOM.nextInt(4) == 0 ? "i" + RANDOM.nextInt(1000) : null;
                members.put("m" + RANDOM.nextInt(10000), new Member(instance, subscription(counts, alike)));
            }
            if (step > 0 && members.size() > 1 && RANDOM.nextBoolean()) {
                String leaving = new ArrayList<>(members.keySet()).get(RANDOM.nextInt(members.size()));
                members.remove(leaving);
                before.remove(leaving);
            }
            if (step > 0 && RANDOM.nextInt(3) == 0) {
                Uuid grown = new ArrayList<>(counts.keySet()).get(RANDOM.nextInt(counts.size()));
                counts.merge(grown, 1 + RANDOM.nextInt(4), Integer::sum);
            }
            before = assign(assignor, counts, members, before);
        }
    }

    private static List<Uuid> subscription(Map<Uuid, Integer> counts, boolean alike) {
        Set<Uuid> chosen = new HashSet<>();
        for (Uuid topic : counts.keySet()) {
            if (alike || RANDOM.nextInt(3) > 0) {
                chosen.add(topic);
            }
        }
        return new ArrayList<>(chosen);
    }

    private static Map<String, Map<Uuid, Set<Integer>>> assign(
        ConsumerGroupPartitionAssignor assignor,
        Map<Uuid, Integer> counts,
        Map<String, Member> members,
        Map<String, Map<Uuid, Set<Integer>>> before
    ) {
        Map<String, MemberSubscriptionAndAssignmentImpl> specs = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        members.forEach((id, member) -> {
            Map<Uuid, Set<Integer>> had = before.getOrDefault(id, Map.of());
            had.forEach((topic, partitions) -> partitions.forEach(
                partition -> inverted.computeIfAbsent(topic, __ -> new HashMap<>()).put(partition, id)));
            Set<Uuid> topics = new LinkedHashSet<>(member.topics());
            subscriptions.add(topics);
            specs.put(id, new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), Optional.ofNullable(member.instance()), topics, new Assignment(had)));
        });
        SubscriptionType type = subscriptions.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        GroupAssignment assigned = assignor.assign(new GroupSpecImpl(specs, type, inverted), new SubscribedTopicDescriber() {
            public int numPartitions(Uuid topic) {
                return counts.getOrDefault(topic, -1);
            }

            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        });
        Map<String, Map<Uuid, Set<Integer>>> after = new TreeMap<>();
        for (String id : members.keySet()) {
            Map<Uuid, Set<Integer>> partitions = new LinkedHashMap<>();
            if (assigned.members().containsKey(id)) {
                assigned.members().get(id).partitions().forEach((topic, set) -> partitions.put(topic, new TreeSet<>(set)));
            }
            after.put(id, Collections.unmodifiableMap(partitions));
        }
        StringBuilder line = new StringBuilder("{\"assignor\": \"" + assignor.name() + "\", \"counts\": {");
        List<String> parts = new ArrayList<>();
        counts.forEach((topic, count) -> parts.add("\"" + topic + "\": " + count));
        line.append(String.join(", ", parts)).append("}, \"members\": {");
        parts.clear();
        members.forEach((id, member) -> parts.add("\"" + id + "\": {\"instance\": "
            + (member.instance() == null ? "null" : "\"" + member.instance() + "\"")
            + ", \"topics\": [" + String.join(", ", new ArrayList<>(new HashSet<>(member.topics())).stream()
                .map(topic -> "\"" + topic + "\"").toList())
            + "], \"before\": " + text(before.getOrDefault(id, Map.of())) + ", \"after\": " + text(after.get(id)) + "}"));
        line.append(String.join(", ", parts)).append("}}");
        System.out.println(line);
        return after;
    }

    private static String text(Map<Uuid, Set<Integer>> partitions) {
        List<String> parts = new ArrayList<>();
        partitions.forEach((topic, set) -> parts.add("\"" + topic + "\": " + set));
        return "{" + String.join(", ", parts) + "}";
    }
}
