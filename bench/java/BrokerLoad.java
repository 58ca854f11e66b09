import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A load on a broker: {@code BrokerLoad NAMESRV TOPIC COUNT KIND...}, each KIND one of sync (16
 * threads), async (1,000 under way), batch (of 100, 4 threads), queries (by offset id, unique
 * key and key, one thread), busy (the same, beside 5,000 sends a second of another connection) and
 * found (send, then look the message up by all three, 4 threads). Each kind is warmed up first, but
 * for the last. Prints a line for each: name, operations in a second, median and 99th percentile in
 * microseconds, failures.
 */
public class BrokerLoad {
    static final int BODY_BYTES = 300;
    static final int BATCH = 100;
    static final int UNDER_WAY = 1000;
    static final int LOOK_UPS = 2000;
    static final int SENDS_PER_MS = 5;
    static final List<String> OFFSET_IDS = Collections.synchronizedList(new ArrayList<>());
    static final List<String> UNIQUE_KEYS = Collections.synchronizedList(new ArrayList<>());
    static DefaultMQProducer producer;
    static String topic;
    static final byte[] BODY = new byte[BODY_BYTES];

    interface Step {
        void run(int number) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        Arrays.fill(BODY, (byte) 'x');
        topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        producer = new DefaultMQProducer("broker_load");
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(10000);
        producer.start();
        for (String kind : Arrays.asList(arguments).subList(3, arguments.length)) {
            run(kind, count);
        }
        producer.shutdown();
        System.exit(0);
    }

    static void run(String kind, int count) throws Exception {
        switch (kind) {
            case "sync":
                measure("warm", count / 4, 16, 1, BrokerLoad::sendOne);
                measure(kind, count, 16, 1, BrokerLoad::sendOne);
                break;
            case "async":
                sendAsync("warm", count / 4);
                sendAsync(kind, count);
                break;
            case "batch":
                measure("warm", count / BATCH / 4, 4, BATCH, BrokerLoad::sendBatch);
                measure(kind, count / BATCH, 4, BATCH, BrokerLoad::sendBatch);
                break;
            case "found":
                measure(kind, count, 4, 1, BrokerLoad::sendAndLookUp);
                break;
            case "busy":
                lookUpBesideSends();
                break;
            default:
                lookUp("");
        }
    }

    static Message message(int number) {
        return new Message(topic, "TagA", "key-" + number, BODY);
    }

    static void sendOne(int number) throws Exception {
        SendResult result = producer.send(message(number));
        if (OFFSET_IDS.size() < LOOK_UPS) {
            OFFSET_IDS.add(result.getOffsetMsgId());
            UNIQUE_KEYS.add(result.getMsgId());
        }
    }

    static void sendAndLookUp(int number) throws Exception {
        SendResult result = producer.send(message(number));
        String[] ids = {result.getOffsetMsgId(), result.getMsgId()};
        for (String id : ids) {
            if (!result.getMsgId().equals(producer.viewMessage(topic, id).getMsgId())) {
                throw new IllegalStateException(id + " is another message");
            }
        }
        List<MessageExt> found = producer.queryMessage(
            topic, "key-" + number, 32, 0, Long.MAX_VALUE).getMessageList();
        if (found.size() != 1 || !result.getMsgId().equals(found.get(0).getMsgId())) {
            throw new IllegalStateException("by its key " + found.size() + " are found");
        }
    }

    static void sendBatch(int number) throws Exception {
        List<Message> batch = new ArrayList<>(BATCH);
        for (int member = 0; member < BATCH; member++) {
            batch.add(message(number * BATCH + member));
        }
        producer.send(batch);
    }

    static void sendAsync(String name, int count) throws Exception {
        Semaphore free = new Semaphore(UNDER_WAY);
        long[] nanos = new long[count];
        AtomicInteger failures = new AtomicInteger();
        long began = System.nanoTime();
        for (int number = 0; number < count; number++) {
            free.acquire();
            int mine = number;
            long start = System.nanoTime();
            producer.send(message(number), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    nanos[mine] = System.nanoTime() - start;
                    free.release();
                }

                @Override
                public void onException(Throwable error) {
                    failures.incrementAndGet();
                    free.release();
                }
            });
        }
        free.acquire(UNDER_WAY);
        report(name, count, System.nanoTime() - began, nanos, failures.get());
    }

    static void lookUpBesideSends() throws Exception {
        DefaultMQProducer beside = new DefaultMQProducer("broker_load_beside");
        beside.setNamesrvAddr(producer.getNamesrvAddr());
        beside.setInstanceName("beside");
        beside.start();
        AtomicBoolean isOver = new AtomicBoolean();
        Thread sender = new Thread(() -> sendUntil(isOver, beside));
        sender.start();
        lookUp("busy-");
        isOver.set(true);
        sender.join();
        beside.shutdown();
    }

    static void sendUntil(AtomicBoolean isOver, DefaultMQProducer beside) {
        SendCallback ignored = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
            }

            @Override
            public void onException(Throwable error) {
            }
        };
        int number = LOOK_UPS;
        for (long due = System.nanoTime(); !isOver.get(); due += 1_000_000) {
            LockSupport.parkNanos(due - System.nanoTime());
            try {
                for (int sent = 0; sent < SENDS_PER_MS; sent++) {
                    beside.send(message(number++), ignored);
                }
            } catch (Exception error) {
                System.out.println("# " + error.toString().lines().findFirst().get());
            }
        }
    }

    static void lookUp(String prefix) throws Exception {
        Random random = new Random(1);
        int known = UNIQUE_KEYS.size();
        Step[] steps = {
            number -> producer.viewMessage(topic, OFFSET_IDS.get(random.nextInt(known))),
            number -> producer.viewMessage(topic, UNIQUE_KEYS.get(random.nextInt(known))),
            number -> producer.queryMessage(
                topic, "key-" + random.nextInt(LOOK_UPS), 32, 0, Long.MAX_VALUE),
        };
        String[] names = {"offset-id", "unique-key", "key"};
        for (int way = 0; way < steps.length; way++) {
            measure("warm", LOOK_UPS, 1, 1, steps[way]);
            measure(prefix + names[way], LOOK_UPS, 1, 1, steps[way]);
        }
    }

    static void measure(String name, int count, int threads, int weight, Step step)
            throws Exception {
        AtomicInteger next = new AtomicInteger();
        AtomicInteger failures = new AtomicInteger();
        AtomicReference<Throwable> last = new AtomicReference<>();
        long[] nanos = new long[count];
        CountDownLatch ended = new CountDownLatch(threads);
        long began = System.nanoTime();
        for (int thread = 0; thread < threads; thread++) {
            new Thread(() -> {
                for (int number = next.getAndIncrement(); number < count;
                        number = next.getAndIncrement()) {
                    long start = System.nanoTime();
                    try {
                        step.run(number);
                    } catch (Exception error) {
                        failures.incrementAndGet();
                        last.set(error);
                    }
                    nanos[number] = System.nanoTime() - start;
                }
                ended.countDown();
            }).start();
        }
        ended.await();
        report(name, count * weight, System.nanoTime() - began, nanos, failures.get());
        if (last.get() != null) {
            System.out.println("# " + last.get());
        }
    }

    static void report(String name, int count, long passed, long[] nanos, int failures) {
        if (!name.equals("warm")) {
            Arrays.sort(nanos);
            System.out.printf("%s %.0f %.0f %.0f %d%n", name, count * 1e9 / passed,
                nanos[nanos.length / 2] / 1e3, nanos[nanos.length * 99 / 100] / 1e3, failures);
        }
    }
}
