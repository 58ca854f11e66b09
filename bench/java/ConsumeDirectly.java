import java.util.Arrays;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** A message handed to a push consumer again and again; prints the median and the 99th percentile in microseconds. */
public class ConsumeDirectly {
    private static final String GROUP = "bench-directly";

    public static void main(String[] arguments) throws Exception {
        String namesrv = arguments[0], topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        DefaultMQProducer producer = new DefaultMQProducer("bench-directly-producer");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        SendResult sent = producer.send(new Message(topic, "x".getBytes()));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(GROUP);
        consumer.setNamesrvAddr(namesrv);
        consumer.subscribe(topic, "nothing-has-this-tag");
        consumer.registerMessageListener(
            (MessageListenerConcurrently) (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        consumer.start();
        DefaultMQAdminExt admin = new DefaultMQAdminExt(30_000L);
        admin.setNamesrvAddr(namesrv);
        admin.start();
        String client = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
        long[] taken = new long[count];
        for (int i = -count / 2; i < count; i++) {
            long begun = System.nanoTime();
            String result = String.valueOf(
                admin.consumeMessageDirectly(GROUP, client, topic, sent.getOffsetMsgId()).getConsumeResult());
            if (i >= 0) {
                taken[i] = System.nanoTime() - begun;
            }
            if (!result.equals("CR_SUCCESS")) {
                throw new IllegalStateException(result);
            }
        }
        Arrays.sort(taken);
        System.out.println("directly " + taken[count / 2] / 1000.0 + " " + taken[count * 99 / 100] / 1000.0);
        System.exit(0);
    }
}
