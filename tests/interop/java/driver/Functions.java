// The functions that a program may name; tests/streams/function.py has the same ones. A function is "name" or "name:argument".

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.streams.KeyValue;

final class Functions {
    private Functions() {}

    private static String argument(String function) {
        int colon = function.indexOf(':');
        return colon < 0 ? "" : function.substring(colon + 1);
    }

    private static String name(String function) {
        return function.split(":", 2)[0];
    }

    static boolean test(String function, String key, String value) {
        return switch (name(function)) {
            case "starts" -> value != null && value.startsWith(argument(function));
            case "not_null" -> value != null;
            case "key" -> argument(function).equals(key);
            case "all" -> true;
            case "none" -> false;
            default -> throw new IllegalArgumentException(function);
        };
    }

    static String value(String function, String key, String value) {
        return switch (name(function)) {
            case "append" -> value + argument(function);
            case "with_key" -> key + ":" + value;
            case "null_on" -> value != null && value.startsWith(argument(function)) ? null : value;
            default -> throw new IllegalArgumentException(function);
        };
    }

    static List<String> values(String function, String key, String value) {
        return switch (name(function)) {
            case "chars" -> value == null ? List.of() : Arrays.asList(value.split(""));
            case "twice" -> Arrays.asList(value + "1", value + "2");
            case "null" -> null;
            default -> throw new IllegalArgumentException(function);
        };
    }

    static String key(String function, String key, String value) {
        return switch (name(function)) {
            case "value" -> value;
            case "first" -> value == null ? null : value.substring(0, 1);
            case "null" -> null;
            case "const" -> argument(function);
            case "null_on" -> value != null && value.startsWith(argument(function)) ? null : value;
            case "key" -> key;
            default -> throw new IllegalArgumentException(function);
        };
    }

    static KeyValue<String, String> pair(String function, String key, String value) {
        return switch (name(function)) {
            case "swap" -> KeyValue.pair(value, key);
            case "first" -> KeyValue.pair(value == null ? null : value.substring(0, 1), value);
            case "const" -> KeyValue.pair(argument(function), value);
            // A value that starts with N has a null key, with V a null value, with P no pair at all.
            case "picky" -> value.startsWith("P") ? null
                : KeyValue.pair(value.startsWith("N") ? null : value.substring(0, 1), value.startsWith("V") ? null : value);
            default -> throw new IllegalArgumentException(function);
        };
    }

    static List<KeyValue<String, String>> pairs(String function, String key, String value) {
        List<KeyValue<String, String>> made = new ArrayList<>();
        for (String each : values(function, key, value)) {
            made.add(KeyValue.pair(each, value));
        }
        return made;
    }

    static String initial(String function) {
        return switch (name(function)) {
            case "empty" -> "";
            case "text" -> argument(function);
            case "null" -> null;
            default -> throw new IllegalArgumentException(function);
        };
    }

    // (aggregate, value) to an aggregate, for reducers and aggregators.
    static String add(String function, String key, String value, String aggregate) {
        return switch (name(function)) {
            case "concat" -> "D".equals(value) ? null : aggregate + value;
            case "plus" -> aggregate + "+" + value;
            case "minus" -> aggregate + "-" + value;
            case "null" -> null;
            case "with_key" -> aggregate + "(" + key + value + ")";
            default -> throw new IllegalArgumentException(function);
        };
    }

    static String merge(String function, String key, String one, String other) {
        return switch (name(function)) {
            case "bar" -> "(" + one + "|" + other + ")";
            default -> throw new IllegalArgumentException(function);
        };
    }

    static String join(String function, String key, String left, String right) {
        return switch (name(function)) {
            case "bar" -> left + "|" + right;
            case "with_key" -> key + ":" + left + "|" + right;
            case "null_on" -> left != null && left.startsWith(argument(function)) ? null : left + "|" + right;
            default -> throw new IllegalArgumentException(function);
        };
    }
}
