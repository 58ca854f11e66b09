import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;

/** Answers what the real classes of access control say: a line for each line of a file. */
public final class AccessJudge {
    public static void main(String[] arguments) throws Exception {
        StringBuilder answers = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[0]), StandardCharsets.US_ASCII)) {
            String[] words = line.split("\t", -1);
            String answer;
            try {
                answer = judge(words);
            } catch (Throwable error) {
                answer = "error";
            }
            answers.append("> ").append(answer).append('\n');
        }
        System.out.print(answers);
        System.exit(0);
    }

    private static String judge(String[] words) throws Exception {
        switch (words[0]) {
            case "pattern":
                return String.valueOf(matches(words[1], words[2]));
            case "source":
                return String.valueOf(isInRange(words[1], words[2]));
            case "needs":
                return needs();
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    /** Of RocketMQ 4: whether a pattern of plain_acl.yml matches an address. */
    private static boolean matches(String pattern, String address) throws Exception {
        Object factory = made("org.apache.rocketmq.acl.plain.RemoteAddressStrategyFactory");
        Object strategy = factory.getClass().getMethod("getRemoteAddressStrategy", String.class).invoke(factory, pattern);
        Object resource = made("org.apache.rocketmq.acl.plain.PlainAccessResource");
        resource.getClass().getMethod("setWhiteRemoteAddress", String.class).invoke(resource, address);
        Method match = Class.forName("org.apache.rocketmq.acl.plain.RemoteAddressStrategy").getMethods()[0];
        return (boolean) match.invoke(strategy, resource);
    }

    /** Of RocketMQ 5: whether a source of a policy has an address; an error if it is refused. */
    private static boolean isInRange(String source, String address) throws Exception {
        Class<?> utils = Class.forName("org.apache.rocketmq.common.utils.IPAddressUtils");
        if (!(boolean) utils.getMethod("isValidIPOrCidr", String.class).invoke(null, source)) {
            throw new IllegalArgumentException(source);
        }
        return (boolean) utils.getMethod("isIPInRange", String.class, String.class).invoke(null, address, source);
    }

    /** Of RocketMQ 5: what its annotations say of each code. */
    private static String needs() throws Exception {
        Class<?> registryClass = Class.forName("org.apache.rocketmq.remoting.protocol.RequestHeaderRegistry");
        Object registry = registryClass.getMethod("getInstance").invoke(null);
        registryClass.getMethod("initialize").invoke(registry);
        Method headerOf = registryClass.getMethod("getRequestHeader", int.class);
        StringBuilder said = new StringBuilder();
        for (Field code : Class.forName("org.apache.rocketmq.remoting.protocol.RequestCode").getFields()) {
            Class<?> header = (Class<?>) headerOf.invoke(registry, code.getInt(null));
            if (header == null) {
                continue;
            }
            Object action = annotation(header.getAnnotations(), "RocketMQAction");
            said.append(code.getInt(null)).append(' ').append(value(action, "resource")).append(' ');
            said.append(Arrays.toString((Object[]) value(action, "action")).replaceAll("[\\[\\] ]", ""));
            for (Field field : header.getDeclaredFields()) {
                Object resource = annotation(field.getAnnotations(), "RocketMQResource");
                if (resource != null) {
                    said.append(' ').append(field.getName()).append('=').append(value(resource, "value"));
                }
            }
            said.append(';');
        }
        return said.toString();
    }

    private static Object annotation(java.lang.annotation.Annotation[] all, String name) {
        for (java.lang.annotation.Annotation each : all) {
            if (each.annotationType().getSimpleName().equals(name)) {
                return each;
            }
        }
        return null;
    }

    private static Object value(Object annotation, String name) throws Exception {
        Method method = ((java.lang.annotation.Annotation) annotation).annotationType().getMethod(name);
        return method.invoke(annotation);
    }

    private static Object made(String name) throws Exception {
        Constructor<?> constructor = Class.forName(name).getConstructor();
        return constructor.newInstance();
    }
}
