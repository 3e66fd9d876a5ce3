// A program in statements, written with Kafka Streams' DSL. The same language is spoken by tests/streams/program.py.

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.*;

@SuppressWarnings({"unchecked", "rawtypes"})
final class Program {
    private final StreamsBuilder builder;
    private final Map<String, Object> made = new HashMap<>();

    Program(StreamsBuilder builder) {
        this.builder = builder;
    }

    void add(JsonNode statement) {
        Object result = make(statement);
        if (statement.has("id")) {
            made.put(text(statement, "id"), result);
        }
    }

    private static String text(JsonNode statement, String field) {
        return statement.path(field).textValue();
    }

    private static Duration ms(String text) {
        return Duration.ofMillis(Long.parseLong(text));
    }

    private Object on(JsonNode statement, String field) {
        Object found = made.get(text(statement, field));
        if (found == null) {
            throw new IllegalArgumentException("nothing is named " + text(statement, field));
        }
        return found;
    }

    private Object make(JsonNode s) {
        String name = text(s, "name"), f = text(s, "f");
        return switch (text(s, "op")) {
            case "stream" -> builder.stream(Arrays.asList(text(s, "topic").split(",")), consumed(name));
            case "table" -> table(s, name);
            case "global_table" -> builder.globalTable(text(s, "topic"));
            case "filter" -> filter(s, name, f);
            case "filter_not" -> on(s, "on") instanceof KStream stream
                ? stream.filterNot((k, v) -> Functions.test(f, (String) k, (String) v), named(name))
                : keeps(s) ? ((KTable) on(s, "on")).filterNot((k, v) -> Functions.test(f, (String) k, (String) v), named(name), kept(s))
                    : ((KTable) on(s, "on")).filterNot((k, v) -> Functions.test(f, (String) k, (String) v), named(name));
            case "map" -> stream(s).map((k, v) -> Functions.pair(f, k, v), named(name));
            case "map_values" -> mapValues(s, name, f);
            case "flat_map" -> stream(s).flatMap((k, v) -> Functions.pairs(f, k, v), named(name));
            case "flat_map_values" -> stream(s).flatMapValues((k, v) -> Functions.values(f, k, v), named(name));
            case "select_key" -> stream(s).selectKey((k, v) -> Functions.key(f, k, v), named(name));
            case "merge" -> stream(s).merge((KStream<String, String>) on(s, "other"), named(name));
            case "split" -> split(s, name);
            case "remember" -> remember(s);
            case "to_table" -> keeps(s) ? stream(s).toTable(named(name), kept(s)) : stream(s).toTable(named(name));
            case "to_stream" -> f == null ? ((KTable) on(s, "on")).toStream(named(name))
                : ((KTable<String, String>) on(s, "on")).toStream((k, v) -> Functions.key(f, k, v), named(name));
            case "repartition" -> stream(s).repartition(name == null ? Repartitioned.as(null) : Repartitioned.as(name));
            case "group_by_key" -> stream(s).groupByKey(Grouped.with(name, Serdes.String(), Serdes.String()));
            case "group_by" -> groupBy(s, name, f);
            case "windowed_by" -> windowedBy(on(s, "on"), text(s, "windows"));
            case "emit" -> on(s, "on") instanceof TimeWindowedKStream windowed ? windowed.emitStrategy(EmitStrategy.onWindowClose())
                : ((SessionWindowedKStream) on(s, "on")).emitStrategy(EmitStrategy.onWindowClose());
            case "count", "reduce", "aggregate" -> Aggregates.make(on(s, "on"), s, name, f);
            case "cogroup" -> s.has("other")
                ? ((CogroupedKStream) on(s, "on")).cogroup((KGroupedStream) on(s, "other"), Aggregates.aggregator(f))
                : ((KGroupedStream) on(s, "on")).cogroup(Aggregates.aggregator(f));
            case "suppress" -> ((KTable) on(s, "on")).suppress(suppressed(text(s, "until"), name));
            case "join", "left_join", "outer_join" -> Joins.make(text(s, "op"), on(s, "on"), on(s, "other"), s, name, f);
            case "to" -> {
                stream(s).to(text(s, "topic"));
                yield null;
            }
            default -> throw new IllegalArgumentException(text(s, "op"));
        };
    }

