import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * What RocketMQ makes of SQL92 expressions.
 *
 * <p>{@code FILE}: a line for each case: an expression, then names and values of properties, all in
 * hexadecimal UTF-8 and with tabs between them. Prints a line for each: {@code invalid},
 * {@code error}, {@code true}, {@code false} or {@code null}.
 */
public class Sql92Judge {
    public static void main(String[] arguments) throws Exception {
        StringBuilder printed = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split("\t", -1);
            Map<String, Object> properties = new HashMap<>();
            for (int place = 1; place + 1 < words.length; place += 2) {
                properties.put(text(words[place]), text(words[place + 1]));
            }
            printed.append(judge(text(words[0]), properties)).append('\n');
        }
        System.out.print(printed);
        System.exit(0);
    }

    static String judge(String sql, Map<String, Object> properties) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(sql);
        } catch (Throwable error) {
            return "invalid";
        }
        try {
            return String.valueOf(expression.evaluate(new EvaluationContext() {
                @Override
                public Object get(String name) {
                    return properties.get(name);
                }

                @Override
                public Map<String, Object> keyValues() {
                    return properties;
                }
            }));
        } catch (Throwable error) {
            return "error";
        }
    }

    static String text(String hexadecimal) {
        byte[] bytes = new byte[hexadecimal.length() / 2];
        for (int place = 0; place < bytes.length; place++) {
            bytes[place] = (byte) Integer.parseInt(hexadecimal.substring(2 * place, 2 * place + 2), 16);
        }
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
