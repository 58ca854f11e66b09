import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's own clients: consume and look up what ours sent, and send what ours look up.
 *
 * Arguments: name server, topic to consume, how many messages it has, a file with one look-up in
 * each line (view|key, topic, text), topic to send to. Prints one line of tab-separated fields each.
 */
public class ClientJudge {
  static final int ADMIN_MESSAGES = 64;

  static String hex(byte[] bytes) {
    return UtilAll.bytes2string(bytes).toLowerCase();
  }

  static String hex(String text) {
    return text == null ? "null" : hex(text.getBytes(StandardCharsets.UTF_8));
  }

  static void show(String kind, String asked, MessageExt message) {
    StringBuilder properties = new StringBuilder();
    new TreeMap<>(message.getProperties())
        .forEach((name, value) -> properties.append(name).append('\1').append(value).append('\2'));
    System.out.println(String.join("\t", "judge", kind, asked, message.getMsgId(),
        ((MessageClientExt) message).getOffsetMsgId(), message.getTopic(), hex(message.getTags()),
        hex(message.getKeys()), "" + message.getFlag(), "" + message.getQueueId(),
        "" + message.getQueueOffset(), "" + message.getCommitLogOffset(),
        "b" + hex(message.getBody()), hex(properties.toString())));
  }

  static void consume(String[] arguments) throws Exception {
    int wanted = Integer.parseInt(arguments[2]);
    DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("judge_consumer");
    consumer.setNamesrvAddr(arguments[0]);
    consumer.setAutoCommit(false);
    consumer.start();
    Collection<MessageQueue> queues = consumer.fetchMessageQueues(arguments[1]);
    consumer.assign(queues);
    for (MessageQueue queue : queues) {
      // The pulls of `assign` connect at the same time, which can close a connection in use.
      for (int triesLeft = 9; ; triesLeft--) {
        try {
          consumer.seekToBegin(queue);
          break;
        } catch (MQClientException error) {
          if (triesLeft == 0) {
            throw error;
          }
        }
      }
    }
    long deadline = System.currentTimeMillis() + 300_000;
    // What was pulled before the seek comes again after it.
    Set<String> seen = new HashSet<>();
    while (seen.size() < wanted && System.currentTimeMillis() < deadline) {
      for (MessageExt message : consumer.poll(500)) {
        if (seen.add(message.getQueueId() + ":" + message.getQueueOffset())) {
          show("consumed", "-", message);
        }
      }
    }
    consumer.shutdown();
  }

  static void sent(Message message, SendResult result) {
    System.out.println(String.join("\t", "judge", "sent", result.toString(), result.getMsgId(),
        result.getOffsetMsgId(), result.getMessageQueue().getBrokerName(),
        "" + result.getMessageQueue().getQueueId(), "" + result.getQueueOffset(),
        message == null ? "-" : hex(MessageDecoder.messageProperties2String(message.getProperties())),
        result.getRegionId(), "" + result.isTraceOn()));
  }

  public static void main(String[] arguments) {
    try {
      judge(arguments);
      System.exit(0);
    } catch (Throwable failure) {
      failure.printStackTrace();
      System.exit(1);
    }
  }

  static void judge(String[] arguments) throws Exception {
    System.out.println("judge\taddress\t" + hex(UtilAll.getIP()));
    consume(arguments);
    DefaultMQProducer producer = new DefaultMQProducer("judge_producer");
    producer.setNamesrvAddr(arguments[0]);
    producer.setSendMsgTimeout(60000);
    producer.start();
    for (String line : Files.readAllLines(Path.of(arguments[3]))) {
      String[] asked = line.split("\t");
      if (asked[0].equals("view")) {
        show("view", asked[2], producer.viewMessage(asked[1], asked[2]));
      } else {
        for (MessageExt found : producer
            .queryMessage(asked[1], asked[2], ADMIN_MESSAGES, 0, Long.MAX_VALUE).getMessageList()) {
          show("key", asked[2], found);
        }
      }
    }
    String topic = arguments[4];
    Message plain = new Message(topic, "TagJ", "java-1 java-2", "from Java, 来自".getBytes("UTF-8"));
    plain.putUserProperty("colour", "blue");
    plain.setFlag(7);
    sent(plain, producer.send(plain));
    Message large = new Message(topic, "TagJ", "java-large", new byte[10_000]);
    sent(null, producer.send(large));
    List<Message> batch = new ArrayList<>();
    for (int i = 0; i < 100; i++) {
      batch.add(new Message(topic, "TagB", "java-batch", ("member " + i).getBytes("UTF-8")));
    }
    sent(null, producer.send(batch));
    List<MessageQueue> queues = producer.fetchPublishMessageQueues(topic);
    queues.sort(null);
    for (String key : new String[] {"order-1", "order-2", "polygenelubricants", "订单"}) {
      int chosen = new SelectMessageQueueByHash().select(queues, null, key).getQueueId();
      System.out.println("judge\tshard\t" + hex(key) + "\t" + chosen);
    }
    producer.shutdown();
  }
}
