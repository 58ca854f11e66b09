import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs each line that it reads as an mqadmin command, words by tabs, and prints a mark after each. Some commands
 * keep a client that they have shut down: each line gets new ones. None gets the name server of the one before.
 */
public class ManyCommands {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            for (Field field : MQAdminStartup.class.getDeclaredFields()) {
                if (Collection.class.isAssignableFrom(field.getType())) {
                    field.setAccessible(true);
                    ((Collection<?>) field.get(null)).clear();
                }
            }
            System.clearProperty("rocketmq.namesrv.addr");
            MQAdminStartup.main0(line.split("\t"), null);
            System.err.flush();
            System.out.println();
            System.out.println("=== end of command");
            System.out.flush();
        }
        System.exit(0);
    }
}
