package org.apache.kafka.common.test;

import java.io.IOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.config.types.Password;

/** One node of ours as a process. The program is the system property `ottla.program`, its words separated by `|`. */
public final class NodeProcess {
    private static final long STOP_S = 60;
    private static final List<String> PROGRAM = List.of(System.getProperty("ottla.program", "ottla").split("\\|"));
    private static final int FIRST_PORT = 10_000;
    /** The first port that the kernel takes for outgoing connections. */
    private static final int END_PORT = endPort();
    /** Where to look next; it differs from process to process. */
    private static int nextPort = FIRST_PORT + (int) (ProcessHandle.current().pid() * 97 % 5_000);

    public final int id;
    /** Its server.properties; they are written before each run. */
    public final Properties properties = new Properties();
    private final Path directory;
    private Process process;

    public NodeProcess(int id, Path directory) throws IOException {
        this.id = id;
        this.directory = Files.createDirectories(directory);
    }

    /**
     * A port that nothing has now, given once by this process. It lies below those that the kernel takes for outgoing
     * connections, if there is room: one of these could have it before the node listens on it.
     */
    public static synchronized int freePort() throws IOException {
        InetAddress host = InetAddress.getByName("localhost");
        for (int port = nextPort; port < END_PORT; port++) {
            try (ServerSocket socket = new ServerSocket(port, 1, host)) {
                nextPort = port + 1;
                return port;
            } catch (BindException taken) {
                // The next one may be free.
            }
        }
        nextPort = FIRST_PORT;
        try (ServerSocket socket = new ServerSocket(0, 1, host)) {
            return socket.getLocalPort();
        }
    }

    private static int endPort() {
        try {
            String range = Files.readString(Path.of("/proc/sys/net/ipv4/ip_local_port_range"));
            return Integer.parseInt(range.strip().split("\\s+")[0]);
        } catch (IOException e) {
            return 0;
        }
    }

    /** The value of a setting as the file of a node has it. */
    public static String text(Object value) {
        if (value instanceof Collection<?> all) {
            return String.join(",", all.stream().map(NodeProcess::text).toList());
        }
        return value instanceof Password password ? password.value() : String.valueOf(value);
    }

    public Path directory() {
        return directory;
    }

    public boolean alive() {
        return process != null && process.isAlive();
    }

    /** Was it started, and has it ended without being stopped? */
    public boolean endedByItself() {
        return process != null && !process.isAlive();
    }

    /** Begin to format its directories; `options` come after the cluster's id and the file. */
    public Process format(String clusterId, List<String> options) throws IOException {
        List<String> words = new ArrayList<>(List.of("storage", "format", "-t", clusterId, "-c", write()));
        words.addAll(options);
        return run(words);
    }

    public void start() throws IOException {
        process = run(List.of("start", write()));
    }

    /** Ask it to stop. */
    public void terminate() {
        if (process != null) {
            process.destroy();
        }
    }

    /** Stop it; one that does not stop is killed, and an error. */
    public void stop() throws InterruptedException {
        terminate();
        if (process != null && !process.waitFor(STOP_S, TimeUnit.SECONDS)) {
            process.destroyForcibly().waitFor();
            process = null;
            throw new IllegalStateException("node " + id + " does not stop within " + STOP_S + " s");
        }
        process = null;
    }

    /** The last lines of what it said. */
    public String said() throws IOException {
        if (!Files.exists(output())) {
            return "";
        }
        List<String> lines = Files.readAllLines(output());
        return "\n-- node " + id + "\n" + String.join("\n", lines.subList(Math.max(0, lines.size() - 30), lines.size()));
    }

    /** Whether it has said a traceback. */
    public boolean hasFailed() throws IOException {
        return Files.exists(output()) && Files.readString(output()).contains("Traceback");
    }

    private Path output() {
        return directory.resolve("output.txt");
    }

    private String write() throws IOException {
        Path file = directory.resolve("server.properties");
        try (var to = Files.newBufferedWriter(file)) {
            properties.store(to, null);
        }
        return file.toString();
    }

    private Process run(List<String> words) throws IOException {
        List<String> command = new ArrayList<>(PROGRAM);
        command.addAll(words);
        ProcessBuilder builder = new ProcessBuilder(command);
        String realm = System.getProperty("java.security.krb5.conf");
        if (realm != null) {
            builder.environment().put("KRB5_CONFIG", realm);
        }
        return builder.redirectErrorStream(true)
            .redirectOutput(ProcessBuilder.Redirect.appendTo(output().toFile()))
            .start();
    }
}
