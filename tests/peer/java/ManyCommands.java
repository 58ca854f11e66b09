import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs each line of a file, its words between tabs, as a command of mqadmin. */
public class ManyCommands {
    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            System.out.println("\n==== " + line.replace('\t', ' '));
            MQAdminStartup.main0(line.split("\t"), null);
        }
        System.exit(0);
    }
}
