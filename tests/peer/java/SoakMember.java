import java.io.FileOutputStream;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A member of two groups, one concurrent and one orderly, and a producer, until it is killed or terminated. It appends a
 * line to a file for each message that it consumed, and for each that a broker acknowledged.
 */
public class SoakMember {
    private static final int FAILS_ONE_IN = 50;
    private static FileOutputStream file;

    public static void main(String[] arguments) throws Exception {
        String namesrv = arguments[0], name = arguments[3];
        file = new FileOutputStream(arguments[4], true);
        DefaultMQProducer producer = producer(namesrv, arguments[1], name);
        Random random = new Random(name.hashCode());
        DefaultMQPushConsumer concurrent = consumer(namesrv, "g_concurrent", arguments[1]);
        concurrent.setConsumeMessageBatchMaxSize(4);
        concurrent.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            if (random.nextInt(FAILS_ONE_IN) == 0) {
                context.setDelayLevelWhenNextConsume(1);
                throw new IllegalStateException("as it was told to");
            }
            consumed("concurrent", messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        DefaultMQPushConsumer orderly = consumer(namesrv, "g_orderly", arguments[2]);
        orderly.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            if (random.nextInt(FAILS_ONE_IN) == 0) {
                context.setSuspendCurrentQueueTimeMillis(10);
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            consumed("orderly", messages);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            concurrent.shutdown();
            orderly.shutdown();
        }));
        concurrent.start();
        orderly.start();
        write("ready\n");
        send(producer, arguments[1], name);
    }

    private static DefaultMQPushConsumer consumer(String namesrv, String group, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private static void consumed(String kind, List<MessageExt> messages) {
        StringBuilder lines = new StringBuilder();
        for (MessageExt each : messages) {
            lines.append(kind).append(' ').append(System.nanoTime()).append(' ').append(each.getQueueId()).append(' ')
                .append(each.getQueueOffset()).append(' ').append(new String(each.getBody())).append('\n');
        }
        write(lines.toString());
    }

    /** Returns once a first request was answered: on a busy machine loading its classes takes too long. */
    private static DefaultMQProducer producer(String namesrv, String topic, String name) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("p_" + name);
        producer.setNamesrvAddr(namesrv);
        producer.start();
        while (true) {
            try {
                producer.fetchPublishMessageQueues(topic);
                return producer;
            } catch (MQClientException error) {
                Thread.sleep(100);
            }
        }
    }

    private static void send(DefaultMQProducer producer, String topic, String name) throws Exception {
        AtomicLong number = new AtomicLong();
        while (true) {
            String body = name + "-" + number.getAndIncrement();
            try {
                if (producer.send(new Message(topic, body.getBytes())).getSendStatus() == SendStatus.SEND_OK) {
                    write("sent " + body + "\n");
                }
            } catch (Exception error) {
                // The broker is gone: the message may be stored, and is not acknowledged.
            }
            Thread.sleep(20);
        }
    }

    private static synchronized void write(String lines) {
        try {
            file.write(lines.getBytes());
        } catch (Exception error) {
            Runtime.getRuntime().halt(1);
        }
    }
}
