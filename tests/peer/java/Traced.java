import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Sends a message with trace, and consumes it with trace at the second attempt; prints its id. */
public class Traced {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        DefaultMQProducer producer = new DefaultMQProducer("java_producer", null, true, null);
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(60000);
        producer.start();
        SendResult sent = producer.send(new Message(topic, "TagA", "order-1", "x".getBytes()));
        AtomicInteger attempts = new AtomicInteger();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("java_group", null,
            new AllocateMessageQueueAveragely(), true, null);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            if (attempts.getAndIncrement() == 0) {
                context.setDelayLevelWhenNextConsume(1);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("sent " + sent.getMsgId());
        System.out.flush();
        // Until the test has seen enough.
        while (System.in.read() >= 0) {
        }
        consumer.shutdown();
        producer.shutdown();
        System.exit(0);
    }
}