    private KStream<String, String> stream(JsonNode s) {
        return (KStream<String, String>) on(s, "on");
    }

    static Named named(String name) {
        return name == null ? NamedOrNot.NONE : Named.as(name);
    }

    private static Consumed<String, String> consumed(String name) {
        return name == null ? Consumed.with(Serdes.String(), Serdes.String()) : Consumed.<String, String>as(name)
            .withKeySerde(Serdes.String()).withValueSerde(Serdes.String());
    }

    static boolean keeps(JsonNode s) {
        return s.has("store") || s.has("versioned") || s.has("kept");
    }

    static Materialized kept(JsonNode s) {
        if (s.has("versioned")) {
            return Materialized.as(Stores.persistentVersionedKeyValueStore(text(s, "store"), ms(text(s, "versioned"))));
        }
        Materialized materialized = s.has("store") ? Materialized.as(text(s, "store")) : Materialized.with(null, null);
        // Windowed keys have a serde only where the key's is given.
        materialized = materialized.withKeySerde(Serdes.String());
        materialized = text(s, "op").equals("count") ? materialized : materialized.withValueSerde(Serdes.String());
        if (s.has("retention")) {
            materialized = materialized.withRetention(ms(text(s, "retention")));
        }
        if (s.has("in_memory")) {
            materialized = materialized.withStoreType(BuiltInDslStoreSuppliers.IN_MEMORY);
        }
        return materialized;
    }

    private Object table(JsonNode s, String name) {
        return keeps(s) ? builder.table(text(s, "topic"), consumed(name), kept(s)) : builder.table(text(s, "topic"), consumed(name));
    }

    private Object filter(JsonNode s, String name, String f) {
        Predicate<String, String> predicate = (k, v) -> Functions.test(f, k, v);
        if (on(s, "on") instanceof KStream stream) {
            return stream.filter(predicate, named(name));
        }
        KTable<String, String> table = (KTable<String, String>) on(s, "on");
        return keeps(s) ? table.filter(predicate, named(name), kept(s)) : table.filter(predicate, named(name));
    }

    private Object mapValues(JsonNode s, String name, String f) {
        // Counts and windowed keys are mapped, too.
        ValueMapperWithKey<Object, Object, Object> mapper =
            (k, v) -> Functions.value(f, k == null ? null : k.toString(), v == null ? null : v.toString());
        if (on(s, "on") instanceof KStream stream) {
            return stream.mapValues(mapper, named(name));
        }
        KTable<Object, Object> table = (KTable<Object, Object>) on(s, "on");
        return keeps(s) ? table.mapValues(mapper, named(name), kept(s)) : table.mapValues(mapper, named(name));
    }

