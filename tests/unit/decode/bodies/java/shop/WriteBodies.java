package shop;

import com.alibaba.otter.canal.protocol.CanalEntry;
import com.alibaba.otter.canal.protocol.CanalPacket;
import com.caucho.hessian.io.Hessian2Output;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.dataformat.cbor.CBORFactory;
import java.io.*;
import java.math.*;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.*;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import java.util.zip.GZIPOutputStream;
import org.apache.avro.*;
import org.apache.avro.file.*;
import org.apache.avro.generic.*;
import org.apache.avro.io.*;
import org.apache.avro.message.BinaryMessageEncoder;
import org.apache.thrift.protocol.*;
import org.apache.thrift.transport.TMemoryBuffer;
import org.msgpack.core.*;

/** Writes bodies with the libraries that producers use, a file each, into a directory. */
public class WriteBodies {
    static Path directory;

    static void save(String name, byte[] body) throws IOException {
        Files.write(directory.resolve(name), body);
    }

    static byte[] java(Object value) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ObjectOutputStream out = new ObjectOutputStream(bytes)) { out.writeObject(value); }
        return bytes.toByteArray();
    }

    static byte[] hessian(Object value) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        Hessian2Output out = new Hessian2Output(bytes);
        out.writeObject(value);
        out.close();
        return bytes.toByteArray();
    }

    static Map<String, Object> classes() throws Exception {
        Map<String, Object> all = new LinkedHashMap<>();
        all.put("list", new ArrayList<>(List.of(1, "two", 3.5)));
        all.put("linked", new LinkedList<>(List.of("x", "y")));
        all.put("deque", new ArrayDeque<>(List.of("x", "y")));
        all.put("set", new HashSet<>(List.of("only")));
        all.put("tree set", new TreeSet<>(List.of("a", "b")));
        all.put("as list", Arrays.asList("p", "q"));
        all.put("list of", List.of(1, 2, 3));
        all.put("map of", Map.of("k", "v"));
        all.put("tree map", new TreeMap<>(Map.of("k", 1L)));
        Hashtable<String, String> table = new Hashtable<>();
        table.put("k", "v");
        all.put("table", table);
        ConcurrentHashMap<String, String> concurrent = new ConcurrentHashMap<>();
        concurrent.put("k", "v");
        all.put("concurrent", concurrent);
        all.put("big", new BigInteger("-123456789012345678901234567890"));
        all.put("decimal", new BigDecimal("-0.00120"));
        all.put("uuid", UUID.fromString("123e4567-e89b-12d3-a456-426614174000"));
        all.put("date", new Date(1_763_600_000_123L));
        all.put("timestamp", new java.sql.Timestamp(1_763_600_000_123L));
        all.put("instant", Instant.ofEpochSecond(1_763_600_000L, 123_456_000));
        all.put("day", LocalDate.of(2026, 11, 20));
        all.put("time", LocalTime.of(10, 31));
        all.put("moment", LocalDateTime.of(2026, 11, 20, 10, 31, 2, 114_000_000));
        all.put("class", String.class);
        all.put("character", '\u4e2d');
        all.put("nul", "a\u0000b");
        all.put("long text", "x".repeat(70_000));
        return all;
    }

    static byte[] thrift(boolean compact, boolean message) throws Exception {
        TMemoryBuffer buffer = new TMemoryBuffer(64);
        TProtocol out = compact ? new TCompactProtocol(buffer) : new TBinaryProtocol(buffer);
        if (message) out.writeMessageBegin(new TMessage("pay", TMessageType.CALL, 7));
        out.writeStructBegin(new TStruct("Order"));
        out.writeFieldBegin(new TField("id", TType.STRING, (short) 1));
        out.writeString("ORDER-20261120-0042");
        out.writeFieldEnd();
        out.writeFieldBegin(new TField("gift", TType.BOOL, (short) 2));
        out.writeBool(true);
        out.writeFieldEnd();
        out.writeFieldBegin(new TField("number", TType.I32, (short) 3));
        out.writeI32(-123_456);
        out.writeFieldEnd();
        out.writeFieldBegin(new TField("total", TType.DOUBLE, (short) 40));
        out.writeDouble(12.25);
        out.writeFieldEnd();
        out.writeFieldBegin(new TField("items", TType.LIST, (short) 41));
        out.writeListBegin(new TList(TType.I64, 2));
        out.writeI64(1L << 40);
        out.writeI64(-1);
        out.writeListEnd();
        out.writeFieldEnd();
        out.writeFieldBegin(new TField("attributes", TType.MAP, (short) 42));
        out.writeMapBegin(new TMap(TType.STRING, TType.BYTE, 1));
        out.writeString("channel");
        out.writeByte((byte) -3);
        out.writeMapEnd();
        out.writeFieldEnd();
        out.writeFieldBegin(new TField("flags", TType.LIST, (short) 43));
        out.writeListBegin(new TList(TType.BOOL, 2));
        out.writeBool(true);
        out.writeBool(false);
        out.writeListEnd();
        out.writeFieldEnd();
        out.writeFieldStop();
        out.writeStructEnd();
        if (message) out.writeMessageEnd();
        return Arrays.copyOf(buffer.getArray(), buffer.length());
    }

    static Map<String, Object> plain() {
        Map<String, Object> order = new LinkedHashMap<>();
        order.put("id", "ORDER-20261120-0042");
        order.put("buyer", "王小明 😀");
        order.put("number", -123_456);
        order.put("large", 9_007_199_254_740_993L);
        order.put("total", 12.25);
        order.put("gift", true);
        order.put("note", null);
        order.put("token", new byte[] {0, 1, -1});
        order.put("items", List.of(1, 2, 3));
        return order;
    }

    static byte[] messagePack() throws IOException {
        MessageBufferPacker out = MessagePack.newDefaultBufferPacker();
        out.packMapHeader(4).packString("id").packString("ORDER-20261120-0042");
        out.packString("number").packLong(9_007_199_254_740_993L);
        out.packString("items").packArrayHeader(3).packInt(1).packDouble(2.5).packNil();
        out.packString("at").packTimestamp(Instant.ofEpochMilli(1_763_600_000_123L));
        return out.toByteArray();
    }

    static byte[] canal() {
        CanalEntry.Column before = CanalEntry.Column.newBuilder().setIndex(0).setName("state")
            .setValue("NEW").setMysqlType("varchar(8)").build();
        CanalEntry.Column after = before.toBuilder().setValue("PAID").setUpdated(true).build();
        CanalEntry.RowChange change = CanalEntry.RowChange.newBuilder().setTableId(7)
            .setEventType(CanalEntry.EventType.UPDATE).addRowDatas(CanalEntry.RowData.newBuilder()
                .addBeforeColumns(before).addAfterColumns(after)).build();
        CanalEntry.Entry entry = CanalEntry.Entry.newBuilder()
            .setHeader(CanalEntry.Header.newBuilder().setLogfileName("mysql-bin.000042")
                .setLogfileOffset(1234).setSchemaName("shop").setTableName("orders")
                .setExecuteTime(1_763_600_000_000L).setEventType(CanalEntry.EventType.UPDATE))
            .setEntryType(CanalEntry.EntryType.ROWDATA).setStoreValue(change.toByteString()).build();
        CanalPacket.Messages messages = CanalPacket.Messages.newBuilder().setBatchId(11)
            .addMessages(entry.toByteString()).build();
        return CanalPacket.Packet.newBuilder().setType(CanalPacket.PacketType.MESSAGES)
            .setMagicNumber(17).setVersion(1).setBody(messages.toByteString()).build().toByteArray();
    }

    static void avro() throws Exception {
        Schema schema = new Schema.Parser().parse("{\"type\":\"record\",\"name\":\"Order\","
            + "\"namespace\":\"shop\",\"fields\":["
            + "{\"name\":\"id\",\"type\":\"string\"},"
            + "{\"name\":\"number\",\"type\":\"int\"},"
            + "{\"name\":\"note\",\"type\":[\"null\",\"string\"]},"
            + "{\"name\":\"state\",\"type\":{\"type\":\"enum\",\"name\":\"State\",\"symbols\":[\"NEW\",\"PAID\"]}},"
            + "{\"name\":\"items\",\"type\":{\"type\":\"array\",\"items\":\"long\"}},"
            + "{\"name\":\"tags\",\"type\":{\"type\":\"map\",\"values\":\"double\"}},"
            + "{\"name\":\"sum\",\"type\":{\"type\":\"fixed\",\"name\":\"Sum\",\"size\":2}},"
            + "{\"name\":\"amount\",\"type\":{\"type\":\"bytes\",\"logicalType\":\"decimal\",\"precision\":9,\"scale\":2}},"
            + "{\"name\":\"at\",\"type\":{\"type\":\"long\",\"logicalType\":\"timestamp-millis\"}},"
            + "{\"name\":\"day\",\"type\":{\"type\":\"int\",\"logicalType\":\"date\"}},"
            + "{\"name\":\"before\",\"type\":[\"null\",\"Order\"]}]}");
        GenericRecord inner = record(schema, null);
        GenericRecord order = record(schema, inner);
        for (String codec : new String[] {"null", "deflate"}) {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            try (DataFileWriter<GenericRecord> out = new DataFileWriter<>(new GenericDatumWriter<>(schema))) {
                out.setCodec(CodecFactory.fromString(codec));
                out.create(schema, bytes);
                out.append(order);
                out.append(inner);
            }
            save("container-" + codec + ".avro", bytes.toByteArray());
        }
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(bytes, null);
        new GenericDatumWriter<GenericRecord>(schema).write(order, encoder);
        encoder.flush();
        save("record.avro", bytes.toByteArray());
        save("order.avsc", schema.toString(true).getBytes(StandardCharsets.UTF_8));
        java.nio.ByteBuffer single = new BinaryMessageEncoder<GenericRecord>(GenericData.get(), schema).encode(order);
        byte[] body = new byte[single.remaining()];
        single.get(body);
        save("single-object.avro", body);
    }

    static GenericRecord record(Schema schema, GenericRecord before) {
        GenericRecord order = new GenericData.Record(schema);
        order.put("id", "ORDER-20261120-0042");
        order.put("number", -123_456);
        order.put("note", before == null ? null : "王小明");
        order.put("state", new GenericData.EnumSymbol(schema.getField("state").schema(), "PAID"));
        order.put("items", List.of(1L << 40, -1L));
        order.put("tags", Map.of("weight", 0.25));
        order.put("sum", new GenericData.Fixed(schema.getField("sum").schema(), new byte[] {1, 2}));
        order.put("amount", java.nio.ByteBuffer.wrap(new BigInteger("-1990").toByteArray()));
        order.put("at", 1_763_600_000_123L);
        order.put("day", 20_000);
        order.put("before", before);
        return order;
    }

    public static void main(String[] arguments) throws Exception {
        directory = Paths.get(arguments[0]);
        Files.createDirectories(directory);
        save("order.java-object", java(new Order()));
        save("classes.java-object", java(classes()));
        save("order.hessian", hessian(new Order()));
        Map<String, Object> map = plain();
        map.put("long text", "x".repeat(20_000));
        map.put("many bytes", new byte[20_000]);
        map.put("at", new Date(1_763_600_000_123L));
        map.put("minute", new Date(1_763_600_040_000L));
        save("map.hessian", hessian(map));
        save("order.thrift-binary", thrift(false, false));
        save("order.thrift-compact", thrift(true, false));
        save("message.thrift-binary", thrift(false, true));
        save("message.thrift-compact", thrift(true, true));
        save("order.messagepack", messagePack());
        save("order.cbor", new ObjectMapper(new CBORFactory()).writeValueAsBytes(plain()));
        save("update.canal", canal());
        save("file.descriptor-set", com.google.protobuf.DescriptorProtos.FileDescriptorSet.newBuilder()
            .addFile(CanalEntry.getDescriptor().toProto()).build().toByteArray());
        avro();
        String json = "{\"id\":\"ORDER-20261120-0042\",\"buyer\":\"王小明\",\"amount\":19.90}";
        save("json.gbk", json.getBytes(Charset.forName("GBK")));
        save("text.gbk", "订单已支付,等待发货。".getBytes(Charset.forName("GBK")));
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (OutputStream out = new GZIPOutputStream(bytes)) { out.write(json.getBytes(StandardCharsets.UTF_8)); }
        save("json.gzip", bytes.toByteArray());
    }
}
