import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.store.OffsetSerializeWrapper;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/** What RocketMQ's own classes make of questions, one a line, that are read from a file. */
public class ConsumerJudge {
    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]), StandardCharsets.UTF_8)) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "allocate":
                    allocate(words);
                    break;
                case "offsets":
                    offsets(words);
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
    }

    /** allocate, strategy, queues (topic:broker:id, with commas), client ids (with commas). */
    private static void allocate(String[] words) {
        AllocateMessageQueueStrategy strategy = words[1].equals("circle")
            ? new AllocateMessageQueueAveragelyByCircle() : new AllocateMessageQueueAveragely();
        List<MessageQueue> queues = new ArrayList<>();
        for (String each : words[2].split(",")) {
            String[] parts = each.split(":");
            queues.add(new MessageQueue(text(parts[0]), text(parts[1]), Integer.parseInt(parts[2])));
        }
        List<String> ids = new ArrayList<>();
        for (String each : words[3].split(",")) {
            ids.add(text(each));
        }
        Collections.sort(queues);
        Collections.sort(ids);
        StringBuilder answer = new StringBuilder();
        for (String id : ids) {
            answer.append('\t').append(hex(id)).append('=');
            for (MessageQueue each : strategy.allocate("g", id, queues, ids)) {
                answer.append(hex(each.getTopic())).append(':').append(hex(each.getBrokerName()));
                answer.append(':').append(each.getQueueId()).append(',');
            }
        }
        System.out.println(String.join("\t", words) + answer);
    }

    /** offsets, the bytes of a file of a broadcasting consumer; read, and written again. */
    private static void offsets(String[] words) {
        OffsetSerializeWrapper read =
            RemotingSerializable.fromJson(text(words[1]), OffsetSerializeWrapper.class);
        System.out.println("offsets\t" + words[1] + "\t" + hex(read.toJson(true)));
    }

    private static String text(String hexadecimal) {
        byte[] bytes = new byte[hexadecimal.length() / 2];
        for (int index = 0; index < bytes.length; index++) {
            bytes[index] = (byte) Integer.parseInt(hexadecimal.substring(2 * index, 2 * index + 2), 16);
        }
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static String hex(String text) {
        StringBuilder made = new StringBuilder();
        for (byte each : text.getBytes(StandardCharsets.UTF_8)) {
            made.append(String.format("%02x", each));
        }
        return made.toString();
    }
}
