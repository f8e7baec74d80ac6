import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What a Java client can do that Producer and Consumer do not: one command a line, one answer.
 *
 * <p>Argument: namesrv. In: {"do": name, ...}, see the methods. Out: {...} or {"error": text}. One
 * process runs many commands, so that a set of tests pays for one JVM.
 */
public final class Scenarios {
    private final String namesrv;
    private final DefaultMQProducer producer = new DefaultMQProducer("rmqcli-tests-scenarios");
    private final List<Object> open = Collections.synchronizedList(new ArrayList<>());

    private Scenarios(String namesrv) {
        this.namesrv = namesrv;
    }

    public static void main(String[] args) throws Exception {
        new Scenarios(args[0]).run();
        System.exit(0);
    }

    private void run() throws Exception {
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("scenarios-" + ProcessHandle.current().pid());
        producer.setSendMsgTimeout(10000);
        producer.start();
        Json.print(Json.object("event", "started"));
        String line;
        while ((line = Json.readLine()) != null) {
            try {
                Json.print(dispatch(Json.parse(line)));
            } catch (Throwable error) {
                StringBuilder causes = new StringBuilder();
                for (Throwable each = error; each != null; each = each.getCause()) {
                    causes.append(each).append("; ");
                }
                Json.print(Json.object("error", causes.toString()));
            }
        }
        producer.shutdown();
    }

    private Map<String, Object> dispatch(Map<String, Object> spec) throws Exception {
        switch (Json.text(spec, "do")) {
            case "async":
                return sendAsync(spec);
            case "oneway":
                return sendOneway(spec);
            case "selected":
                return sendSelected(spec);
            case "transaction":
                return sendInTransaction(spec);
            case "pull":
                return pull(spec);
            case "lite-assign":
                return litePull(spec, true);
            case "lite-subscribe":
                return litePull(spec, false);
            case "filtered":
                return consumeFiltered(spec);
            case "view":
                return view(spec);
            case "query":
                return query(spec);
            case "offsets":
                return offsets(spec);
            case "request":
                return request(spec);
            default:
                throw new IllegalArgumentException(Json.text(spec, "do"));
        }
    }

