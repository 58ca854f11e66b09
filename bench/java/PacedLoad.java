import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/**
 * A steady load: {@code PacedLoad NAMESRV TOPIC RATE SECONDS} sends RATE messages of 300 bytes, with
 * a key and a tag, in each second, in batches of 100. Prints how many were sent, and in how many
 * seconds.
 */
public class PacedLoad {
    static final int BODY_BYTES = 300;
    static final int BATCH = 100;

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int rate = Integer.parseInt(arguments[2]);
        int seconds = Integer.parseInt(arguments[3]);
        byte[] body = new byte[BODY_BYTES];
        Arrays.fill(body, (byte) 'x');
        DefaultMQProducer producer = new DefaultMQProducer("paced_load");
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(10000);
        producer.start();
        long begin = System.nanoTime();
        long sent = 0;
        while (sent < (long) rate * seconds) {
            List<Message> batch = new ArrayList<>(BATCH);
            for (int number = 0; number < BATCH; number++) {
                batch.add(new Message(topic, "Tag", "key-" + (sent + number), body));
            }
            producer.send(batch);
            sent += BATCH;
            long ahead = begin + sent * 1_000_000_000L / rate - System.nanoTime();
            if (ahead > 0) {
                LockSupport.parkNanos(ahead);
            }
        }
        System.out.printf("%d %.3f%n", sent, (System.nanoTime() - begin) / 1e9);
        producer.shutdown();
        System.exit(0);
    }
}
