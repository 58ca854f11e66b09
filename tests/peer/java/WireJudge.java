import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.AclUtils;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/**
 * The real RocketMQ as a judge of frames, headers, bodies and signatures. Each line of the file
 * that is its argument is a question of words parted by tabs (byte strings and texts in
 * hexadecimal, names and values of fields in turn); each line of its answer belongs to one.
 */
public final class WireJudge {
    private static final String[] PACKAGES = {
        "org.apache.rocketmq.common.protocol.header.", "org.apache.rocketmq.common.protocol.header.namesrv.",
        "org.apache.rocketmq.common.protocol.body.", "org.apache.rocketmq.common.protocol.heartbeat.",
        "org.apache.rocketmq.common.protocol.route.", "org.apache.rocketmq.common.protocol.",
        "org.apache.rocketmq.common.admin.", "org.apache.rocketmq.common.message.", "org.apache.rocketmq.common.",
        "org.apache.rocketmq.remoting.protocol.header.", "org.apache.rocketmq.remoting.protocol.header.namesrv.",
        "org.apache.rocketmq.remoting.protocol.body.", "org.apache.rocketmq.remoting.protocol.heartbeat.",
        "org.apache.rocketmq.remoting.protocol.route.", "org.apache.rocketmq.remoting.protocol.admin.",
        "org.apache.rocketmq.common.subscription.", "org.apache.rocketmq.remoting.protocol.subscription.",
        "org.apache.rocketmq.remoting.protocol.",
    };

