import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A Java producer of transactions: {@code Transactions NAMESRV TOPIC}. Prints what each local
 * transaction ended with, and what each check was about, until all that are checked have been. Each is checked
 * at least once: again if its answer comes after the broker's next look.
 */
public class Transactions {
    static final List<String> KEYS =
            Arrays.asList("commit", "rollback", "throw", "later", "never", "large");
    static final Map<String, CountDownLatch> CHECKED = Map.of(
            "throw", new CountDownLatch(1), "later", new CountDownLatch(1),
            "never", new CountDownLatch(1), "large", new CountDownLatch(1));
    static final Map<String, CompletableFuture<String>> ORIGINS = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("java_transactions");
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(60000);
        producer.setTransactionListener(new Listener());
        producer.start();
        for (String key : KEYS) {
            // A slow producer is asked about a message before its send returns.
            ORIGINS.put(key, new CompletableFuture<>());
            Message message = new Message(arguments[1], "T", key, body(key));
            TransactionSendResult result = producer.sendMessageInTransaction(message, key);
            ORIGINS.get(key).complete(result.getMsgId());
            System.out.println("sent: " + key + " " + result.getLocalTransactionState());
        }
        boolean all = true;
        for (CountDownLatch checked : CHECKED.values()) {
            all &= checked.await(300, TimeUnit.SECONDS);
        }
        System.out.println("all checked: " + all);
        // An end after a check is one-way: the next request is answered when it is done.
        producer.fetchPublishMessageQueues(arguments[1]);
        producer.shutdown();
    }

    static byte[] body(String key) {
        byte[] body = new byte[key.equals("large") ? 20000 : key.length()];
        Arrays.fill(body, (byte) 'x');
        return body;
    }

    static class Listener implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object key) {
            switch ((String) key) {
                case "commit":
                    return LocalTransactionState.COMMIT_MESSAGE;
                case "rollback":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                case "throw":
                    throw new IllegalStateException("as asked");
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String key = message.getKeys();
            int times = Integer.parseInt(message.getProperty("TRANSACTION_CHECK_TIMES"));
            if (!CHECKED.containsKey(key)) {
                // It is ended already: that request and this question met.
                return key.equals("commit")
                        ? LocalTransactionState.COMMIT_MESSAGE
                        : LocalTransactionState.ROLLBACK_MESSAGE;
            }
            if (key.equals("later") && times == 1) {
                return LocalTransactionState.UNKNOW;
            }
            System.out.println(
                    "checked: " + key + " " + times + " " + message.getTopic() + " "
                            + Arrays.equals(message.getBody(), body(key)) + " "
                            + message.getTransactionId().equals(ORIGINS.get(key).join()));
            CHECKED.get(key).countDown();
            return key.equals("never")
                    ? LocalTransactionState.ROLLBACK_MESSAGE
                    : LocalTransactionState.COMMIT_MESSAGE;
        }
    }
}
