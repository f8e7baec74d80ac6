import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends what it reads: one JSON object a line on standard input, one JSON line out for each.
 *
 * <p>In: {topic, bodyB64, tags?, keys?, properties?, brokerName+queueId?, delayLevel?,
 * waitStoreMsgOk?}, or {batch: [such, ...]} for one batch message. Out: {sendStatus, msgId,
 * offsetMsgId, brokerName, queueId, queueOffset} or {error}. Arguments: namesrv, the body size
 * from which bodies are compressed, and perhaps "trace" to write message traces.
 */
public final class Producer {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer =
            new DefaultMQProducer("rmqcli-tests-producer", args.length > 2, null);
        producer.setNamesrvAddr(args[0]);
        producer.setInstanceName("producer-" + ProcessHandle.current().pid());
        producer.setCompressMsgBodyOverHowmuch(Integer.parseInt(args[1]));
        producer.setSendMsgTimeout(15000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        try {
            String line;
            while ((line = Json.readLine()) != null) {
                Json.print(send(producer, Json.parse(line)));
            }
        } finally {
            if (args.length > 2) {
                // Before 4.9 a shutdown loses the traces that are not written yet.
                Thread.sleep(3000);
            }
            producer.shutdown();
        }
        System.exit(0);
    }

    /** Tries again while the route cannot be had in time: nothing was sent then. */
    private static Map<String, Object> send(DefaultMQProducer producer, Map<String, Object> spec) {
        for (int attempt = 0; ; attempt++) {
            try {
                return describe(dispatch(producer, spec));
            } catch (IllegalStateException error) {
                if (attempt == 5) {
                    return Json.object("error", String.valueOf(error));
                }
            } catch (Exception error) {
                return Json.object("error", String.valueOf(error));
            }
        }
    }

    private static SendResult dispatch(DefaultMQProducer producer, Map<String, Object> spec)
            throws Exception {
        List<Map<String, Object>> items = Json.objects(spec.get("batch"));
        if (items != null) {
            List<Message> messages = new ArrayList<>();
            for (Map<String, Object> item : items) {
                messages.add(message(item));
            }
            MessageQueue queue = queue(messages.get(0).getTopic(), spec);
            return queue == null ? producer.send(messages) : producer.send(messages, queue);
        }
        Message message = message(spec);
        MessageQueue queue = queue(message.getTopic(), spec);
        return queue == null ? producer.send(message) : producer.send(message, queue);
    }

    private static Message message(Map<String, Object> spec) {
        byte[] body = Base64.getDecoder().decode(Json.text(spec, "bodyB64"));
        Message message = new Message(Json.text(spec, "topic"), body);
        if (Json.text(spec, "tags") != null) {
            message.setTags(Json.text(spec, "tags"));
        }
        if (Json.text(spec, "keys") != null) {
            message.setKeys(Json.text(spec, "keys"));
        }
        if (spec.get("properties") != null) {
            Json.strings(spec.get("properties")).forEach(message::putUserProperty);
        }
        if (spec.get("delayLevel") != null) {
            message.setDelayTimeLevel(Json.number(spec, "delayLevel"));
        }
        if (spec.get("maxReconsumeTimes") != null) {
            MessageAccessor.setMaxReconsumeTimes(message, Json.text(spec, "maxReconsumeTimes"));
        }
        if (spec.get("waitStoreMsgOk") != null) {
            message.setWaitStoreMsgOK((Boolean) spec.get("waitStoreMsgOk"));
        }
        return message;
    }

    private static MessageQueue queue(String topic, Map<String, Object> spec) {
        return spec.get("queueId") == null
            ? null
            : new MessageQueue(topic, Json.text(spec, "brokerName"), Json.number(spec, "queueId"));
    }

    private static Map<String, Object> describe(SendResult result) {
        return Json.object(
            "sendStatus", result.getSendStatus().name(),
            "msgId", result.getMsgId(),
            "offsetMsgId", result.getOffsetMsgId(),
            "brokerName", result.getMessageQueue().getBrokerName(),
            "queueId", result.getMessageQueue().getQueueId(),
            "queueOffset", result.getQueueOffset());
    }
}
