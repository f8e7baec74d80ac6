import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Fills a topic fast: batches from several threads, spread evenly over all queues.
 *
 * <p>Message n has the body "n" padded to the wished size, tag TagA, TagB or TagC by n % 3, and
 * with "keys" the key key-n. Arguments: namesrv, topic, messages, body bytes, batch size, threads,
 * "keys" or "-". Prints {sent, elapsedMs}.
 */
public final class Filler {
    private static final String[] TAGS = {"TagA", "TagB", "TagC"};

    public static void main(String[] args) throws Exception {
        // The client's threads keep Java running after an exception here.
        Thread.currentThread().setUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            System.exit(1);
        });
        DefaultMQProducer producer = new DefaultMQProducer("rmqcli-tests-filler");
        producer.setNamesrvAddr(args[0]);
        producer.setInstanceName("filler-" + ProcessHandle.current().pid());
        producer.setSendMsgTimeout(30000);
        producer.start();
        String topic = args[1];
        long messages = Long.parseLong(args[2]);
        int bodyBytes = Integer.parseInt(args[3]);
        int batchSize = Integer.parseInt(args[4]);
        boolean keys = args[6].equals("keys");
        List<MessageQueue> queues = queuesOf(producer, topic);
        AtomicLong next = new AtomicLong();
        AtomicLong sent = new AtomicLong();
        long before = readable(producer, queues);
        long begin = System.currentTimeMillis();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(args[5]); i++) {
            Thread thread = new Thread(() -> {
                long first;
                while ((first = next.getAndAdd(batchSize)) < messages) {
                    long end = Math.min(first + batchSize, messages);
                    MessageQueue queue = queues.get((int) (first / batchSize % queues.size()));
                    List<Message> batch = batch(topic, first, end, bodyBytes, keys);
                    send(producer, batch, queue);
                    sent.addAndGet(end - first);
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        long elapsed = System.currentTimeMillis() - begin;
        awaitReadable(producer, queues, before + sent.get());
        producer.shutdown();
        Json.print(Json.object("sent", sent.get(), "elapsedMs", elapsed));
        System.exit(sent.get() == messages ? 0 : 1);
    }

    /** Acknowledged is not yet readable: a broker fills its consume queues from the log later. */
    private static void awaitReadable(DefaultMQProducer producer, List<MessageQueue> queues,
            long messages) throws Exception {
        long deadline = System.currentTimeMillis() + 120000;
        while (readable(producer, queues) < messages) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("the consume queues do not catch up");
            }
            Thread.sleep(20);
        }
    }

    /** The topic's queues. On a busy machine a name server may not answer in the client's time. */
    private static List<MessageQueue> queuesOf(DefaultMQProducer producer, String topic) throws Exception {
        for (int attempt = 1; ; attempt++) {
            try {
                return producer.fetchPublishMessageQueues(topic);
            } catch (MQClientException error) {
                if (attempt == 10) {
                    throw error;
                }
            }
        }
    }

    private static long readable(DefaultMQProducer producer, List<MessageQueue> queues)
            throws Exception {
        long messages = 0;
        for (MessageQueue queue : queues) {
            messages += producer.maxOffset(queue);
        }
        return messages;
    }

    private static List<Message> batch(String topic, long first, long end, int bodyBytes,
            boolean keys) {
        List<Message> batch = new ArrayList<>();
        for (long number = first; number < end; number++) {
            byte[] digits = Long.toString(number).getBytes(StandardCharsets.US_ASCII);
            ByteBuffer body = ByteBuffer.allocate(Math.max(bodyBytes, digits.length));
            body.put(digits);
            while (body.hasRemaining()) {
                body.put((byte) '.');
            }
            Message message = new Message(topic, TAGS[(int) (number % 3)], body.array());
            if (keys) {
                message.setKeys("key-" + number);
            }
            batch.add(message);
        }
        return batch;
    }

    /** Tries again while the broker says that it is busy; a duplicate cannot come of that. */
    private static void send(DefaultMQProducer producer, List<Message> batch, MessageQueue queue) {
        for (int attempt = 0; ; attempt++) {
            try {
                producer.send(batch, queue);
                return;
            } catch (Exception error) {
                if (attempt == 100 || !String.valueOf(error).contains("CODE: 2 ")) {
                    throw new IllegalStateException(error);
                }
            }
        }
    }
}
