import java.lang.reflect.Method;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A push consumer that prints each message as a JSON line, {"event":"message", ...}.
 *
 * <p>The single argument is a JSON object: namesrv, group, topic, subExpression, from
 * (FIRST|LAST|epoch ms), orderly, broadcast, slowMs, block, failTimes, stopAfter, persistMs,
 * pullBatchSize, consumeThreads, maxReconsumeTimes, clientId, trace, serverAssignment (5.x: the broker
 * says which queues, and whether to pull or pop), popInvisibleTime. A call fails where a message of it
 * has failed less than failTimes (with failByCount counted here, not by reconsumeTimes): failAs
 * (LATER|ACK|NULL|THROW or an orderly status), delayLevel, ackIndex, autoCommit and
 * batchSize say how. Prints {"event":"started"} once it runs. Standard input: "go" releases a blocked listener; "stop", or its end, shuts the consumer down, which
 * commits its offsets.
 */
public final class Consumer {
    private final Map<String, Object> options;
    private final CountDownLatch gate;
    private final CountDownLatch stop = new CountDownLatch(1);
    private final AtomicInteger seen = new AtomicInteger();
    private final Map<String, Integer> counts = new ConcurrentHashMap<>();
    private DefaultMQPushConsumer consumer;

    private Consumer(Map<String, Object> options) {
        this.options = options;
        this.gate = new CountDownLatch(flag("block") ? 1 : 0);
    }

    public static void main(String[] args) throws Exception {
        new Consumer(Json.parse(args[0])).run();
        System.exit(0);
    }

    private void run() throws Exception {
        consumer =
            new DefaultMQPushConsumer(Json.text(options, "group"), flag("trace"), null);
        consumer.setNamesrvAddr(Json.text(options, "namesrv"));
        consumer.setInstanceName("consumer-" + ProcessHandle.current().pid());
        configure();
        consumer.subscribe(Json.text(options, "topic"), Json.text(options, "subExpression"));
        if (flag("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                boolean autoCommit = !Boolean.FALSE.equals(options.get("autoCommit"));
                context.setAutoCommit(autoCommit);
                if (take(messages)) {
                    return autoCommit ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.COMMIT;
                }
                String failAs = failAs();
                return failAs.equals("LATER")
                    ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                    : failAs.equals("NULL") ? null : ConsumeOrderlyStatus.valueOf(failAs);
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                if (take(messages)) {
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                }
                if (options.get("delayLevel") != null) {
                    context.setDelayLevelWhenNextConsume(Json.number(options, "delayLevel"));
                }
                switch (failAs()) {
                    case "ACK":
                        context.setAckIndex(Json.number(options, "ackIndex"));
                        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                    case "NULL":
                        return null;
                    default:
                        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            });
        }
        consumer.start();
        Json.print(Json.object("event", "started", "clientId", consumer.buildMQClientId()));
        Thread commands = new Thread(this::follow);
        commands.setDaemon(true);
        commands.start();
        stop.await();
        // The last listener call returns, and its offset is noted, after it counted.
        // Before 4.9 a shutdown loses the traces that are not written yet.
        Thread.sleep(flag("trace") ? 3000 : 200);
        consumer.shutdown();
        Json.print(Json.object("event", "stopped", "seen", seen.get()));
    }

    private void configure() throws Exception {
        String from = Json.text(options, "from");
        if (from.equals("FIRST")) {
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        } else if (from.equals("LAST")) {
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        } else {
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
            consumer.setConsumeTimestamp(
                UtilAll.timeMillisToHumanString3(Long.parseLong(from)));
        }
        if (flag("broadcast")) {
            setBroadcasting();
        }
        consumer.setPersistConsumerOffsetInterval(Json.number(options, "persistMs"));
        consumer.setPullBatchSize(Json.number(options, "pullBatchSize"));
        if (options.get("batchSize") != null) {
            consumer.setConsumeMessageBatchMaxSize(Json.number(options, "batchSize"));
        }
        if (options.get("maxReconsumeTimes") != null) {
            consumer.setMaxReconsumeTimes(Json.number(options, "maxReconsumeTimes"));
        }
        if (flag("serverAssignment")) {
            // Not in 4.x, for which this is compiled too.
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class)
                .invoke(consumer, false);
        }
        if (options.get("popInvisibleTime") != null) {
            DefaultMQPushConsumer.class.getMethod("setPopInvisibleTime", long.class)
                .invoke(consumer, (long) Json.number(options, "popInvisibleTime"));
        }
        consumer.setConsumeThreadMin(Json.number(options, "consumeThreads"));
        consumer.setConsumeThreadMax(Json.number(options, "consumeThreads"));
    }

    /** The enum MessageModel moved to another package in 5.0. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private void setBroadcasting() throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                Class type = method.getParameterTypes()[0];
                method.invoke(consumer, Enum.valueOf(type, "BROADCASTING"));
            }
        }
    }

    private boolean take(List<MessageExt> messages) {
        try {
            if (gate.getCount() > 0) {
                Json.print(Json.object("event", "blocked"));
            }
            gate.await();
            Thread.sleep(Json.number(options, "slowMs"));
        } catch (InterruptedException error) {
            hang();
        }
        if (stop.getCount() == 0) {
            hang();
        }
        boolean good = true;
        for (MessageExt message : messages) {
            boolean fails = failures(message) < Json.number(options, "failTimes");
            good &= !fails;
            Json.print(describe(message));
            int stopAfter = Json.number(options, "stopAfter");
            if (seen.incrementAndGet() == stopAfter) {
                stop.countDown();
            }
        }
        return good;
    }

    private int failures(MessageExt message) {
        return flag("failByCount")
            ? counts.merge(new String(message.getBody()), 1, Integer::sum) - 1
            : message.getReconsumeTimes();
    }

    /** Throws where that is how a call fails. */
    private String failAs() {
        Object failAs = options.get("failAs");
        if ("THROW".equals(failAs)) {
            throw new IllegalStateException("asked to");
        }
        return failAs == null ? "LATER" : (String) failAs;
    }

    /**
     * Never answers: while the consumer shuts down, a result of either kind would move
     * offsets or send messages to the retry topic. The process exits all the same.
     */
    private static void hang() {
        while (true) {
            LockSupport.park();
        }
    }

    private void follow() {
        try {
            String line;
            while ((line = Json.readLine()) != null && !line.equals("stop")) {
                if (line.equals("go")) {
                    gate.countDown();
                }
            }
        } catch (java.io.IOException error) {
            System.err.println("standard input: " + error);
        }
        stop.countDown();
    }

    private boolean flag(String name) {
        return Boolean.TRUE.equals(options.get(name));
    }

    private static Map<String, Object> describe(MessageExt message) {
        return Json.object(
            "event", "message",
            "topic", message.getTopic(),
            "queueId", message.getQueueId(),
            "queueOffset", message.getQueueOffset(),
            "msgId", message.getMsgId(),
            "keys", message.getKeys(),
            "tags", message.getTags(),
            "bodyB64", Base64.getEncoder().encodeToString(message.getBody()),
            "reconsumeTimes", message.getReconsumeTimes(),
            "bornTimestamp", message.getBornTimestamp(),
            "storeTimestamp", message.getStoreTimestamp(),
            "properties", message.getProperties());
    }
}
