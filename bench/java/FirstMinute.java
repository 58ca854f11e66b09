import java.util.Arrays;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * The first seconds of a broker: {@code FirstMinute NAMESRV TOPIC SECONDS}. One thread sends
 * asynchronously with 1,000 sends under way; another looks up the newest stored message by its unique
 * key. Prints a line for each second: answered sends, look-ups, failures.
 */
public class FirstMinute {
    static final int UNDER_WAY = 1000;
    static final AtomicLong SENT = new AtomicLong();
    static final AtomicLong FOUND = new AtomicLong();
    static final AtomicLong FAILED = new AtomicLong();
    static final AtomicReference<String> NEWEST = new AtomicReference<>();
    static final AtomicBoolean IS_OVER = new AtomicBoolean();

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        DefaultMQProducer producer = new DefaultMQProducer("first_minute");
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(10000);
        producer.start();
        Thread sender = new Thread(() -> send(producer, topic));
        Thread reader = new Thread(() -> lookUp(producer, topic));
        sender.setDaemon(true);
        reader.setDaemon(true);
        sender.start();
        reader.start();
        long next = System.nanoTime();
        long[] before = new long[3];
        for (int second = 0; second < Integer.parseInt(arguments[2]); second++) {
            next += 1_000_000_000L;
            Thread.sleep(Math.max(0, (next - System.nanoTime()) / 1_000_000));
            long[] now = {SENT.get(), FOUND.get(), FAILED.get()};
            System.out.println(
                (now[0] - before[0]) + " " + (now[1] - before[1]) + " " + (now[2] - before[2]));
            before = now;
        }
        IS_OVER.set(true);
        System.exit(0);
    }

    static void send(DefaultMQProducer producer, String topic) {
        byte[] body = new byte[300];
        Arrays.fill(body, (byte) 'x');
        Semaphore free = new Semaphore(UNDER_WAY);
        for (int number = 0; !IS_OVER.get(); number++) {
            free.acquireUninterruptibly();
            SendCallback callback = new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    SENT.incrementAndGet();
                    NEWEST.set(result.getMsgId());
                    free.release();
                }

                @Override
                public void onException(Throwable error) {
                    FAILED.incrementAndGet();
                    free.release();
                }
            };
            try {
                producer.send(new Message(topic, "TagA", "key-" + number, body), callback);
            } catch (Exception error) {
                callback.onException(error);
            }
        }
    }

    static void lookUp(DefaultMQProducer producer, String topic) {
        while (!IS_OVER.get()) {
            String key = NEWEST.get();
            if (key == null) {
                Thread.onSpinWait();
                continue;
            }
            try {
                producer.viewMessage(topic, key);
                FOUND.incrementAndGet();
            } catch (Exception error) {
                FAILED.incrementAndGet();
            }
        }
    }
}
