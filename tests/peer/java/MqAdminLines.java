import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs each line of a file as an mqadmin command, words by tabs, and prints a mark after each. */
public class MqAdminLines {
    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            MQAdminStartup.main0(line.split("\t"), null);
            System.err.flush();
            System.out.println();
            System.out.println("=== end of command");
            System.out.flush();
        }
        System.exit(0);
    }
}
