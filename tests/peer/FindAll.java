import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Looks for messages, one a line of a file: key, unique key, queue id, queue offset. */
public class FindAll {
  public static void main(String[] arguments) throws Exception {
    String topic = arguments[1];
    DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("find_all");
    consumer.setNamesrvAddr(arguments[0]);
    consumer.start();
    int found = 0;
    String broker = "broker-a";
    for (String line : Files.readAllLines(Path.of(arguments[2]))) {
      String[] parts = line.split(" ");
      QueryResult byKey = consumer.queryMessage(topic, parts[0], 64, 0, Long.MAX_VALUE);
      MessageQueue queue = new MessageQueue(topic, broker, Integer.parseInt(parts[2]));
      PullResult pulled = consumer.pull(queue, "*", Long.parseLong(parts[3]), 1);
      MessageExt byQueue = pulled.getMsgFoundList().get(0);
      boolean same =
          // RocketMQ indexes the last record of a full index file once more after a crash.
          byKey.getMessageList().stream().allMatch(m -> m.getMsgId().equals(parts[1]))
              && !byKey.getMessageList().isEmpty()
              && byQueue.getMsgId().equals(parts[1])
              && byQueue.getQueueOffset() == Long.parseLong(parts[3]);
      if (same) {
        found++;
      } else {
        System.out.println("not found: " + line + " " + byKey + " " + pulled);
      }
    }
    System.out.println("found " + found);
    consumer.shutdown();
    System.exit(0);
  }
}
