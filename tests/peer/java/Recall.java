import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends messages with a delivery time, takes one back, and prints which were received; and what the
 * broker says to recalls that cannot be. For clients of 5.5 and newer.
 *
 * Arguments: the name server, and a topic that exists.
 */
public class Recall {
    static DefaultMQProducer producer;

    public static void main(String[] arguments) {
        try {
            run(arguments[0], arguments[1]);
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace(System.out);
            // Threads of the clients go on otherwise.
            System.exit(1);
        }
    }

    static void run(String namesrv, String topic) throws Exception {
        producer = new DefaultMQProducer("recalling");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(60_000);
        producer.start();
        Set<String> received = new TreeSet<>();
        CountDownLatch last = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("recalled_" + topic);
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                synchronized (received) {
                    received.add(body);
                }
                if (body.equals("last")) {
                    last.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        // They are far enough off for the recall to be in time on a busy machine, too.
        SendResult recalled = send(topic, "recalled", 20_000);
        send(topic, "kept", 20_000);
        send(topic, "last", 22_000);
        String handle = recalled.getRecallHandle();
        System.out.println("recalled: " + recall(topic, handle).equals(recalled.getMsgId()));
        String[] words = new String(Base64.getUrlDecoder().decode(handle), StandardCharsets.UTF_8).split(" ");
        System.out.println("other topic: " + recall(topic, handle(words, 1, "TBW102")));
        System.out.println("unknown topic: " + recall("NoSuchTopic", handle));
        System.out.println("past: " + recall(topic, handle(words, 3, "1")));
        System.out.println("far: " + recall(topic, handle(words, 3, "9999999999999")));
        System.out.println("no time: " + recall(topic, handle(words, 3, "soon")));
        System.out.println("unknown: " + recall(topic, handle(words, 4, "0".repeat(32))).equals("0".repeat(32)));
        consumer.start();
        last.await();
        System.out.println("received: " + received);
        consumer.shutdown();
        producer.shutdown();
    }

    static SendResult send(String topic, String body, long delayMs) throws Exception {
        Message message = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
        message.setDelayTimeMs(delayMs);
        // One queue, so that what is due last comes last.
        return producer.send(message, (queues, sent, argument) -> queues.get(0), null);
    }

    static String handle(String[] words, int at, String word) {
        String[] changed = words.clone();
        changed[at] = word;
        byte[] clear = String.join(" ", changed).getBytes(StandardCharsets.UTF_8);
        return Base64.getUrlEncoder().encodeToString(clear);
    }

    static String recall(String topic, String handle) throws Exception {
        try {
            return producer.recallMessage(topic, handle);
        } catch (MQBrokerException error) {
            return error.getResponseCode() + " " + error.getErrorMessage();
        } catch (Exception error) {
            return error.getClass().getSimpleName() + " " + error.getMessage().split("\n")[0];
        }
    }
}