    // Forwards a record a millisecond later, then writes it to a plain store; writes there `every` ms by each clock.
    private Object remember(JsonNode s) {
        String store = text(s, "store");
        builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(store), Serdes.String(), Serdes.String()));
        return stream(s).process(() -> new ContextualProcessor<String, String, String, String>() {
            @Override
            public void init(ProcessorContext<String, String> context) {
                super.init(context);
                if (s.has("every")) {
                    for (PunctuationType kind : PunctuationType.values()) {
                        context.schedule(ms(text(s, "every")), kind, time -> store().put(kind.name(), "" + time));
                    }
                }
            }

            private KeyValueStore<String, String> store() {
                return context().getStateStore(store);
            }

            @Override
            public void process(Record<String, String> record) {
                context().forward(record.withTimestamp(record.timestamp() + 1));
                store().put(record.key(), record.value());
            }
        }, store);
    }

    private Object split(JsonNode s, String name) {
        BranchedKStream<String, String> branched = name == null ? stream(s).split() : stream(s).split(Named.as(name));
        String id = text(s, "id");
        String[] predicates = f(s).split(",");
        for (int at = 0; at < predicates.length; at++) {
            String predicate = predicates[at], branch = id + (at + 1);
            branched = branched.branch((k, v) -> Functions.test(predicate, k, v),
                Branched.withConsumer(stream -> made.put(branch, stream)));
        }
        if (s.has("default")) {
            branched.defaultBranch(Branched.withConsumer(stream -> made.put(id + "0", stream)));
        }
        return branched;
    }

    private static String f(JsonNode s) {
        return text(s, "f");
    }

    private Object groupBy(JsonNode s, String name, String f) {
        if (on(s, "on") instanceof KStream) {
            KeyValueMapper<String, String, String> mapper = (k, v) -> Functions.key(f, k, v);
            return stream(s).groupBy(mapper, Grouped.with(name, Serdes.String(), Serdes.String()));
        }
        KTable<Object, Object> table = (KTable<Object, Object>) on(s, "on");
        var grouped = name == null ? Grouped.with(Serdes.String(), Serdes.String())
            : Grouped.with(name, Serdes.String(), Serdes.String());
        return table.groupBy((k, v) -> Functions.pair(f, k.toString(), v.toString()), grouped);
    }

    private static Object windowedBy(Object grouped, String text) {
        String[] parts = text.split(":");
        Object windows = switch (parts[0]) {
            case "time" -> TimeWindows.ofSizeAndGrace(ms(parts[1]), ms(parts[3])).advanceBy(ms(parts[2]));
            case "sliding" -> SlidingWindows.ofTimeDifferenceAndGrace(ms(parts[1]), ms(parts[2]));
            case "session" -> SessionWindows.ofInactivityGapAndGrace(ms(parts[1]), ms(parts[2]));
            case "unlimited" -> UnlimitedWindows.of().startOn(java.time.Instant.ofEpochMilli(Long.parseLong(parts[1])));
            case "own" -> new Own(parts);
            default -> throw new IllegalArgumentException(text);
        };
        if (grouped instanceof CogroupedKStream cogrouped) {
            return windows instanceof SessionWindows sessions ? cogrouped.windowedBy(sessions)
                : windows instanceof SlidingWindows sliding ? cogrouped.windowedBy(sliding) : cogrouped.windowedBy((Windows) windows);
        }
        KGroupedStream stream = (KGroupedStream) grouped;
        return windows instanceof SessionWindows sessions ? stream.windowedBy(sessions)
            : windows instanceof SlidingWindows sliding ? stream.windowedBy(sliding) : stream.windowedBy((Windows) windows);
    }

    // As in tests/streams/program.py.
    private static final class Own extends Windows<Own.Part> {
        private final long size, step, grace, closed;

        Own(String[] parts) {
            size = Long.parseLong(parts[1]);
            step = Long.parseLong(parts[2]);
            grace = Long.parseLong(parts[3]);
            closed = Long.parseLong(parts[4]);
        }

        @Override
        public Map<Long, Part> windowsFor(long timestamp) {
            Map<Long, Part> found = new LinkedHashMap<>();
            for (long start = 0; start <= timestamp; start += step) {
                long end = start + size / (1 + start / step % 2);
                if (timestamp < end && timestamp < closed) {
                    found.put(start, new Part(start, end));
                }
            }
            return found;
        }

        @Override
        public long size() {
            return size;
        }

        @Override
        public long gracePeriodMs() {
            return grace;
        }

        static final class Part extends Window {
            Part(long start, long end) {
                super(start, end);
            }

            @Override
            public boolean overlap(Window other) {
                return startMs < other.end() && other.start() < endMs;
            }
        }
    }

    private static Suppressed suppressed(String until, String name) {
        String[] parts = until.split(":");
        Suppressed suppressed = switch (parts[0]) {
            case "close" -> Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded());
            case "time" -> Suppressed.untilTimeLimit(ms(parts[1]), parts.length > 2
                ? Suppressed.BufferConfig.maxRecords(Long.parseLong(parts[2])) : Suppressed.BufferConfig.unbounded());
            default -> throw new IllegalArgumentException(until);
        };
        return name == null ? suppressed : suppressed.withName(name);
    }

    // Named is null-checked by Kafka Streams, but an empty one stands for none.
    private static final class NamedOrNot extends Named {
        private static final Named NONE = new NamedOrNot();

        private NamedOrNot() {
            super((String) null);
        }
    }
}
