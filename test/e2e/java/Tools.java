// Runs Kafka's command line tools in one process, for test/e2e/golden: starting
// Java for each would cost more than all else together.
//
// A request is a line of JSON on stdin: the main class, arguments, input. The
// answer is a line of JSON on stdout: what the tool wrote and its exit code. A
// tool that ends the process (Exit) ends here by an error that unwinds its
// thread; what is written after that is dropped, as nobody would have seen it.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

public class Tools {
    static final class Ended extends Error {
        Ended() {
            super("the tool has ended", null, false, false);
        }
    }

    /** One run of a tool. */
    static final class Run {
        final Capture out = new Capture();
        final Capture err = new Capture();
        final List<Thread> hooks = new ArrayList<>();
        volatile Integer code;
        Thread thread;

        /** What the end of the process does: the hooks run, nothing is written after them. */
        void end(int code) {
            List<Thread> ending;
            synchronized (this) {
                if (this.code != null) {
                    return;
                }
                this.code = code;
                ending = new ArrayList<>(hooks);
            }
            try {
                for (Thread hook : ending) {
                    hook.start();
                }
                for (Thread hook : ending) {
                    hook.join();
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            out.open = false;
            err.open = false;
        }

        synchronized void hook(Runnable runnable, String name) {
            hooks.add(new Thread(runnable, name));
        }

        void main(Class<?> tool, String[] args) {
            try {
                Method main = tool.getMethod("main", String[].class);
                main.invoke(null, (Object) args);
            } catch (InvocationTargetException e) {
                if (!(e.getCause() instanceof Ended)) {
                    System.err.print("Exception in thread \"main\" ");
                    e.getCause().printStackTrace();
                    end(1);
                }
            } catch (ReflectiveOperationException e) {
                e.printStackTrace();
                end(-1);
            }
            end(0);
        }
    }

    static final class Capture extends OutputStream {
        private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        volatile boolean open = true;

        @Override
        public synchronized void write(int b) {
            if (open) {
                bytes.write(b);
            }
        }

        @Override
        public synchronized void write(byte[] b, int off, int len) {
            if (open) {
                bytes.write(b, off, len);
            }
        }

        synchronized String text() {
            return bytes.toString(StandardCharsets.UTF_8);
        }
    }

    static volatile Run current;

    static void exit(int code) {
        Run run = current;
        run.end(code);
        if (Thread.currentThread() != run.thread) {
            run.thread.interrupt();
        }
        throw new Ended();
    }

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> exit(code));
        Exit.setHaltProcedure((code, message) -> exit(code));
        Exit.setShutdownHookAdder((name, runnable) -> current.hook(runnable, name));
        for (String line; (line = requests.readLine()) != null; ) {
            JsonNode request = json.readTree(line);
            List<String> list = new ArrayList<>();
            request.get("args").forEach(a -> list.add(a.asText()));
            Run run = new Run();
            current = run;
            System.setIn(new ByteArrayInputStream(request.get("stdin").asText().getBytes(StandardCharsets.UTF_8)));
            System.setOut(new PrintStream(run.out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(run.err, true, StandardCharsets.UTF_8));
            Class<?> tool = Class.forName(request.get("class").asText());
            run.thread = new Thread(() -> run.main(tool, list.toArray(new String[0])), "main");
            run.thread.setDaemon(true);
            run.thread.start();
            run.thread.join(request.get("limit").asLong());
            if (run.thread.isAlive()) {
                run.err.write(("not done within " + request.get("limit") + " ms\n").getBytes(StandardCharsets.UTF_8));
                run.code = -1;
            }
            ObjectNode answer = json.createObjectNode();
            answer.put("stdout", run.out.text());
            answer.put("stderr", run.err.text());
            answer.put("code", run.code);
            answers.println(json.writeValueAsString(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
