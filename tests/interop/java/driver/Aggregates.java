// count, reduce and aggregate, of everything that can be aggregated.

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.kstream.*;

@SuppressWarnings({"unchecked", "rawtypes"})
final class Aggregates {
    private Aggregates() {}

    static Aggregator<String, String, String> aggregator(String f) {
        return (k, v, a) -> Functions.add(f, k, v, a);
    }

    static Object make(Object on, JsonNode s, String name, String f) {
        Named named = Program.named(name);
        Materialized kept = Program.keeps(s) ? Program.kept(s) : null;
        Reducer<String> reducer = (a, v) -> Functions.add(f, null, v, a);
        Initializer<String> initializer = () -> Functions.initial(s.path("init").asText("empty"));
        Aggregator<String, String, String> aggregator = aggregator(f);
        Merger<String, String> merger = (k, a, b) -> Functions.merge("bar", k, a, b);
        String operation = s.get("op").textValue();
        Materialized strings = kept != null ? kept : Materialized.with(Serdes.String(), Serdes.String());
        if (on instanceof KGroupedStream grouped) {
            return switch (operation) {
                case "count" -> kept == null ? grouped.count(named) : grouped.count(named, kept);
                case "reduce" -> grouped.reduce(reducer, named, strings);
                default -> grouped.aggregate(initializer, aggregator, named, strings);
            };
        }
        if (on instanceof TimeWindowedKStream windowed) {
            return switch (operation) {
                case "count" -> kept == null ? windowed.count(named) : windowed.count(named, kept);
                case "reduce" -> windowed.reduce(reducer, named, strings);
                default -> windowed.aggregate(initializer, aggregator, named, strings);
            };
        }
        if (on instanceof SessionWindowedKStream windowed) {
            return switch (operation) {
                case "count" -> kept == null ? windowed.count(named) : windowed.count(named, kept);
                case "reduce" -> windowed.reduce(reducer, named, strings);
                default -> windowed.aggregate(initializer, aggregator, merger, named, strings);
            };
        }
        if (on instanceof KGroupedTable grouped) {
            String g = s.path("g").textValue();
            Reducer<String> less = (a, v) -> Functions.add(g, null, v, a);
            return switch (operation) {
                case "count" -> kept == null ? grouped.count(named) : grouped.count(named, kept);
                case "reduce" -> grouped.reduce(reducer, less, named, strings);
                default -> grouped.aggregate(initializer, aggregator, aggregator(g), named, strings);
            };
        }
        if (on instanceof CogroupedKStream grouped) {
            return grouped.aggregate(initializer, named, strings);
        }
        if (on instanceof TimeWindowedCogroupedKStream grouped) {
            return grouped.aggregate(initializer, named, strings);
        }
        return ((SessionWindowedCogroupedKStream) on).aggregate(initializer, merger, named, strings);
    }
}
