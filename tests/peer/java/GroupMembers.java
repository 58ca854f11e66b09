import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Consumers of RocketMQ's, each described by an argument: kind, group, instance, topic, expression and what its
 * listener does, separated by commas. Prints "ready", then a line for each message, until its standard input ends.
 */
public class GroupMembers {
    public static void main(String[] arguments) throws Exception {
        warmUp(arguments[0], arguments[1].split(",")[3]);
        List<Runnable> ends = new ArrayList<>();
        for (int i = 1; i < arguments.length; i++) {
            ends.add(start(arguments[0], arguments[i].split(",")));
        }
        say("ready");
        while (System.in.read() >= 0) {
        }
        for (Runnable end : ends) {
            end.run();
        }
        System.exit(0);
    }

    /** Load the classes that a first request needs: on a busy machine it would be too late. */
    private static void warmUp(String namesrv, String topic) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("warm-up");
        producer.setNamesrvAddr(namesrv);
        producer.start();
        for (int left = 20;; left--) {
            try {
                producer.fetchPublishMessageQueues(topic);
                producer.shutdown();
                return;
            } catch (MQClientException error) {
                if (left == 0) {
                    throw error;
                }
            }
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static Runnable start(String namesrv, String[] words) throws Exception {
        String kind = words[0], group = words[1], instance = words[2], topic = words[3], does = words[5];
        if (kind.equals("pull")) {
            DefaultLitePullConsumer pull = new DefaultLitePullConsumer(group);
            pull.setNamesrvAddr(namesrv);
            pull.setInstanceName(instance);
            pull.setClientIP("127.0.0.1");
            pull.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            pull.subscribe(topic, words[4]);
            pull.start();
            return pull::shutdown;
        }
        DefaultMQPushConsumer push = new DefaultMQPushConsumer(
            group, null, new AllocateMessageQueueAveragely(), does.equals("traced"), null);
        push.setNamesrvAddr(namesrv);
        push.setInstanceName(instance);
        push.setClientIP("127.0.0.1");
        push.setConsumeThreadMin(2);
        push.setConsumeThreadMax(2);
        push.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        push.subscribe(topic, words[4]);
        if (kind.equals("broadcast")) {
            broadcast(push);
        }
        if (kind.equals("orderly")) {
            push.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                seen(group, instance, messages);
                act(does);
                return does.equals("later") ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                    : does.equals("null") ? null : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            push.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                seen(group, instance, messages);
                act(does);
                return does.equals("later") ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : does.equals("null") ? null : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        push.start();
        return push::shutdown;
    }

    /** The class of the argument is elsewhere in each release. */
    private static void broadcast(DefaultMQPushConsumer push) throws Exception {
        for (java.lang.reflect.Method each : DefaultMQPushConsumer.class.getMethods()) {
            if (each.getName().equals("setMessageModel")) {
                each.invoke(push, each.getParameterTypes()[0].getField("BROADCASTING").get(null));
            }
        }
    }

    private static void seen(String group, String instance, List<MessageExt> messages) {
        for (MessageExt each : messages) {
            say("consumed " + group + " " + instance + " " + each.getTopic() + " " + each.getQueueId() + " "
                + each.getQueueOffset() + " " + each.getMsgId());
        }
    }

    private static void act(String does) {
        if (does.equals("throw")) {
            throw new IllegalStateException("the listener refuses");
        }
        if (does.equals("hang")) {
            try {
                new CountDownLatch(1).await();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
