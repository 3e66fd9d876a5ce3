import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Apache's command-line tools one after another in one JVM, because a JVM costs a second and a tool a few
 * milliseconds. A request is a count of strings, the strings (class, arguments) and stdin; the answer is the exit code,
 * stdout and stderr. A tool that exits is left standing in its thread: what comes after exit must not run.
 */
public final class Tools {
    /** The tools' own clients give up after 60 seconds, and say why. */
    private static final long SECONDS_MAX = 120;
    private static final int NO_END = -2;

    public static void main(String[] ignored) throws Exception {
        DataInputStream in = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        while (true) {
            int count;
            try {
                count = in.readInt();
            } catch (EOFException end) {
                Runtime.getRuntime().halt(0);
                return;
            }
            String[] words = new String[count];
            for (int i = 0; i < count; i++)
                words[i] = new String(bytes(in), StandardCharsets.UTF_8);
            run(words, bytes(in), answers);
            answers.flush();
        }
    }

    private static byte[] bytes(DataInputStream in) throws Exception {
        return in.readNBytes(in.readInt());
    }

    @SuppressWarnings("removal")
    private static void run(String[] words, byte[] typed, DataOutputStream answers) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        System.setIn(new ByteArrayInputStream(typed));
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        CompletableFuture<Integer> code = new CompletableFuture<>();
        List<Thread> hooks = new CopyOnWriteArrayList<>();
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(new Thread(hook, name)));
        Exit.Procedure leave = (status, message) -> {
            code.complete(status);
            while (true)
                sleep();
        };
        Exit.setExitProcedure(leave);
        Exit.setHaltProcedure(leave);
        System.setSecurityManager(new Leaving(leave));
        String[] arguments = java.util.Arrays.copyOfRange(words, 1, words.length);
        Thread thread = new Thread(() -> {
            try {
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
                code.complete(0);
            } catch (InvocationTargetException error) {
                // What the JVM itself does with an exception that leaves main.
                System.err.print("Exception in thread \"main\" ");
                error.getCause().printStackTrace();
                code.complete(1);
            } catch (ReflectiveOperationException error) {
                error.printStackTrace();
                code.complete(-1);
            }
        });
        thread.setDaemon(true);
        thread.start();
        int status;
        try {
            status = code.get(SECONDS_MAX, TimeUnit.SECONDS);
        } catch (TimeoutException late) {
            status = NO_END;
            System.err.println("no end within " + SECONDS_MAX + " s:");
            for (StackTraceElement each : thread.getStackTrace())
                System.err.println("\tat " + each);
        }
        for (Thread hook : hooks) {
            hook.setDaemon(true);
            hook.start();
            hook.join(TimeUnit.SECONDS.toMillis(SECONDS_MAX));
        }
        answers.writeInt(status);
        for (ByteArrayOutputStream said : List.of(out, err)) {
            answers.writeInt(said.size());
            said.writeTo(answers);
        }
    }

    /** argparse4j, and with it some of the tools, ends the JVM itself. */
    @SuppressWarnings("removal")
    private static final class Leaving extends SecurityManager {
        private final Exit.Procedure leave;

        Leaving(Exit.Procedure leave) {
            this.leave = leave;
        }

        @Override
        public void checkExit(int status) {
            leave.execute(status, null);
        }

        @Override
        public void checkPermission(java.security.Permission permission) {
            // Everything else is allowed.
        }

        @Override
        public void checkPermission(java.security.Permission permission, Object context) {
            // And to whom does not matter.
        }
    }

    private static void sleep() {
        try {
            Thread.sleep(Long.MAX_VALUE);
        } catch (InterruptedException ignored) {
            // Nobody interrupts it; and if, it sleeps again.
        }
    }
}
