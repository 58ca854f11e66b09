import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * A push consumer: {@code Consume NAMESRV TOPIC BACKLOG RATE SECONDS BROKER_PROCESS} drains BACKLOG
 * small messages that were sent before it started, then gets RATE messages a second for SECONDS.
 * Prints the messages drained a second, from the first to the last, the microseconds of CPU that the
 * broker took for each of them, and the median and the 99th percentile of the microseconds from
 * before a send to the listener, without those of the first second.
 */
public class Consume {
    private static final int BATCH = 200;
    private static final double MICROSECONDS_PER_TICK = 10_000;

    /** The CPU that a process took so far, in microseconds. */
    private static double cpu(String process) throws Exception {
        String stat = Files.readString(Path.of("/proc", process, "stat"));
        // User and system time are the fields 14 and 15; the second, in brackets, can have spaces.
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        return (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) * MICROSECONDS_PER_TICK;
    }

    public static void main(String[] arguments) throws Exception {
        String namesrv = arguments[0], topic = arguments[1];
        int backlog = Integer.parseInt(arguments[2]), rate = Integer.parseInt(arguments[3]);
        int paced = rate * Integer.parseInt(arguments[4]);
        DefaultMQProducer producer = new DefaultMQProducer("bench-consume-producer");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(30_000);
        producer.setDefaultTopicQueueNums(8);
        producer.start();
        for (int sent = 0; sent < backlog; sent += BATCH) {
            List<Message> batch = new ArrayList<>(BATCH);
            for (int i = 0; i < BATCH; i++) {
                batch.add(new Message(topic, "Tag", ByteBuffer.allocate(100).array()));
            }
            producer.send(batch);
        }
        long[] taken = new long[paced];
        AtomicInteger drained = new AtomicInteger(), timed = new AtomicInteger();
        long[] ends = new long[2];
        CountDownLatch isDrained = new CountDownLatch(1), isDone = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("bench-consume-" + topic);
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.nanoTime();
            messages.forEach(message -> {
                long sentAt = ByteBuffer.wrap(message.getBody()).getLong();
                if (sentAt == 0) {
                    int count = drained.incrementAndGet();
                    if (count == 1) {
                        ends[0] = now;
                    }
                    if (count == backlog) {
                        ends[1] = now;
                        isDrained.countDown();
                    }
                } else {
                    int index = timed.getAndIncrement();
                    taken[index] = now - sentAt;
                    if (index == paced - 1) {
                        isDone.countDown();
                    }
                }
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        double cpuBefore = cpu(arguments[5]);
        consumer.start();
        isDrained.await();
        double cpuTaken = cpu(arguments[5]) - cpuBefore;
        long begin = System.nanoTime();
        for (int i = 0; i < paced; i++) {
            ByteBuffer body = ByteBuffer.allocate(100);
            producer.send(new Message(topic, "Tag", body.putLong(System.nanoTime()).array()));
            long ahead = begin + (i + 1) * 1_000_000_000L / rate - System.nanoTime();
            if (ahead > 0) {
                LockSupport.parkNanos(ahead);
            }
        }
        isDone.await();
        long[] counted = Arrays.copyOfRange(taken, Math.min(rate, paced / 2), paced);
        Arrays.sort(counted);
        System.out.printf("consume %.0f %.2f %.0f %.0f%n", backlog / ((ends[1] - ends[0]) / 1e9),
            cpuTaken / backlog, counted[counted.length / 2] / 1e3, counted[counted.length * 99 / 100] / 1e3);
        System.exit(0);
    }
}
