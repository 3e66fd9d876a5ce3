// All joins.

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.kstream.*;

@SuppressWarnings({"unchecked", "rawtypes"})
final class Joins {
    private Joins() {}

    private static String string(Object value) {
        return value == null ? null : value.toString();
    }

    static Object make(String operation, Object on, Object other, JsonNode s, String name, String f) {
        if (on instanceof KStream stream && other instanceof KStream second) {
            return streams(operation, stream, second, s, name, f);
        }
        if (on instanceof KStream stream && other instanceof GlobalKTable table) {
            KeyValueMapper selector = (k, v) -> Functions.key(s.get("selector").textValue(), (String) k, (String) v);
            ValueJoinerWithKey joiner = (k, l, r) -> Functions.join(f, string(k), string(l), string(r));
            return operation.equals("join") ? stream.join(table, selector, joiner, Program.named(name))
                : stream.leftJoin(table, selector, joiner, Program.named(name));
        }
        if (on instanceof KStream stream) {
            return streamTable(operation, stream, (KTable) other, s, name, f);
        }
        return tables(operation, (KTable) on, (KTable) other, s, name, f);
    }

    private static Object streams(String operation, KStream stream, KStream second, JsonNode s, String name, String f) {
        ValueJoinerWithKey joiner = (k, l, r) -> Functions.join(f, string(k), string(l), string(r));
        String[] parts = s.get("windows").textValue().split(":");
        JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(Math.max(Long.parseLong(parts[0]), Long.parseLong(parts[1]))), Duration.ofMillis(Long.parseLong(parts[2])))
            .before(Duration.ofMillis(Long.parseLong(parts[0]))).after(Duration.ofMillis(Long.parseLong(parts[1])));
        StreamJoined joined = StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String());
        joined = name == null ? joined : joined.withName(name);
        joined = s.has("store") ? joined.withStoreName(s.get("store").textValue()) : joined;
        return switch (operation) {
            case "join" -> stream.join(second, joiner, windows, joined);
            case "left_join" -> stream.leftJoin(second, joiner, windows, joined);
            default -> stream.outerJoin(second, joiner, windows, joined);
        };
    }

    private static Object streamTable(String operation, KStream stream, KTable table, JsonNode s, String name, String f) {
        ValueJoinerWithKey joiner = (k, l, r) -> Functions.join(f, string(k), string(l), string(r));
        Joined joined = Joined.with(Serdes.String(), Serdes.String(), null);
        joined = name == null ? joined : joined.withName(name);
        joined = s.has("grace") ? joined.withGracePeriod(Duration.ofMillis(Long.parseLong(s.get("grace").textValue()))) : joined;
        return operation.equals("join") ? stream.join(table, joiner, joined) : stream.leftJoin(table, joiner, joined);
    }

    private static Object tables(String operation, KTable table, KTable other, JsonNode s, String name, String f) {
        ValueJoiner joiner = (l, r) -> Functions.join(f, null, string(l), string(r));
        Materialized kept = Program.keeps(s) ? Program.kept(s) : null;
        if (s.has("fk")) {
            Function<String, String> extractor = v -> Functions.key(s.get("fk").textValue(), null, v);
            TableJoined joined = TableJoined.as(name);
            Materialized store = kept != null ? kept : Materialized.with(null, null);
            return operation.equals("join") ? table.join(other, extractor, joiner, joined, store)
                : table.leftJoin(other, extractor, joiner, joined, store);
        }
        Named named = Program.named(name);
        return switch (operation) {
            case "join" -> kept == null ? table.join(other, joiner, named) : table.join(other, joiner, named, kept);
            case "left_join" -> kept == null ? table.leftJoin(other, joiner, named) : table.leftJoin(other, joiner, named, kept);
            default -> kept == null ? table.outerJoin(other, joiner, named) : table.outerJoin(other, joiner, named, kept);
        };
    }
}
