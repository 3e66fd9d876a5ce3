// Lets Apache's sticky task assignor work through streams groups that change at random (the seed is fixed) and prints every assignment as a line of JSON.

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentMemberSpec;
import org.apache.kafka.coordinator.group.streams.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.assignor.TopologyDescriber;

public class StreamsAssignments {
    private static final Random RANDOM = new Random(1071);

    record Part(int tasks, boolean stateful) {}

    public static void main(String[] arguments) {
        for (int group = 0; group < 40; group++) {
            play(group % 3);
        }
    }

    private static void play(int standbys) {
        Map<String, Part> parts = new TreeMap<>();
        for (int index = 0; index < 1 + RANDOM.nextInt(3); index++) {
            parts.put("" + index, new Part(1 + RANDOM.nextInt(8), RANDOM.nextBoolean()));
        }
        Map<String, String> processes = new TreeMap<>();
        Map<String, MemberAssignment> before = new TreeMap<>();
        for (int step = 0; step < 5; step++) {
            int joining = step == 0 ? 1 + RANDOM.nextInt(5) : RANDOM.nextInt(3);
            for (int index = 0; index < joining; index++) {
                processes.put("m" + RANDOM.nextInt(10000), "p" + RANDOM.nextInt(4));
            }
            if (step > 0 && processes.size() > 1 && RANDOM.nextBoolean()) {
                String leaving = new ArrayList<>(processes.keySet()).get(RANDOM.nextInt(processes.size()));
                processes.remove(leaving);
                before.remove(leaving);
            }
            before = assign(parts, standbys, processes, before);
        }
    }

    private static Map<String, MemberAssignment> assign(
        Map<String, Part> parts, int standbys, Map<String, String> processes, Map<String, MemberAssignment> before
    ) {
        Map<String, AssignmentMemberSpec> specs = new LinkedHashMap<>();
        processes.forEach((id, process) -> {
            MemberAssignment had = before.getOrDefault(id, MemberAssignment.empty());
            specs.put(id, new AssignmentMemberSpec(Optional.empty(), Optional.empty(), had.activeTasks(),
                had.standbyTasks(), Map.of(), process, Map.of(), Map.of(), Map.of()));
        });
        GroupAssignment assigned = new StickyTaskAssignor().assign(
            new GroupSpecImpl(specs, Map.of("num.standby.replicas", "" + standbys)),
            new TopologyDescriber() {
                public List<String> subtopologies() {
                    return new ArrayList<>(parts.keySet());
                }

                public int maxNumInputPartitions(String part) {
                    return parts.get(part).tasks();
                }

                public boolean isStateful(String part) {
                    return parts.get(part).stateful();
                }
            });
        List<String> topology = new ArrayList<>();
        parts.forEach((id, part) -> topology.add("\"" + id + "\": [" + part.tasks() + ", " + part.stateful() + "]"));
        List<String> members = new ArrayList<>();
        processes.forEach((id, process) -> members.add("\"" + id + "\": {\"process\": \"" + process + "\", \"before\": "
            + text(before.getOrDefault(id, MemberAssignment.empty())) + ", \"after\": " + text(assigned.members().get(id)) + "}"));
        System.out.println("{\"standbys\": " + standbys + ", \"topology\": {" + String.join(", ", topology)
            + "}, \"members\": {" + String.join(", ", members) + "}}");
        return new TreeMap<>(assigned.members());
    }

    private static String text(MemberAssignment assignment) {
        return "[" + text(assignment.activeTasks()) + ", " + text(assignment.standbyTasks()) + "]";
    }

    private static String text(Map<String, Set<Integer>> tasks) {
        List<String> parts = new ArrayList<>();
        new TreeMap<>(tasks).forEach((part, partitions) -> parts.add("\"" + part + "\": " + new TreeSet<>(partitions)));
        return "{" + String.join(", ", parts) + "}";
    }
}