    /** {topic, count}: that many at once; how many the broker acknowledged. */
    private Map<String, Object> sendAsync(Map<String, Object> spec) throws Exception {
        int count = Json.number(spec, "count");
        CountDownLatch done = new CountDownLatch(count);
        List<String> errors = Collections.synchronizedList(new ArrayList<>());
        for (int i = 0; i < count; i++) {
            producer.send(message(spec, "async-" + i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    done.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    errors.add(String.valueOf(error));
                    done.countDown();
                }
            });
        }
        boolean all = done.await(20, TimeUnit.SECONDS);
        return Json.object("sent", count - errors.size(), "all", all, "errors", errors.toString());
    }

    /** {topic, count}: without waiting for answers. */
    private Map<String, Object> sendOneway(Map<String, Object> spec) throws Exception {
        for (int i = 0; i < Json.number(spec, "count"); i++) {
            producer.sendOneway(message(spec, "oneway-" + i));
        }
        return Json.object("sent", Json.number(spec, "count"));
    }

    /** {topic, count, keys}: message i goes to the queue i % keys picks. */
    private Map<String, Object> sendSelected(Map<String, Object> spec) throws Exception {
        List<String> queues = new ArrayList<>();
        int keys = Json.number(spec, "keys");
        for (int i = 0; i < Json.number(spec, "count"); i++) {
            SendResult result = producer.send(message(spec, "selected-" + i),
                (all, message, key) -> all.get((Integer) key % all.size()), i % keys);
            queues.add(i % keys + ":" + result.getMessageQueue().getQueueId());
        }
        return Json.object("queues", String.join(",", queues));
    }

    /**
     * {topic, group, states: "COMMIT,ROLLBACK,UNKNOW", check: "COMMIT"}: one half message for each
     * state; those left unknown get "check" when the broker asks. Waits up to waitMs for that.
     */
    private Map<String, Object> sendInTransaction(Map<String, Object> spec) throws Exception {
        String[] states = Json.text(spec, "states").split(",");
        int unknown = 0;
        for (String state : states) {
            unknown += state.equals("UNKNOW") ? 1 : 0;
        }
        CountDownLatch checked = new CountDownLatch(unknown);
        TransactionMQProducer half = new TransactionMQProducer(Json.text(spec, "group"));
        half.setNamesrvAddr(namesrv);
        half.setInstanceName("half-" + System.nanoTime());
        half.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return state(String.valueOf(state));
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checked.countDown();
                return state(Json.text(spec, "check"));
            }
        });
        half.start();
        StringBuilder answers = new StringBuilder();
        try {
            for (String state : states) {
                answers.append(half.sendMessageInTransaction(message(spec, "half-" + state), state)
                    .getLocalTransactionState()).append(' ');
            }
            int waitMs = spec.get("waitMs") == null ? 0 : Json.number(spec, "waitMs");
            boolean all = checked.await(waitMs, TimeUnit.MILLISECONDS);
            return Json.object("states", answers.toString().trim(), "checked", all);
        } finally {
            // The answer to a check is one-way: it must leave before the connection closes.
            Thread.sleep(200);
            half.shutdown();
        }
    }

    private static LocalTransactionState state(String name) {
        return name.equals("UNKNOW")
            ? LocalTransactionState.UNKNOW
            : LocalTransactionState.valueOf(name + "_MESSAGE");
    }

    /** {topic, group}: everything in all queues, by explicit pulls; then commits the offsets. */
    private Map<String, Object> pull(Map<String, Object> spec) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(Json.text(spec, "group"));
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("pull-" + System.nanoTime());
        consumer.start();
        List<String> bodies = new ArrayList<>();
        StringBuilder statuses = new StringBuilder();
        try {
            for (MessageQueue queue
                    : consumer.fetchSubscribeMessageQueues(Json.text(spec, "topic"))) {
                long offset = consumer.minOffset(queue);
                long end = consumer.maxOffset(queue);
                while (offset < end) {
                    PullResult result = consumer.pull(queue, "*", offset, 32);
                    if (result.getMsgFoundList() != null) {
                        result.getMsgFoundList().forEach(message -> bodies.add(text(message)));
                    }
                    offset = result.getNextBeginOffset();
                }
                statuses.append(consumer.pull(queue, "*", offset + 9, 32).getPullStatus());
                statuses.append(' ');
                consumer.updateConsumeOffset(queue, end);
                consumer.getOffsetStore().updateConsumeOffsetToBroker(queue, end, false);
            }
        } finally {
            consumer.shutdown();
        }
        return sorted(bodies, "beyond", statuses.toString().trim());
    }

    /** {topic, group, expect}: by lite pull, assigned (from the first) or subscribed (young queues). */
    private Map<String, Object> litePull(Map<String, Object> spec, boolean assigned)
            throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(Json.text(spec, "group"));
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("lite-" + System.nanoTime());
        String topic = Json.text(spec, "topic");
        if (!assigned) {
            consumer.subscribe(topic, "*");
        }
        consumer.start();
        List<String> bodies = new ArrayList<>();
        try {
            if (assigned) {
                List<MessageQueue> queues = new ArrayList<>(consumer.fetchMessageQueues(topic));
                consumer.assign(queues);
                for (MessageQueue queue : queues) {
                    consumer.seek(queue, 0);
                }
            }
            long end = System.currentTimeMillis() + 30000;
            while (bodies.size() < Json.number(spec, "expect")
                    && System.currentTimeMillis() < end) {
                consumer.poll(500).forEach(message -> bodies.add(text(message)));
            }
            consumer.commitSync();
        } finally {
            consumer.shutdown();
        }
        return sorted(bodies, "topic", topic);
    }

    /** {topic, group, sql, expect}: a push consumer with an SQL filter, from the first. */
    private Map<String, Object> consumeFiltered(Map<String, Object> spec) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(Json.text(spec, "group"));
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("filtered-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(Json.text(spec, "topic"), MessageSelector.bySql(Json.text(spec, "sql")));
        CountDownLatch expected = new CountDownLatch(Json.number(spec, "expect"));
        List<String> bodies = Collections.synchronizedList(new ArrayList<>());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> bodies.add(text(message)));
            messages.forEach(message -> expected.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            expected.await(45, TimeUnit.SECONDS);
        } finally {
            consumer.shutdown();
        }
        return sorted(bodies, "sql", Json.text(spec, "sql"));
    }

    /** {msgId, topic}: one message by its offset id or its unique id. */
    private Map<String, Object> view(Map<String, Object> spec) throws Exception {
        String topic = Json.text(spec, "topic");
        MessageExt message = producer.viewMessage(topic, Json.text(spec, "msgId"));
        return Json.object("body", text(message), "queueOffset", message.getQueueOffset());
    }

    /** {topic, key}: all messages with that key. */
    private Map<String, Object> query(Map<String, Object> spec) throws Exception {
        QueryResult result = producer.queryMessage(Json.text(spec, "topic"),
            Json.text(spec, "key"), 32, 0, System.currentTimeMillis() + 60000);
        List<String> bodies = new ArrayList<>();
        result.getMessageList().forEach(message -> bodies.add(text(message)));
        return sorted(bodies, "key", Json.text(spec, "key"));
    }

    /** {topic}: per queue "id:min:max:atTime", at the epoch ms `time`. */
    private Map<String, Object> offsets(Map<String, Object> spec) throws Exception {
        List<String> rows = new ArrayList<>();
        long time = ((Number) spec.get("time")).longValue();
        for (MessageQueue queue
                : producer.fetchPublishMessageQueues(Json.text(spec, "topic"))) {
            rows.add(queue.getQueueId() + ":" + producer.minOffset(queue) + ":"
                + producer.maxOffset(queue) + ":" + producer.searchOffset(queue, time));
        }
        return sorted(rows, "topic", Json.text(spec, "topic"));
    }

    /**
     * {topic, group, count, timeoutMs}: requests one after the other, each answered "re:" and its
     * body by a consumer with a producer of its own; what came back, and what failed. With `silent`
     * the consumer does not reply; with `gone` the requester shuts down before it does.
     */
    private Map<String, Object> request(Map<String, Object> spec) throws Exception {
        String group = Json.text(spec, "group");
        boolean silent = Boolean.TRUE.equals(spec.get("silent"));
        boolean gone = Boolean.TRUE.equals(spec.get("gone"));
        DefaultMQProducer asker = named(new DefaultMQProducer(group + "-asker"));
        DefaultMQProducer replier = named(new DefaultMQProducer(group + "-replier"));
        List<String> errors = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch replied = new CountDownLatch(Json.number(spec, "count"));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("replier-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(Json.text(spec, "topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                try {
                    if (gone) {
                        asker.shutdown();
                    }
                    if (!silent) {
                        byte[] body = ("re:" + text(each)).getBytes(StandardCharsets.UTF_8);
                        replier.send(MessageUtil.createReplyMessage(each, body), 5000);
                    }
                } catch (Exception error) {
                    errors.add("reply: " + error + ", caused by " + error.getCause());
                }
                replied.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        List<String> bodies = new ArrayList<>();
        try {
            for (int i = 0; i < Json.number(spec, "count"); i++) {
                try {
                    Message answer =
                        asker.request(message(spec, "ask-" + i), Json.number(spec, "timeoutMs"));
                    bodies.add(new String(answer.getBody(), StandardCharsets.UTF_8)
                        + (answer.getProperty("CORRELATION_ID") == null ? "?" : ""));
                } catch (RequestTimeoutException error) {
                    errors.add("request: timeout");
                }
            }
            replied.await(30, TimeUnit.SECONDS);
        } finally {
            consumer.shutdown();
            replier.shutdown();
            asker.shutdown();
        }
        return sorted(bodies, "errors", String.join("; ", errors));
    }

    private DefaultMQProducer named(DefaultMQProducer made) throws Exception {
        made.setNamesrvAddr(namesrv);
        made.setInstanceName(made.getProducerGroup() + "-" + System.nanoTime());
        made.start();
        return made;
    }

    private static Map<String, Object> sorted(List<String> bodies, String name, Object value) {
        List<String> all = new ArrayList<>(bodies);
        Collections.sort(all);
        return Json.object("bodies", String.join(",", all), name, value);
    }

    private static Message message(Map<String, Object> spec, String body) {
        return new Message(Json.text(spec, "topic"), "TagA",
            body.getBytes(StandardCharsets.UTF_8));
    }

    private static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
