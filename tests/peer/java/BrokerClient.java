import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Java clients on a broker.
 *
 * <p>{@code send NAMESRV TOPIC FILE}: sends in every way, looks each message up as soon as it is
 * acknowledged, then consumes all; FILE gets a line for each: kind, key, msgId, offsetMsgId.
 * {@code find NAMESRV TOPIC FILE}: looks up all that FILE names. Prints what is wrong, and
 * counts of what is right.
 */
public class BrokerClient {
    static final int EACH = 12;
    static final List<String> LINES = new ArrayList<>();
    static String topic;

    public static void main(String[] arguments) throws Exception {
        topic = arguments[2];
        DefaultMQProducer producer = new DefaultMQProducer("broker_client");
        producer.setNamesrvAddr(arguments[1]);
        producer.setSendMsgTimeout(60000);
        producer.start();
        Path file = Path.of(arguments[3]);
        if (arguments[0].equals("send")) {
            send(producer, arguments[1]);
            Files.write(file, LINES);
            consume(arguments[1]);
        } else {
            LINES.addAll(Files.readAllLines(file));
        }
        int found = 0;
        for (String line : LINES) {
            found += find(producer, line.split(" "));
        }
        System.out.println("found " + found + " of " + LINES.size());
        producer.shutdown();
        System.exit(0);
    }

    static byte[] bodyOf(String kind, String key) {
        StringBuilder text = new StringBuilder("body of " + key);
        while (kind.equals("compressed") && text.length() < 20000) {
            text.append(", ").append(key);
        }
        return text.toString().getBytes(StandardCharsets.UTF_8);
    }

    static Message message(String kind, int number) {
        String key = kind + "-" + number;
        return new Message(topic, "Tag" + number % 3, key + " common 键", bodyOf(kind, key));
    }

    static synchronized void note(String kind, int number, String msgId, String offsetMsgId) {
        LINES.add(kind + " " + kind + "-" + number + " " + msgId + " " + offsetMsgId);
    }

    static void send(DefaultMQProducer producer, String namesrv) throws Exception {
        for (String kind : new String[] {"sync", "compressed"}) {
            for (int number = 0; number < EACH; number++) {
                SendResult result = producer.send(message(kind, number));
                note(kind, number, result.getMsgId(), result.getOffsetMsgId());
                find(producer, LINES.get(LINES.size() - 1).split(" "));
            }
        }
        CountDownLatch latch = new CountDownLatch(EACH);
        for (int number = 0; number < EACH; number++) {
            int mine = number;
            producer.send(message("async", number), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    note("async", mine, result.getMsgId(), result.getOffsetMsgId());
                    latch.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    System.out.println("wrong: async " + error);
                    latch.countDown();
                }
            });
        }
        latch.await();
        for (int number = 0; number < EACH; number++) {
            Message message = message("oneway", number);
            producer.sendOneway(message);
            note("oneway", number, message.getProperty("UNIQ_KEY"), "-");
        }
        List<Message> batch = new ArrayList<>();
        for (int number = 0; number < EACH; number++) {
            batch.add(message("batch", number));
        }
        SendResult sent = producer.send(batch);
        String[] ids = sent.getMsgId().split(",");
        String[] offsetIds = sent.getOffsetMsgId().split(",");
        for (int number = 0; number < EACH; number++) {
            note("batch", number, ids[number], offsetIds[number]);
        }
        Message delayed = message("delayed", 0);
        delayed.setDelayTimeLevel(1);
        System.out.println("delayed " + producer.send(delayed).getSendStatus());
        note("delayed", 0, delayed.getProperty("UNIQ_KEY"), "-");
        sendInTransaction(namesrv);
    }

    static void sendInTransaction(String namesrv) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("broker_client_transaction");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(60000);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return (LocalTransactionState) argument;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        producer.start();
        for (int number = 0; number < 2; number++) {
            Message message = message("committed", number);
            producer.sendMessageInTransaction(message, LocalTransactionState.COMMIT_MESSAGE);
            note("committed", number, message.getProperty("UNIQ_KEY"), "-");
        }
        Message message = message("rolledback", 0);
        producer.sendMessageInTransaction(message, LocalTransactionState.ROLLBACK_MESSAGE);
        producer.shutdown();
    }

    static void consume(String namesrv) throws Exception {
        Set<String> wanted = new TreeSet<>();
        for (String line : LINES) {
            wanted.add(line.split(" ")[1]);
        }
        Set<String> received = new ConcurrentSkipListSet<>();
        Map<String, Integer> times = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("broker_client_consumers");
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // Without it, shutdown commits before the listener's last messages count as consumed.
        consumer.setAwaitTerminationMillisWhenShutdown(TimeUnit.SECONDS.toMillis(60));
        consumer.subscribe(topic, "Tag0 || Tag1 || Tag2");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String key = message.getKeys().split(" ")[0];
                received.add(key);
                times.merge(key, 1, Integer::sum);
                if (!Arrays.equals(message.getBody(), bodyOf(key.split("-")[0], key))) {
                    System.out.println("wrong: the body of " + key);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(300);
        while (!received.containsAll(wanted) && System.nanoTime() < deadline) {
            TimeUnit.MILLISECONDS.sleep(20);
        }
        consumer.shutdown();
        wanted.removeAll(received);
        System.out.println("consumed " + received.size() + ", not " + wanted);
        for (Map.Entry<String, Integer> entry : times.entrySet()) {
            if (entry.getValue() != 1) {
                System.out.println("wrong: " + entry + " times");
            }
        }
    }

    /** Looks one message up in all three ways; 1 if all find it, else 0. */
    static int find(DefaultMQProducer producer, String[] line) {
        String kind = line[0];
        String key = line[1];
        try {
            byte[] body = bodyOf(kind, key);
            for (String id : new String[] {line[2], line[3]}) {
                if (!id.equals("-")) {
                    MessageExt viewed = producer.viewMessage(topic, id);
                    if (!Arrays.equals(viewed.getBody(), body) || !viewed.getKeys().startsWith(key)) {
                        System.out.println("wrong: " + key + " by " + id + " gives " + viewed);
                        return 0;
                    }
                }
            }
            QueryResult result = producer.queryMessage(topic, key, 32, 0, Long.MAX_VALUE);
            if (result.getMessageList().size() == 1
                    && Arrays.equals(result.getMessageList().get(0).getBody(), body)) {
                return 1;
            }
            System.out.println("wrong: " + key + " by key gives " + result);
        } catch (Exception error) {
            System.out.println("wrong: " + key + " " + error);
        }
        return 0;
    }
}
