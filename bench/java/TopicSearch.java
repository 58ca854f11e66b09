import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Searches a topic by time with the calls that RocketMQ's own client has for it, as a page of a dashboard has to:
 * where the times begin and end in each queue, and pulls until the page is full, of whichever queue comes first.
 *
 * Reads lines "TOPIC BEGIN_MS END_MS COUNT"; prints the messages found and the microseconds of each.
 */
public class TopicSearch {
    public static void main(String[] arguments) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("bench-topic-search");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.start();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            long begun = System.nanoTime();
            int found = search(consumer, words[0], Long.parseLong(words[1]), Long.parseLong(words[2]),
                Integer.parseInt(words[3])).size();
            System.out.println(found + " " + (System.nanoTime() - begun) / 1_000);
        }
        consumer.shutdown();
    }

    private static List<MessageExt> search(
        DefaultMQPullConsumer consumer, String topic, long begin, long end, int count) throws Exception {
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchSubscribeMessageQueues(topic));
        List<long[]> parts = new ArrayList<>();
        for (MessageQueue queue : queues) {
            parts.add(new long[] {consumer.searchOffset(queue, begin), consumer.searchOffset(queue, end)});
        }
        List<MessageExt> page = new ArrayList<>();
        for (int number = 0; number < queues.size() && page.size() < count; number++) {
            long offset = parts.get(number)[0], stop = parts.get(number)[1];
            while (offset < stop && page.size() < count) {
                int most = (int) Math.min(count - page.size(), stop - offset);
                PullResult pulled = consumer.pull(queues.get(number), "*", offset, most);
                if (pulled.getPullStatus() != PullStatus.FOUND) {
                    break;
                }
                page.addAll(pulled.getMsgFoundList());
                offset = pulled.getNextBeginOffset();
            }
        }
        return page;
    }
}
