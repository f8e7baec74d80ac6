import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/** JSON lines through the serializer that every RocketMQ version carries. */
final class Json {
    private static final BufferedReader IN =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
    private static final PrintStream OUT =
        new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private Json() {
    }

    static String readLine() throws IOException {
        return IN.readLine();
    }

    static synchronized void print(Map<String, Object> value) {
        OUT.println(RemotingSerializable.toJson(value, false));
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> parse(String line) {
        return RemotingSerializable.fromJson(line, LinkedHashMap.class);
    }

    /** A map of alternating keys and values; null values are left out. */
    static Map<String, Object> object(Object... pairs) {
        Map<String, Object> result = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            if (pairs[i + 1] != null) {
                result.put((String) pairs[i], pairs[i + 1]);
            }
        }
        return result;
    }

    static String text(Map<String, Object> value, String key) {
        return (String) value.get(key);
    }

    static int number(Map<String, Object> value, String key) {
        return ((Number) value.get(key)).intValue();
    }

    @SuppressWarnings("unchecked")
    static Map<String, String> strings(Object value) {
        return (Map<String, String>) value;
    }

    @SuppressWarnings("unchecked")
    static List<Map<String, Object>> objects(Object value) {
        return (List<Map<String, Object>>) value;
    }
}
