import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sends ten messages to each topic over a name server: address, topics. */
public class NameServerClient {
    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("name_server_client");
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(60000);
        producer.start();
        for (int index = 1; index < arguments.length; index++) {
            String topic = arguments[index];
            for (int number = 0; number < 10; number++) {
                Message message = new Message(topic, "TagA", "key-" + number, "body".getBytes());
                SendResult result = producer.send(message);
                System.out.println(result.getSendStatus());
            }
            List<MessageQueue> queues = producer.fetchPublishMessageQueues(topic);
            String brokerName = queues.get(0).getBrokerName();
            System.out.println(topic + ": " + queues.size() + " queues of " + brokerName);
        }
        producer.shutdown();
        System.exit(0);
    }
}
