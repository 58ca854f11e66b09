import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;

/** Sends to each topic as a user, and consumes the first: name server, key, secret, group, topics. */
public final class AclClient {
    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("producers", hook(arguments));
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(60000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        for (int number = 4; number < arguments.length; number++) {
            try {
                producer.send(new Message(arguments[number], "body".getBytes()), 20000);
                System.out.println("> sent " + arguments[number]);
            } catch (MQBrokerException refused) {
                System.out.println("> refused " + arguments[number] + " " + refused.getResponseCode());
            } catch (MQClientException refused) {
                // Of a code after which another broker is tried.
                System.out.println("> refused " + arguments[number] + " " + refused.getResponseCode());
            }
        }
        producer.shutdown();
        CountDownLatch consumed = new CountDownLatch(1);
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(arguments[3], hook(arguments), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[4], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            consumed.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("> consumed " + consumed.await(90, TimeUnit.SECONDS));
        consumer.shutdown();
        System.exit(0);
    }

    private static RPCHook hook(String[] arguments) {
        return new AclClientRPCHook(new SessionCredentials(arguments[1], arguments[2]));
    }
}
