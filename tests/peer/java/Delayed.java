import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends messages that are delayed in each way that the client's version has, and prints how each was
 * received: how often, whether early, and with which properties.
 */
public class Delayed {
    private static final Map<String, Long> DUE = new ConcurrentHashMap<>();
    private static final Map<String, List<String>> RECEIVED = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        DefaultMQProducer producer = new DefaultMQProducer("delaying");
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(60000);
        producer.start();
        // The topic exists once this one is stored; it may be asked for again.
        for (int tries = 0; ; tries++) {
            try {
                producer.send(message(topic, "plain", 0), 10000);
                break;
            } catch (Exception error) {
                if (tries == 10) {
                    throw error;
                }
            }
        }
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("delayed_" + topic);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                received(message);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        for (int level = 1; level <= 2; level++) {
            Message message = message(topic, "level" + level, level == 1 ? 1000 : 5000);
            message.setDelayTimeLevel(level);
            send(producer, message);
        }
        if (args.length > 2) {
            timers(producer, topic);
        }
        Message last = message(topic, "last", 10000);
        last.setDelayTimeLevel(3);
        send(producer, last);
        // What is due last need not come last: each queue has its own pulls.
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(300);
        while (!RECEIVED.keySet().containsAll(DUE.keySet()) && System.nanoTime() < deadline) {
            TimeUnit.MILLISECONDS.sleep(20);
        }
        consumer.shutdown();
        producer.shutdown();
        for (Map.Entry<String, List<String>> each : new TreeMap<>(RECEIVED).entrySet()) {
            System.out.println("received: " + each.getKey() + " " + each.getValue());
        }
        System.out.println("ended: " + RECEIVED.keySet().containsAll(DUE.keySet()));
        System.exit(0);
    }

    private static void timers(DefaultMQProducer producer, String topic) throws Exception {
        set(producer, message(topic, "seconds", 3000), "setDelayTimeSec", 3);
        set(producer, message(topic, "milliseconds", 2500), "setDelayTimeMs", 2500);
        set(producer, message(topic, "moment", 4000), "setDeliverTimeMs", System.currentTimeMillis() + 4000);
        set(producer, message(topic, "past", 0), "setDeliverTimeMs", System.currentTimeMillis() - 4000);
        Message both = message(topic, "both", 1000);
        both.setDelayTimeLevel(1);
        set(producer, both, "setDelayTimeSec", 600);
        try {
            set(producer, message(topic, "far", 0), "setDelayTimeSec", 259201);
        } catch (Exception refused) {
            DUE.remove("far");
            System.out.println("refused: " + refused.getMessage().split("For more")[0].trim());
        }
    }

    /** Calls a setter that messages of 4.9 do not have. */
    private static void set(DefaultMQProducer producer, Message message, String setter, long value)
        throws Exception {
        Message.class.getMethod(setter, long.class).invoke(message, value);
        send(producer, message);
    }

    private static Message message(String topic, String key, long delay) {
        DUE.put(key, System.currentTimeMillis() + delay);
        return new Message(topic, "TagA", key, key.getBytes(StandardCharsets.UTF_8));
    }

    private static void send(DefaultMQProducer producer, Message message) throws Exception {
        SendResult result = producer.send(message, 10000);
        System.out.println("sent: " + message.getKeys() + " " + result.getSendStatus());
    }

    private static void received(MessageExt message) {
        boolean early = System.currentTimeMillis() < DUE.get(message.getKeys());
        TreeMap<String, String> properties = new TreeMap<>(message.getProperties());
        properties.put("UNIQ_KEY", "#");
        for (String name : new String[] {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "REAL_QID"}) {
            properties.remove(name);
        }
        properties.replaceAll((name, value) -> value.replaceAll("[0-9]{10,}", "#"));
        String line = (early ? "early" : "in time") + " " + properties;
        RECEIVED.merge(message.getKeys(), List.of(line), (before, more) -> {
            List<String> all = new ArrayList<>(before);
            all.addAll(more);
            return all;
        });
    }
}
