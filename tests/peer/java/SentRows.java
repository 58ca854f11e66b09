import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Consumes as many messages of a topic as are expected, and prints what each of them has. */
public class SentRows {
    private static final Map<String, String> RECEIVED = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        CountDownLatch missing = new CountDownLatch(Integer.parseInt(args[2]));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("sent_rows");
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                String place = message.getQueueId() + " " + message.getQueueOffset();
                if (RECEIVED.put(place, line(message)) == null) {
                    missing.countDown();
                }
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        boolean all = missing.await(300, TimeUnit.SECONDS);
        consumer.shutdown();
        RECEIVED.forEach((place, line) -> System.out.println("row: " + place + " " + line));
        System.out.println("all: " + all);
        System.exit(0);
    }

    private static String line(MessageExt message) {
        String due = message.getUserProperty("due");
        boolean early = due != null && System.currentTimeMillis() < Long.parseLong(due);
        return String.join(
            " ",
            List.of(
                new String(message.getBody(), StandardCharsets.UTF_8),
                message.getMsgId(),
                String.valueOf(message.getTags()),
                String.valueOf(message.getUserProperty("n")),
                String.valueOf(message.getFlag()),
                early ? "early" : "in-time",
                String.valueOf(message.getKeys())));
    }
}
