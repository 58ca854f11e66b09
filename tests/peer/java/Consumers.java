import java.io.File;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Consumers of all kinds on a broker.
 *
 * <p>{@code NAMESRV}: runs every scenario, each with a topic and a group of its own, and prints
 * {@code NAME: } and what was seen, or {@code wrong} and why. {@code NAMESRV member TOPIC GROUP}: a
 * member of a group that prints the key of each message, until it is killed.
 */
public class Consumers {
    static final long PATIENCE_S = 300;
    static String namesrv;
    static DefaultMQProducer producer;
    static DefaultMQAdminExt admin;

    public static void main(String[] arguments) throws Exception {
        namesrv = arguments[0];
        if (arguments.length > 2) {
            member(arguments[2], arguments[3]);
            return;
        }
        producer = new DefaultMQProducer("consumers_producer");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(60000);
        producer.start();
        admin = new DefaultMQAdminExt(10000);
        admin.setNamesrvAddr(namesrv);
        admin.start();
        // Side by side: most of each is waiting for what clients and broker do by time.
        List<Thread> running = new ArrayList<>();
        running.add(run("concurrent", Consumers::concurrent));
        running.add(run("tags", Consumers::tags));
        running.add(run("sql92", Consumers::sql92));
        running.add(run("orderly", Consumers::orderly));
        running.add(run("broadcast", Consumers::broadcast));
        running.add(run("retries", Consumers::retries));
        running.add(run("subscribe", Consumers::subscribe));
        running.add(run("assign", Consumers::assign));
        running.add(run("directly", Consumers::directly));
        running.add(run("members", Consumers::members));
        for (Thread scenario : running) {
            scenario.join();
        }
        admin.shutdown();
        producer.shutdown();
        System.exit(0);
    }

