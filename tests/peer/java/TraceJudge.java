import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.TreeSet;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.trace.TraceTransferBean;
import org.apache.rocketmq.client.trace.TraceType;
import org.apache.rocketmq.common.message.MessageType;

/** Prints what the encoder of traces makes of fixed contexts, and what the decoder reads of it. */
public class TraceJudge {
    public static void main(String[] args) {
        for (TraceType type : new TraceType[] {
            TraceType.Pub, TraceType.SubBefore, TraceType.SubAfter, TraceType.EndTransaction }) {
            for (String keys : new String[] {"k1 k2", "", null}) {
                show(type, keys);
            }
        }
    }

    private static void show(TraceType type, String keys) {
        TraceBean bean = new TraceBean();
        bean.setTopic("Topic");
        bean.setMsgId("AC1100010000000000000000000000A1");
        bean.setOffsetMsgId("7F00000100002A9F0000000000000007");
        bean.setTags(keys == null ? null : "TagA");
        bean.setKeys(keys);
        bean.setStoreHost("10.0.0.1:10911");
        bean.setClientHost("10.0.0.9");
        bean.setBodyLength(5);
        bean.setRetryTimes(2);
        bean.setMsgType(type == TraceType.EndTransaction ? MessageType.Trans_msg_Commit
            : MessageType.Normal_Msg);
        bean.setTransactionId("AC1100010000000000000000000000A1");
        bean.setTransactionState(LocalTransactionState.ROLLBACK_MESSAGE);
        bean.setFromTransactionCheck(true);
        TraceContext context = new TraceContext();
        context.setTraceType(type);
        context.setTimeStamp(1700000000000L);
        context.setRegionId("DefaultRegion");
        context.setGroupName("group");
        context.setCostTime(7);
        context.setSuccess(true);
        context.setRequestId("AC1100010000000000000000000000B2");
        context.setContextCode(4);
        context.setAccessChannel(AccessChannel.LOCAL);
        context.setTraceBeans(new ArrayList<>(Collections.singletonList(bean)));
        TraceTransferBean made = TraceDataEncoder.encoderFromContextBean(context);
        List<String> read = new ArrayList<>();
        try {
            for (TraceContext each : TraceDataEncoder.decoderFromTraceDataString(made.getTransData())) {
                read.add(each.getTraceType() + "/" + each.getTraceBeans().get(0).getMsgId());
            }
        } catch (RuntimeException error) {
            read.add(error.getClass().getSimpleName());
        }
        System.out.println(type + "\t" + (keys == null ? "null" : "'" + keys + "'") + "\t"
            + made.getTransData().replace((char) 1, '|').replace((char) 2, '#') + "\t"
            + new TreeSet<>(made.getTransKey()) + "\t" + read);
    }
}
