import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.auth.SaslExtensionsCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The op "secured": one record through a secured listener and back. */
public final class Secured {
    private static final String MODULES = "org.apache.kafka.common.security.";

    static ObjectNode run(JsonNode job) throws Exception {
        String topic = job.get("topic").asText();
        RecordMetadata sent;
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings(job), new ByteArraySerializer(), new ByteArraySerializer())) {
            byte[] value = job.get("id").asText().getBytes(StandardCharsets.UTF_8);
            sent = producer.send(new ProducerRecord<>(topic, value)).get(30, TimeUnit.SECONDS);
        }
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings(job), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, sent.partition());
            consumer.assign(List.of(partition));
            consumer.seek(partition, sent.offset());
            long deadline = System.nanoTime() + 30_000_000_000L;
            while (System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    String read = new String(record.value(), StandardCharsets.UTF_8);
                    return new ObjectMapper().createObjectNode().put("read", read);
                }
            }
        }
        throw new IllegalStateException("the record cannot be read");
    }

    private static Properties settings(JsonNode job) throws Exception {
        Properties found = new Properties();
        String protocol = job.get("security").asText();
        String mechanism = job.get("mechanism").asText();
        found.put("bootstrap.servers", job.get("bootstrap").asText());
        found.put("security.protocol", protocol);
        found.put("max.block.ms", "20000");
        found.put("request.timeout.ms", "10000");
        found.put("delivery.timeout.ms", "20000");
        found.put("group.id", job.get("group").asText());
        found.put("enable.auto.commit", "false");
        if (protocol.endsWith("SSL")) {
            found.put("ssl.truststore.type", "PEM");
            found.put("ssl.truststore.location", job.get("ca").asText());
        }
        if (!job.get("certificate").asText().isEmpty()) {
            found.put("ssl.keystore.type", "PEM");
            found.put("ssl.keystore.certificate.chain", Files.readString(Path.of(job.get("certificate").asText())));
            found.put("ssl.keystore.key", Files.readString(Path.of(job.get("key").asText())));
        }
        if (mechanism.isEmpty()) {
            return found;
        }
        found.put("sasl.mechanism", mechanism);
        if (mechanism.equals("GSSAPI")) {
            found.put("sasl.kerberos.service.name", "kafka");
            found.put("sasl.jaas.config", "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab=\""
                    + job.get("keytab").asText() + "\" principal=\"" + job.get("user").asText() + "\";");
        } else if (mechanism.equals("OAUTHBEARER")) {
            found.put("sasl.login.callback.handler.class", TokenLogin.class.getName());
            found.put("sasl.jaas.config", MODULES + "oauthbearer.OAuthBearerLoginModule required token=\""
                    + job.get("token").asText() + "\";");
        } else {
            String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
            found.put("sasl.jaas.config", MODULES + module + " required username=\"" + job.get("user").asText()
                    + "\" password=\"" + job.get("password").asText()
                    + "\" tokenauth=\"" + job.get("tokenauth").asBoolean() + "\";");
        }
        return found;
    }

    /** Hands over the token that the JAAS line holds, with a life of an hour whatever stands in it. */
    public static final class TokenLogin implements AuthenticateCallbackHandler {
        private String token;

        @Override
        public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
            token = (String) entries.get(0).getOptions().get("token");
        }

        @Override
        public void handle(Callback[] callbacks) {
            for (Callback callback : callbacks) {
                if (callback instanceof OAuthBearerTokenCallback wanted) {
                    wanted.token(new Token(token, System.currentTimeMillis()));
                } else if (!(callback instanceof SaslExtensionsCallback)) {
                    throw new IllegalArgumentException(callback.getClass().getName());
                }
            }
        }

        @Override
        public void close() {}
    }

    private record Token(String value, long now) implements OAuthBearerToken {
        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            return now + 3_600_000;
        }

        @Override
        public String principalName() {
            return "client";
        }

        @Override
        public Long startTimeMs() {
            return now;
        }
    }
}
