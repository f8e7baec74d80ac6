import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.trace.TraceTransferBean;

/**
 * Writes and reads traces with RocketMQ's TraceDataEncoder: one JSON object a line in and out.
 *
 * <p>In: {context: {property: value, ...}, beans: [{property: value, ...}, ...]} to be written,
 * or {data: base64} to be read. Out: {data: base64, keys: [...]}, {contexts: [{...}, ...]} or
 * {error}. Properties are those of TraceContext and TraceBean; what a version lacks is an error.
 */
public final class Traces {
    private static final List<String> CONTEXT = Arrays.asList(
        "traceType", "timeStamp", "regionId", "groupName", "costTime", "success", "requestId",
        "contextCode");
    private static final List<String> BEAN = Arrays.asList(
        "topic", "msgId", "offsetMsgId", "tags", "keys", "storeHost", "retryTimes", "bodyLength",
        "msgType", "transactionState", "transactionId", "fromTransactionCheck");

    public static void main(String[] args) throws Exception {
        String line;
        while ((line = Json.readLine()) != null) {
            Map<String, Object> spec = Json.parse(line);
            try {
                Json.print(spec.containsKey("data") ? read(spec) : write(spec));
            } catch (Exception error) {
                Json.print(Json.object("error", String.valueOf(error)));
            }
        }
        System.exit(0);
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> write(Map<String, Object> spec) throws Exception {
        TraceContext context = new TraceContext();
        set(context, (Map<String, Object>) spec.get("context"));
        List<TraceBean> beans = new ArrayList<>();
        for (Map<String, Object> each : Json.objects(spec.get("beans"))) {
            TraceBean bean = new TraceBean();
            set(bean, each);
            beans.add(bean);
        }
        context.setTraceBeans(beans);
        TraceTransferBean data = TraceDataEncoder.encoderFromContextBean(context);
        byte[] bytes = data.getTransData().getBytes(StandardCharsets.UTF_8);
        return Json.object(
            "data", Base64.getEncoder().encodeToString(bytes),
            "keys", new ArrayList<>(new TreeSet<>(data.getTransKey())));
    }

    private static Map<String, Object> read(Map<String, Object> spec) throws Exception {
        byte[] bytes = Base64.getDecoder().decode(Json.text(spec, "data"));
        List<Map<String, Object>> contexts = new ArrayList<>();
        for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(
                new String(bytes, StandardCharsets.UTF_8))) {
            Map<String, Object> values = get(context, CONTEXT);
            values.putAll(get(context.getTraceBeans().get(0), BEAN));
            contexts.add(values);
        }
        return Json.object("contexts", contexts);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void set(Object target, Map<String, Object> values) throws Exception {
        for (Map.Entry<String, Object> each : values.entrySet()) {
            Method setter = null;
            String name = "set" + capital(each.getKey());
            for (Method method : target.getClass().getMethods()) {
                if (method.getName().equals(name)) {
                    setter = method;
                }
            }
            if (setter == null) {
                throw new NoSuchMethodException(name);
            }
            Object value = each.getValue();
            Class type = setter.getParameterTypes()[0];
            if (type.isEnum()) {
                value = Enum.valueOf(type, (String) value);
            } else if (type == int.class) {
                value = ((Number) value).intValue();
            } else if (type == long.class) {
                value = ((Number) value).longValue();
            }
            setter.invoke(target, value);
        }
    }

    private static Map<String, Object> get(Object source, List<String> names) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        for (Method method : source.getClass().getMethods()) {
            for (String name : names) {
                String getter = capital(name);
                if (method.getName().equals("get" + getter)
                        || method.getName().equals("is" + getter)) {
                    Object value = method.invoke(source);
                    found.put(name, value instanceof Enum ? ((Enum<?>) value).name() : value);
                }
            }
        }
        return found;
    }

    private static String capital(String name) {
        return Character.toUpperCase(name.charAt(0)) + name.substring(1);
    }
}
