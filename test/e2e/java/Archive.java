// Loads the classes of Kafka's command line tools, so that a Java which is told to
// write an archive of what it has loaded (-XX:ArchiveClassesAtExit, see setup.sh)
// has them in it. A tool that starts with the archive neither reads, checks nor
// links them again, which is half of what it costs to start.

import java.io.File;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import java.util.regex.Pattern;

public class Archive {
    /** What is loaded, by the beginnings of the names of jars: a third of it is used by one tool or another. */
    private static final String[][] USED = {
        {"kafka-clients-", "org/apache/kafka/(clients|common)/.*"},
        {"kafka-tools-", ".*"},
        {"kafka-server", "org/apache/kafka/server/(common|config|util|record)/.*"},
        {"kafka_", "kafka/(admin|utils)/.*"},
        {"jackson-core", ".*"},
        {"jackson-databind", "[^$]*"},
        {"jopt-simple", ".*"},
        {"argparse4j", "[^$]*"},
        {"log4j-api", ".*"},
        {"log4j-core", ".*"},
        {"slf4j-api", ".*"},
        {"scala-library", "scala/((collection|runtime)/)?((immutable|mutable|convert)/)?[^/$]*"},
    };

    public static void main(String[] args) throws Exception {
        ClassLoader jars = ClassLoader.getSystemClassLoader();
        int loaded = 0;
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            for (String[] used : USED) {
                if (new File(path).getName().startsWith(used[0])) {
                    loaded += load(jars, path, Pattern.compile(used[1]));
                }
            }
        }
        System.out.println(loaded + " classes");
    }

    private static int load(ClassLoader loader, String path, Pattern used) throws Exception {
        int loaded = 0;
        try (JarFile jar = new JarFile(path)) {
            for (JarEntry entry : (Iterable<JarEntry>) jar.stream()::iterator) {
                String name = entry.getName();
                if (!name.endsWith(".class") || name.startsWith("META-INF/") || name.equals("module-info.class")) {
                    continue;
                }
                name = name.substring(0, name.length() - ".class".length());
                if (!used.matcher(name).matches()) {
                    continue;
                }
                try {
                    Class.forName(name.replace('/', '.'), false, loader);
                    loaded++;
                } catch (LinkageError | ClassNotFoundException e) {
                    // It belongs to a library that is not there: nobody uses it.
                }
            }
        }
        return loaded;
    }
}
