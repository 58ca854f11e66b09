import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer asks with messages, and a consumer replies to them through the broker.
 *
 * Arguments: the name server, a topic, and one side if it is not to be both: "ask" or "reply".
 */
public class RequestReply {
    static Message question(String topic, String text) {
        return new Message(topic, "Ask", text.getBytes(StandardCharsets.UTF_8));
    }

    static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    public static void main(String[] arguments) {
        // A new topic's queues are found within a second or two.
        System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
        String side = arguments.length > 2 ? arguments[2] : "both";
        try {
            CountDownLatch replied = new CountDownLatch(2);
            if (!side.equals("ask")) {
                reply(arguments[0], arguments[1], replied);
            }
            if (!side.equals("reply")) {
                ask(arguments[0], arguments[1]);
            }
            if (!side.equals("ask")) {
                replied.await();
                lose();
            }
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace(System.out);
            // Threads of the clients go on otherwise.
            System.exit(1);
        }
    }

    static DefaultMQProducer replier;

    static void reply(String namesrv, String topic, CountDownLatch replied) throws Exception {
        replier = new DefaultMQProducer("repliers");
        replier.setNamesrvAddr(namesrv);
        replier.setInstanceName("replier");
        replier.setPollNameServerInterval(1000);
        replier.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("answering");
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("consumer");
        consumer.setPollNameServerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    String answer = "answer to " + text(message);
                    Message reply = MessageUtil.createReplyMessage(message, answer.getBytes(StandardCharsets.UTF_8));
                    System.out.println("replied: " + replier.send(reply, 10_000).getSendStatus());
                } catch (Exception error) {
                    System.out.println("replied: " + error);
                }
                replied.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    static void ask(String namesrv, String topic) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("requesters");
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("requester");
        producer.start();
        System.out.println("answer: " + text(producer.request(question(topic, "one"), 120_000)));
        System.out.println("answer: " + text(producer.request(question(topic, "two"), 120_000)));
    }

    static void lose() {
        Message reply = new Message("DefaultCluster_REPLY_TOPIC", "late".getBytes(StandardCharsets.UTF_8));
        reply.getProperties().put("MSG_TYPE", "reply");
        reply.getProperties().put("CORRELATION_ID", "none");
        reply.getProperties().put("REPLY_TO_CLIENT", "nobody");
        try {
            System.out.println("lost: " + replier.send(reply));
        } catch (Exception error) {
            System.out.println("lost: " + error.getCause().getMessage().split("\n")[0]);
        }
    }
}