    static Thread run(String name, Callable<String> scenario) {
        Thread thread = new Thread(() -> {
            String seen;
            try {
                producer.createTopic("TBW102", "topic_" + name, 4);
                seen = scenario.call();
            } catch (Throwable error) {
                error.printStackTrace();
                seen = "wrong: " + error;
            }
            System.out.println(name + ": " + seen);
        }, name);
        thread.start();
        return thread;
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    static void until(String what, Condition condition) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (!condition.holds()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("not in time: " + what);
            }
            TimeUnit.MILLISECONDS.sleep(10);
        }
    }

    static DefaultMQPushConsumer push(String name, String instance) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("group_" + name);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(name + instance);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return consumer;
    }

    static MessageListenerConcurrently noting(Collection<String> keys) {
        return (messages, context) -> {
            for (MessageExt message : messages) {
                keys.add(message.getKeys());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    static Message message(String name, int number, String tag) {
        Message message = new Message("topic_" + name, tag, "k" + number, ("body " + number).getBytes());
        message.putUserProperty("number", String.valueOf(number));
        return message;
    }

    static Set<String> send(String name, int first, int count) throws Exception {
        Set<String> keys = new TreeSet<>();
        for (int number = first; number < first + count; number++) {
            producer.send(message(name, number, "Tag" + number % 3));
            keys.add("k" + number);
        }
        return keys;
    }

    static String times(List<String> received, Set<String> sent) {
        Set<String> missing = new TreeSet<>(sent);
        missing.removeAll(received);
        Set<String> more = new TreeSet<>(received);
        more.removeAll(sent);
        return received.size() + " received, missing " + missing + ", others " + more;
    }

    static String concurrent() throws Exception {
        List<String> received = new CopyOnWriteArrayList<>();
        Set<String> sent = send("concurrent", 0, 30);
        DefaultMQPushConsumer consumer = push("concurrent", "");
        consumer.subscribe("topic_concurrent", "*");
        consumer.registerMessageListener(noting(received));
        consumer.start();
        until("backlog", () -> received.size() >= 30);
        // From now on every pull is held when a message arrives.
        for (int number = 30; number < 50; number++) {
            sent.addAll(send("concurrent", number, 1));
            int count = number + 1;
            until("message " + number, () -> received.size() >= count);
        }
        consumer.shutdown();
        return times(received, sent);
    }

    static String tags() throws Exception {
        List<String> received = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = push("tags", "");
        consumer.subscribe("topic_tags", "Tag1 || Tag2");
        consumer.registerMessageListener(noting(received));
        consumer.start();
        Set<String> sent = send("tags", 0, 30);
        sent.removeIf(key -> Integer.parseInt(key.substring(1)) % 3 == 0);
        until("all", () -> received.size() >= 20);
        // Tag0 instead, while pulls are held.
        consumer.subscribe("topic_tags", "Tag0");
        until("the subscription", () -> admin.examineConsumerConnectionInfo("group_tags")
            .getSubscriptionTable().get("topic_tags").getSubString().equals("Tag0"));
        sent.addAll(send("tags", 30, 1));
        until("other", () -> received.size() >= 21);
        consumer.shutdown();
        return times(received, sent);
    }

    static String sql92() throws Exception {
        List<String> received = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = push("sql92", "");
        consumer.subscribe("topic_sql92",
            MessageSelector.bySql("number BETWEEN 5 AND 9 OR number > 20 AND TAGS = 'Tag1'"));
        consumer.registerMessageListener(noting(received));
        consumer.start();
        Set<String> sent = send("sql92", 0, 30);
        sent.removeIf(key -> {
            int number = Integer.parseInt(key.substring(1));
            return !(number >= 5 && number <= 9 || number > 20 && number % 3 == 1);
        });
        until("all", () -> received.size() >= sent.size());
        consumer.shutdown();
        DefaultMQPushConsumer wrong = push("sql92_wrong", "");
        wrong.subscribe("topic_sql92", MessageSelector.bySql("number >"));
        wrong.registerMessageListener(noting(received));
        String refused = "not refused";
        try {
            wrong.start();
        } catch (Exception error) {
            refused = "refused";
        }
        wrong.shutdown();
        return times(received, sent) + ", " + refused;
    }

    static String orderly() throws Exception {
        // A member that loses a queue may not have committed what it consumed last: that comes to the other again.
        Map<Integer, Set<Integer>> byQueue = new ConcurrentHashMap<>();
        AtomicInteger count = new AtomicInteger();
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (String instance : new String[] {"one", "two"}) {
            DefaultMQPushConsumer consumer = push("orderly", instance);
            consumer.subscribe("topic_orderly", "*");
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                for (MessageExt message : messages) {
                    Set<Integer> seen = byQueue.computeIfAbsent(message.getQueueId(),
                        queue -> Collections.synchronizedSet(new LinkedHashSet<>()));
                    if (seen.add(Integer.valueOf(message.getKeys().substring(1)))) {
                        count.incrementAndGet();
                    }
                }
                return ConsumeOrderlyStatus.SUCCESS;
            });
            consumer.start();
            consumers.add(consumer);
        }
        for (int number = 0; number < 100; number++) {
            int queue = number % 4;
            producer.send(message("orderly", number, "T"), (queues, message, argument) -> queues.get(queue), null);
        }
        until("all", () -> count.get() >= 100);
        for (DefaultMQPushConsumer consumer : consumers) {
            consumer.shutdown();
        }
        for (Set<Integer> numbers : byQueue.values()) {
            if (!new ArrayList<>(new TreeSet<>(numbers)).equals(new ArrayList<>(numbers))) {
                return "wrong: out of order: " + numbers;
            }
        }
        return count + " in order in " + byQueue.size() + " queues";
    }

    static String broadcast() throws Exception {
        List<List<String>> all = new ArrayList<>();
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (String instance : new String[] {"one", "two"}) {
            List<String> received = new CopyOnWriteArrayList<>();
            DefaultMQPushConsumer consumer = push("broadcast", instance);
            consumer.setMessageModel(
                org.apache.rocketmq.common.protocol.heartbeat.MessageModel.BROADCASTING);
            consumer.subscribe("topic_broadcast", "*");
            consumer.registerMessageListener(noting(received));
            consumer.start();
            all.add(received);
            consumers.add(consumer);
        }
        Set<String> sent = send("broadcast", 0, 20);
        until("all", () -> all.get(0).size() >= 20 && all.get(1).size() >= 20);
        String seen = times(all.get(0), sent) + "; " + times(all.get(1), sent);
        for (DefaultMQPushConsumer consumer : consumers) {
            consumer.shutdown();
        }
        return seen;
    }

    static String retries() throws Exception {
        List<Integer> times = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = push("retries", "");
        consumer.setMaxReconsumeTimes(2);
        consumer.subscribe("topic_retries", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            times.add(messages.get(0).getReconsumeTimes());
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        send("retries", 7, 1);
        until("retries", () -> times.size() == 3);
        until("the topic of dead letters", () -> {
            try {
                return !admin.examineTopicRouteInfo("%DLQ%group_retries").getQueueDatas().isEmpty();
            } catch (Exception error) {
                return false;
            }
        });
        List<String> dead = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer other = push("retries_dead", "");
        other.subscribe("%DLQ%group_retries", "*");
        other.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                dead.add(message.getKeys() + " after " + message.getReconsumeTimes() + " of "
                    + message.getProperty("RETRY_TOPIC"));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        other.start();
        until("dead letter", () -> {
            if (times.size() > 3) {
                throw new IllegalStateException("consumed too often: " + times);
            }
            return dead.size() == 1;
        });
        consumer.shutdown();
        other.shutdown();
        return "consumed " + times + ", dead " + dead;
    }

    static String subscribe() throws Exception {
        Set<String> sent = send("subscribe", 0, 20);
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("group_subscribe");
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("subscribe");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("topic_subscribe", "Tag1");
        consumer.start();
        sent.removeIf(key -> Integer.parseInt(key.substring(1)) % 3 != 1);
        List<String> received = new ArrayList<>();
        until("all", () -> {
            for (MessageExt message : consumer.poll(500)) {
                received.add(message.getKeys());
            }
            return received.size() >= sent.size();
        });
        consumer.shutdown();
        return times(received, sent);
    }

    static String assign() throws Exception {
        for (int number = 0; number < 10; number++) {
            producer.send(message("assign", number, "T"), (queues, message, argument) -> queues.get(0), null);
        }
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("group_assign");
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("assign");
        consumer.setAutoCommit(false);
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchMessageQueues("topic_assign"));
        Collections.sort(queues);
        consumer.assign(queues.subList(0, 1));
        // The client may still give what it was pulling while it was told to seek, so that it reads to the end first.
        int first = readToTheEnd(consumer).size();
        consumer.seek(queues.get(0), 7);
        List<String> sought = readToTheEnd(consumer);
        consumer.seekToBegin(queues.get(0));
        int again = readToTheEnd(consumer).size();
        consumer.commitSync();
        until("commit", () -> consumer.committed(queues.get(0)) == 10);
        consumer.shutdown();
        return "assigned " + first + ", sought " + sought + ", from the begin " + again;
    }

    static List<String> readToTheEnd(DefaultLitePullConsumer consumer) throws Exception {
        List<String> received = new ArrayList<>();
        until("the end", () -> {
            for (MessageExt message : consumer.poll(500)) {
                received.add(message.getKeys());
            }
            return received.contains("k9");
        });
        return received;
    }

    static String directly() throws Exception {
        List<String> received = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = push("directly", "");
        consumer.subscribe("topic_directly", "*");
        consumer.registerMessageListener(noting(received));
        consumer.start();
        String id = producer.send(message("directly", 1, "T")).getOffsetMsgId();
        until("message", () -> received.size() == 1);
        String client = admin.examineConsumerConnectionInfo("group_directly")
            .getConnectionSet().iterator().next().getClientId();
        String result = admin.consumeMessageDirectly("group_directly", client, "topic_directly", id)
            .getConsumeResult().name();
        Object type = admin.getConsumerRunningInfo("group_directly", client, false)
            .getProperties().get("PROP_CONSUME_TYPE");
        String absent = "none";
        try {
            admin.getConsumerRunningInfo("group_directly", "absent", false);
        } catch (Exception error) {
            absent = error.getMessage().contains("The Consumer <group_directly> <absent> not online")
                ? "not online" : String.valueOf(error);
        }
        consumer.shutdown();
        return result + " " + received + " " + type + " " + absent;
    }

    static void member(String topic, String group) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("killed");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                System.out.println("key " + message.getKeys());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        TimeUnit.MINUTES.sleep(5);
    }

    static String members() throws Exception {
        List<Collection<String>> by = new ArrayList<>();
        for (int member = 0; member < 3; member++) {
            by.add(new ConcurrentSkipListSet<>());
        }
        Set<String> sent = new ConcurrentSkipListSet<>();
        boolean[] isOver = {false};
        Thread sender = new Thread(() -> {
            try {
                for (int number = 0; !isOver[0]; number++) {
                    sent.addAll(send("members", number, 1));
                    TimeUnit.MILLISECONDS.sleep(5);
                }
            } catch (Exception error) {
                System.out.println("members: wrong: " + error);
            }
        });
        sender.start();
        DefaultMQPushConsumer first = push("members", "first");
        first.subscribe("topic_members", "*");
        first.registerMessageListener(noting(by.get(0)));
        first.start();
        until("first", () -> by.get(0).size() > 10);
        DefaultMQPushConsumer second = push("members", "second");
        second.subscribe("topic_members", "*");
        second.registerMessageListener(noting(by.get(1)));
        second.start();
        until("second", () -> by.get(1).size() > 10);
        List<String> command = new ArrayList<>();
        command.add(ProcessHandle.current().info().command().get());
        command.addAll(ManagementFactory.getRuntimeMXBean().getInputArguments());
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), "Consumers", namesrv,
            "member", "topic_members", "group_members"));
        // A file keeps what was printed until the kill; a pipe is closed with lines in it.
        File printed = File.createTempFile("third", ".txt");
        printed.deleteOnExit();
        Process killed = new ProcessBuilder(command).redirectErrorStream(true)
            .redirectOutput(printed).start();
        Callable<Collection<String>> third = () -> {
            Set<String> keys = new TreeSet<>();
            for (String line : Files.readString(printed.toPath()).split("(?<=\n)")) {
                if (line.startsWith("key ") && line.endsWith("\n")) {
                    keys.add(line.substring(4).trim());
                }
            }
            return keys;
        };
        try {
            until("third", () -> third.call().size() > 10);
        } catch (IllegalStateException error) {
            System.out.println("the third: " + Files.readString(printed.toPath()));
            throw error;
        }
        killed.destroyForcibly().waitFor();
        by.set(2, third.call());
        until("its end", () -> admin.examineConsumerConnectionInfo("group_members")
            .getConnectionSet().size() == 2);
        int before = by.get(1).size();
        until("second goes on", () -> by.get(1).size() > before + 10);
        second.shutdown();
        isOver[0] = true;
        sender.join();
        Callable<Set<String>> missing = () -> {
            Set<String> left = new TreeSet<>(sent);
            by.forEach(left::removeAll);
            return left;
        };
        try {
            until("all", () -> missing.call().isEmpty());
        } catch (IllegalStateException error) {
            System.out.println("members: missing " + missing.call() + ", the third had " + by.get(2));
            throw error;
        }
        first.shutdown();
        return "every message at least once";
    }
}
