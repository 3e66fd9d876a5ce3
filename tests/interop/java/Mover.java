import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Moves the records of one topic into the same partitions of another, each once and in order, in transactions that hold
 * the group's offsets.
 *
 * <p>One line for each transaction: "moved COUNT" or "failed WHY". It ends when the file END is there and the group has
 * committed everything that the first topic holds.
 */
public final class Mover implements AutoCloseable {
    private static final Duration POLL = Duration.ofMillis(300);

    private final String source;
    private final String target;
    private final KafkaConsumer<String, String> consumer;
    private final KafkaProducer<String, String> producer;

    private Mover(String bootstrap, String source, String target, String group, String id) {
        this.source = source;
        this.target = target;
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("isolation.level", "read_committed");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.records", "25");
        settings.put("request.timeout.ms", "10000");
        settings.put("session.timeout.ms", "10000");
        consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        Properties own = new Properties();
        own.put("bootstrap.servers", bootstrap);
        own.put("transactional.id", id);
        own.put("transaction.timeout.ms", "20000");
        own.put("request.timeout.ms", "10000");
        producer = new KafkaProducer<>(own, new StringSerializer(), new StringSerializer());
    }

    /** Mover BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID END. */
    public static void main(String[] words) {
        Path end = Path.of(words[5]);
        boolean done = false;
        while (!done) {
            try (Mover mover = new Mover(words[0], words[1], words[2], words[3], words[4])) {
                done = mover.run(end);
            } catch (KafkaException error) {
                // Fenced, or beyond what an abort can mend: another life with the same transactional id.
                System.out.println("failed " + error);
            }
        }
        System.out.println("end");
    }

    private boolean run(Path end) {
        producer.initTransactions();
        consumer.subscribe(List.of(source));
        while (true) {
            ConsumerRecords<String, String> records = consumer.poll(POLL);
            if (records.isEmpty()) {
                if (Files.exists(end) && atEnd()) {
                    return true;
                }
                continue;
            }
            try {
                move(records);
                System.out.println("moved " + records.count());
            } catch (ProducerFencedException error) {
                throw error;
            } catch (KafkaException error) {
                System.out.println("failed " + error);
                producer.abortTransaction();
                back();
            }
        }
    }

    private void move(ConsumerRecords<String, String> records) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<String, String> each : records) {
            producer.send(new ProducerRecord<>(target, each.partition(), each.key(), each.value()));
            offsets.put(new TopicPartition(source, each.partition()), new OffsetAndMetadata(each.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        producer.commitTransaction();
    }

    /** Read again what was read and not moved. */
    private void back() {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition each : consumer.assignment()) {
            OffsetAndMetadata known = committed.get(each);
            if (known == null) {
                consumer.seekToBeginning(Set.of(each));
            } else {
                consumer.seek(each, known.offset());
            }
        }
    }

    private boolean atEnd() {
        Set<TopicPartition> own = consumer.assignment();
        if (own.isEmpty()) {
            return false;
        }
        Map<TopicPartition, Long> ends = consumer.endOffsets(own);
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(own);
        return own.stream()
                .allMatch(each -> ends.get(each) == (committed.get(each) == null ? 0 : committed.get(each).offset()));
    }

    @Override
    public void close() {
        producer.close(Duration.ZERO);
        consumer.close();
    }
}