    public static void main(String[] arguments) throws Exception {
        StringBuilder answers = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String answer;
            try {
                answer = judge(line.split("\t", -1));
            } catch (Throwable error) {
                answer = "error\t" + hex(String.valueOf(error).getBytes(StandardCharsets.UTF_8));
            }
            answers.append("> ").append(answer).append('\n');
        }
        System.out.print(answers);
        System.exit(0);
    }

    private static String judge(String[] words) throws Exception {
        switch (words[0]) {
            case "versions":
                return versions();
            case "codes":
                return codes(words[1]);
            case "fields":
                return fields(classOf(words[1]));
            case "encode":
                return encode(words);
            case "decode":
                return decode(words);
            case "body":
                return hex(RemotingSerializable.encode(RemotingSerializable.decode(bytes(words[2]), classOf(words[1]))));
            case "sign":
                return sign(words);
            case "verify":
                return verify(words);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static String versions() {
        StringBuilder names = new StringBuilder();
        for (MQVersion.Version version : MQVersion.Version.values()) {
            names.append(version.name()).append('\t');
        }
        return names.toString().trim();
    }

    private static String codes(String name) throws Exception {
        StringBuilder found = new StringBuilder();
        for (Field field : classOf(name).getFields()) {
            found.append(field.getName()).append('=').append(field.get(null)).append('\t');
        }
        return found.toString().trim();
    }

    /** name=type, with ! behind it if it must not be null. */
    private static String fields(Class<?> found) {
        StringBuilder text = new StringBuilder();
        for (Map.Entry<String, Field> field : fieldsOf(found).entrySet()) {
            boolean mandatory = false;
            for (var annotation : field.getValue().getAnnotations()) {
                mandatory |= annotation.annotationType().getSimpleName().equals("CFNotNull");
            }
            text.append(field.getKey()).append('=').append(field.getValue().getType().getSimpleName())
                .append(mandatory ? "!" : "").append('\t');
        }
        return text.toString().trim();
    }

    /** encode, JSON or ROCKETMQ, class or -, code, opaque, flag, remark or -, body, then fields. */
    private static String encode(String[] words) throws Exception {
        RemotingCommand command = RemotingCommand.createRequestCommand(Integer.parseInt(words[3]), null);
        command.setSerializeTypeCurrentRPC(SerializeType.valueOf(words[1]));
        command.setOpaque(Integer.parseInt(words[4]));
        command.setFlag(Integer.parseInt(words[5]));
        command.setRemark(words[6].equals("-") ? null : text(words[6]));
        command.setBody(words[7].isEmpty() ? null : bytes(words[7]));
        command.setLanguage(LanguageCode.JAVA);
        command.setVersion(407);
        if (!words[2].equals("-")) {
            CommandCustomHeader header = (CommandCustomHeader) classOf(words[2]).getDeclaredConstructor().newInstance();
            Map<String, Field> fields = fieldsOf(header.getClass());
            for (int at = 8; at + 1 < words.length; at += 2) {
                Field field = fields.get(words[at]);
                if (field == null) {
                    command.addExtField(words[at], text(words[at + 1]));
                } else {
                    field.set(header, valueOf(field.getType(), text(words[at + 1])));
                }
            }
            command.writeCustomHeader(header);
            command.makeCustomHeaderToNet();
        }
        ByteBuffer frame = command.encode();
        byte[] content = new byte[frame.remaining()];
        frame.get(content);
        return hex(content);
    }

    /** decode, class or -, frame: what it is, and the fields of its header. */
    private static String decode(String[] words) throws Exception {
        ByteBuffer frame = ByteBuffer.wrap(bytes(words[2]));
        frame.getInt();
        RemotingCommand command = RemotingCommand.decode(frame);
        StringBuilder text = new StringBuilder();
        text.append(command.getCode()).append('\t').append(command.getOpaque()).append('\t').append(command.getFlag())
            .append('\t').append(command.getVersion()).append('\t').append(command.getLanguage()).append('\t')
            .append(command.getRemark() == null ? "-" : hex(command.getRemark().getBytes(StandardCharsets.UTF_8)))
            .append('\t').append(command.getBody() == null ? "" : hex(command.getBody()));
        if (!words[1].equals("-")) {
            @SuppressWarnings("unchecked")
            Class<? extends CommandCustomHeader> found = (Class<? extends CommandCustomHeader>) classOf(words[1]);
            CommandCustomHeader header = command.decodeCommandCustomHeader(found);
            for (Map.Entry<String, Field> field : fieldsOf(found).entrySet()) {
                Object value = field.getValue().get(header);
                if (value != null) {
                    text.append('\t').append(field.getKey()).append('\t')
                        .append(hex(value.toString().getBytes(StandardCharsets.UTF_8)));
                }
            }
        }
        return text.toString();
    }

    /** sign, access key, secret key, frame: the signature that the real client's hook adds. */
    private static String sign(String[] words) throws Exception {
        ByteBuffer frame = ByteBuffer.wrap(bytes(words[3]));
        frame.getInt();
        RemotingCommand command = RemotingCommand.decode(frame);
        new AclClientRPCHook(new SessionCredentials(words[1], words[2])).doBeforeRequest("127.0.0.1:1", command);
        return command.getExtFields().get("Signature");
    }

    /** verify, secret key, frame: whether the real 4.9 broker takes its signature. */
    private static String verify(String[] words) throws Exception {
        ByteBuffer frame = ByteBuffer.wrap(bytes(words[2]));
        frame.getInt();
        RemotingCommand command = RemotingCommand.decode(frame);
        Class<?> found = Class.forName("org.apache.rocketmq.acl.plain.PlainAccessValidator");
        Object validator = found.getDeclaredConstructor().newInstance();
        Object resource = found.getMethod("parse", RemotingCommand.class, String.class)
            .invoke(validator, command, "127.0.0.1:1");
        byte[] content = (byte[]) resource.getClass().getMethod("getContent").invoke(resource);
        Object signature = resource.getClass().getMethod("getSignature").invoke(resource);
        return String.valueOf(AclUtils.calSignature(content, words[1]).equals(signature));
    }

    private static Map<String, Field> fieldsOf(Class<?> found) {
        Map<String, Field> fields = new TreeMap<>();
        for (Class<?> at = found; at != null && at != Object.class; at = at.getSuperclass()) {
            for (Field field : at.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers())) {
                    field.setAccessible(true);
                    fields.putIfAbsent(field.getName(), field);
                }
            }
        }
        return fields;
    }

    private static Object valueOf(Class<?> type, String value) throws Exception {
        switch (type.getSimpleName()) {
            case "String":
                return value;
            case "Integer": case "int":
                return Integer.valueOf(value);
            case "Long": case "long":
                return Long.valueOf(value);
            case "Boolean": case "boolean":
                return Boolean.valueOf(value);
            default:
                return type.getMethod("getType", String.class).invoke(null, value);
        }
    }

    private static Class<?> classOf(String name) throws ClassNotFoundException {
        for (String prefix : PACKAGES) {
            try {
                return Class.forName(prefix + name);
            } catch (ClassNotFoundException elsewhere) {
                // In one of the others.
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static String text(String hexadecimal) {
        return new String(bytes(hexadecimal), StandardCharsets.UTF_8);
    }

    private static byte[] bytes(String hexadecimal) {
        byte[] made = new byte[hexadecimal.length() / 2];
        for (int at = 0; at < made.length; at++) {
            made[at] = (byte) Integer.parseInt(hexadecimal.substring(2 * at, 2 * at + 2), 16);
        }
        return made;
    }

    private static String hex(byte[] content) {
        StringBuilder made = new StringBuilder();
        for (byte each : content) {
            made.append(String.format("%02x", each));
        }
        return made.toString();
    }
}
