import java.io.File;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Has RocketMQ's own store (5.x) write records of every kind that it knows: short and long topics
 * (V1, V2), IPv4 and IPv6 hosts, each compression, batch members. Argument 1: a directory, argument
 * 2: enabledAppendPropCRC. Prints a line for each record: its bytes and what MessageDecoder reads
 * in them, tab separated; "batch" and the bytes of a batch body first.
 */
public final class JavaRecords {
    private static final String LONG_TOPIC = "%RETRY%" + "g".repeat(200);
    private static DefaultMessageStore store;

    public static void main(String[] arguments) {
        int code = 0;
        try {
            run(arguments);
        } catch (Exception | Error failure) {
            failure.printStackTrace(System.out);
            code = 1;
        }
        System.exit(code);  // the store's threads would keep the machine running
    }

    private static void run(String[] arguments) throws Exception {
        File root = new File(arguments[0]);
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root.getPath());
        config.setStorePathCommitLog(root.getPath() + "/commitlog");
        config.setMappedFileSizeCommitLog(1 << 20);
        config.setMappedFileSizeConsumeQueue(20000);
        config.setMaxHashSlotNum(50);
        config.setMaxIndexNum(1000);
        config.setEnabledAppendPropCRC(Boolean.parseBoolean(arguments[1]));
        config.setHaListenPort(0);
        config.setTimerWheelEnable(false);
        store = new DefaultMessageStore(config, new BrokerStatsManager("c", false),
            (topic, queue, offset, tags, time, bits, properties) -> { },
            new BrokerConfig(), new ConcurrentHashMap<>());
        store.load();
        store.start();
        try {
            write();
        } finally {
            store.shutdown();
        }
        print(new File(root, "commitlog/00000000000000000000"));
    }

    private static void write() throws Exception {
        InetSocketAddress v4 = host("10.1.2.3", 40000);
        InetSocketAddress v6 = host("2001:db8::ff00:42:8329", 65535);
        byte[] text = "the body 消息 ".repeat(8).getBytes(StandardCharsets.UTF_8);
        put(message("T", "x".getBytes(), v4, v4));
        put(message("T", "x".getBytes(), v6, v4));
        put(message("T", "x".getBytes(), v4, v6));
        put(message("T", "x".getBytes(), v6, v6));
        put(message("t".repeat(127), text, v4, v4));
        put(message(LONG_TOPIC, text, v4, v4));
        put(message(LONG_TOPIC, text, v6, v6));
        for (CompressionType kind : CompressionType.values()) {
            byte[] packed = CompressorFactory.getCompressor(kind).compress(text, 5);
            MessageExtBrokerInner one = message("Packed", packed, v4, v4);
            one.setSysFlag(1 | kind.getCompressionFlag());
            put(one);
        }
        byte[] packed = CompressorFactory.getCompressor(CompressionType.ZLIB).compress(text, 5);
        MessageExtBrokerInner legacy = message("Packed", packed, v4, v4);
        legacy.setSysFlag(1);
        put(legacy);
        MessageExtBrokerInner commit = message("T", new byte[] {0, 1, 2, (byte) 255}, v4, v4);
        commit.setSysFlag(8 | 2);
        commit.setPreparedTransactionOffset(0x123456789AL);
        commit.setReconsumeTimes(3);
        commit.setFlag(-7);
        put(commit);
        MessageExtBrokerInner bare = message("T", "no properties".getBytes(), v4, v4);
        bare.setPropertiesString(null);
        put(bare);
        MessageExtBrokerInner open = message("T", "no last separator".getBytes(), v4, v4);
        open.setPropertiesString("a\u0001b\u0002TAGS\u0001t");
        put(open);
        putBatch(v4);
    }

    private static InetSocketAddress host(String address, int port) throws Exception {
        return new InetSocketAddress(InetAddress.getByName(address), port);
    }

    private static MessageExtBrokerInner message(
            String topic, byte[] body, InetSocketAddress born, InetSocketAddress stored) {
        MessageExtBrokerInner one = new MessageExtBrokerInner();
        one.setTopic(topic);
        one.setBody(body);
        one.setQueueId(3);
        one.setBornTimestamp(1_700_000_000_123L);
        one.setBornHost(born);
        one.setStoreHost(stored);
        MessageAccessor.putProperty(one, MessageConst.PROPERTY_KEYS, "k1 订单 \uD83D\uDE80");
        MessageAccessor.putProperty(one, MessageConst.PROPERTY_TAGS, "支付");
        MessageAccessor.putProperty(one, "UNIQ_KEY", "0A0102030010000000010000000C0001");
        MessageAccessor.putProperty(one, "uid", "17");
        one.setPropertiesString(MessageDecoder.messageProperties2String(one.getProperties()));
        return one;
    }

    private static void put(MessageExtBrokerInner one) {
        if (!store.putMessage(one).isOk()) {
            throw new IllegalStateException("not stored: " + one);
        }
    }

    private static void putBatch(InetSocketAddress address) {
        List<Message> members = new ArrayList<>();
        for (int index = 0; index < 3; index++) {
            Message member = new Message("Batch", "tag" + index, "key" + index, new byte[index]);
            member.setFlag(index - 1);
            members.add(member);
        }
        byte[] body = MessageDecoder.encodeMessages(members);
        System.out.println("batch\t" + hex(body));
        MessageExtBatch batch = new MessageExtBatch();
        batch.setTopic("Batch");
        batch.setBody(body);
        batch.setQueueId(1);
        batch.setBornTimestamp(1_700_000_000_123L);
        batch.setBornHost(address);
        batch.setStoreHost(address);
        if (!store.putMessages(batch).isOk()) {
            throw new IllegalStateException("batch not stored");
        }
    }

    private static void print(File segment) throws Exception {
        byte[] log = Files.readAllBytes(segment.toPath());
        int start = 0;
        while (true) {
            int size = ByteBuffer.wrap(log).getInt(start);
            if (size == 0) {
                return;
            }
            byte[] record = Arrays.copyOfRange(log, start, start + size);
            System.out.println("record\t" + hex(record) + "\t" + fields(record));
            start += size;
        }
    }

    private static String fields(byte[] record) {
        MessageExt read = MessageDecoder.decode(ByteBuffer.wrap(record), true, true);
        StringJoiner line = new StringJoiner("\t");
        line.add(read.getTopic());
        for (long number : new long[] {
                read.getBodyCRC(), read.getQueueId(), read.getFlag(), read.getQueueOffset(),
                read.getCommitLogOffset(), read.getSysFlag(), read.getBornTimestamp(),
                read.getStoreTimestamp(), read.getReconsumeTimes(),
                read.getPreparedTransactionOffset(), read.getStoreSize()}) {
            line.add(Long.toString(number));
        }
        line.add(text((InetSocketAddress) read.getBornHost()));
        line.add(text((InetSocketAddress) read.getStoreHost()));
        line.add(read.getMsgId());
        line.add(read.getBody() == null ? "" : hex(read.getBody()));
        Map<String, String> properties = read.getProperties() == null ? Map.of() : read.getProperties();
        for (Map.Entry<String, String> property : properties.entrySet()) {
            line.add(hex((property.getKey() + "=" + property.getValue())
                .getBytes(StandardCharsets.UTF_8)));
        }
        return line.toString();
    }

    private static String text(InetSocketAddress host) {
        return host.getAddress().getHostAddress() + " " + host.getPort();
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte one : bytes) {
            text.append(String.format("%02x", one));
        }
        return text.toString();
    }
}
