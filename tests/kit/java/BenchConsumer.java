import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A push consumer with Java's defaults that only counts, for benches; consume/ours.py is its twin.
 *
 * <p>The single argument is a JSON object: namesrv, group, topic, orderly, batch, messages (how
 * many to count), latency. Prints {"event":"first", "epochUs"} at the first message and, once all
 * were counted, {"event":"done", "seen", "spanS"}; then shuts down. With latency only messages
 * with a body "m<epoch us of the send>" count, and done has their ages: p50Us, p99Us, maxUs. With
 * "messages" 0 it consumes until standard input ends.
 */
public final class BenchConsumer {
    private final boolean latency;
    private final int messages;
    private final long[] agesUs;
    private final AtomicInteger seen = new AtomicInteger();
    private final AtomicInteger places = new AtomicInteger();
    private final AtomicInteger calls = new AtomicInteger();
    private final CountDownLatch over = new CountDownLatch(1);
    private volatile long firstNs;
    private volatile long lastNs;

    private BenchConsumer(Map<String, Object> options) {
        latency = Boolean.TRUE.equals(options.get("latency"));
        messages = Json.number(options, "messages");
        agesUs = new long[latency ? messages : 0];
    }

    public static void main(String[] args) throws Exception {
        Map<String, Object> options = Json.parse(args[0]);
        new BenchConsumer(options).run(options);
        System.exit(0);
    }

    private void run(Map<String, Object> options) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(Json.text(options, "group"));
        consumer.setNamesrvAddr(Json.text(options, "namesrv"));
        consumer.setInstanceName("bench-" + ProcessHandle.current().pid());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(Json.number(options, "batch"));
        consumer.subscribe(Json.text(options, "topic"), "*");
        if (Boolean.TRUE.equals(options.get("orderly"))) {
            consumer.registerMessageListener((MessageListenerOrderly) (batch, context) -> {
                take(batch);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
                take(batch);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        if (messages == 0) {
            while (Json.readLine() != null) {
                Thread.onSpinWait();
            }
        } else {
            over.await();
            report();
        }
        consumer.shutdown();
    }

    private void take(List<MessageExt> batch) {
        if (calls.get() == 0 && calls.getAndIncrement() == 0) {
            firstNs = System.nanoTime();
            Json.print(Json.object("event", "first", "epochUs", epochUs()));
        }
        if (latency) {
            batch.forEach(this::age);
            return;
        }
        int after = seen.addAndGet(batch.size());
        if (after >= messages && after - batch.size() < messages) {
            lastNs = System.nanoTime();
            over.countDown();
        }
    }

    private void age(MessageExt message) {
        byte[] body = message.getBody();
        if (body[0] != 'm') {
            return;
        }
        long sentUs = Long.parseLong(
            new String(body, 1, body.length - 1, StandardCharsets.US_ASCII));
        int number = places.getAndIncrement();
        if (number < messages) {
            agesUs[number] = epochUs() - sentUs;
        }
        if (seen.incrementAndGet() == messages) {
            lastNs = System.nanoTime();
            over.countDown();
        }
    }

    private void report() {
        Map<String, Object> done = Json.object(
            "event", "done", "seen", seen.get(), "spanS", (lastNs - firstNs) / 1e9);
        if (latency) {
            Arrays.sort(agesUs);
            done.put("p50Us", agesUs[messages / 2]);
            done.put("p99Us", agesUs[messages * 99 / 100]);
            done.put("maxUs", agesUs[messages - 1]);
        }
        Json.print(done);
    }

    private static long epochUs() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
    }
}
