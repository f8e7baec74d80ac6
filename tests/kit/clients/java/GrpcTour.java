import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * Uses a proxy as the official client does, and prints what came of it as `name=value` lines.
 * Arguments: endpoints, then the names of a NORMAL, a FIFO, a DELAY and a TRANSACTION topic, and
 * of groups for simple, push and orderly push consumers.
 */
public class GrpcTour {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static ClientConfiguration configuration;

    public static void main(String[] args) {
        try {
            tour(args);
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1); // the client's threads would go on
        }
    }

    static void tour(String[] args) throws Exception {
        configuration = ClientConfiguration.newBuilder().setEndpoints(args[0]).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(10)).build();
        String normal = args[1], fifo = args[2], delay = args[3], transaction = args[4];
        Set<String> checked = Collections.synchronizedSet(new HashSet<>());
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics(normal, fifo, delay, transaction)
            .setTransactionChecker(view -> {
                checked.add(text(view));
                return TransactionResolution.COMMIT;
            }).build();
        SimpleConsumer simple = PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration).setConsumerGroup(args[5])
            .setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(
                new HashMap<>(Collections.singletonMap(normal, FilterExpression.SUB_ALL)))
            .build();
        normal(producer, simple, normal);
        simple.subscribe(delay, FilterExpression.SUB_ALL);
        simple.unsubscribe(normal);
        delayed(producer, simple, delay);
        simple.subscribe(transaction, FilterExpression.SUB_ALL);
        simple.unsubscribe(delay);
        transactions(producer, simple, transaction);
        print("checked", sorted(checked));
        simple.close();
        push(producer, normal, args[6]);
        orderly(producer, fifo, args[7]);
        producer.close();
        print("end", "reached");
    }

    static void normal(Producer producer, SimpleConsumer simple, String topic) throws Exception {
        Set<String> ids = new HashSet<>();
        for (int n = 0; n < 5; n++) {
            Message message = builder(topic, "n-" + n).setTag("A").setKeys("k1", "k2")
                .addProperty("colour", "blue").build();
            ids.add(producer.send(message).getMessageId().toString());
        }
        List<MessageView> views = receive(simple, 5);
        print("normal", sorted(texts(views)));
        Set<String> found = new HashSet<>();
        for (MessageView view : views) {
            found.add(view.getMessageId().toString());
        }
        print("same-ids", String.valueOf(ids.equals(found)));
        MessageView first = views.get(0);
        print("fields", first.getTag().get() + " " + sorted(first.getKeys()) + " "
            + first.getProperties().get("colour") + " " + first.getDeliveryAttempt());
        simple.changeInvisibleDuration(first, Duration.ofSeconds(1));
        for (MessageView view : views.subList(1, views.size())) {
            simple.ack(view);
        }
        MessageView again = receive(simple, 1).get(0);
        print("again", text(again).equals(text(first)) + " " + again.getDeliveryAttempt());
        simple.ack(again);
    }

    static void delayed(Producer producer, SimpleConsumer simple, String topic) throws Exception {
        long due = System.currentTimeMillis() + 3000;
        SendReceipt kept = producer.send(
            builder(topic, "kept").setDeliveryTimestamp(due).build());
        SendReceipt recalled = producer.send(
            builder(topic, "recalled").setDeliveryTimestamp(due).build());
        print("recall", String.valueOf(producer.recallMessage(topic, recalled.getRecallHandle())
            .getMessageId().equals(recalled.getMessageId())));
        List<MessageView> views = receive(simple, 1);
        // A second's precision.
        print("delayed", texts(views) + " " + (System.currentTimeMillis() >= due - 1000));
        simple.ack(views.get(0));
        print("nothing-else", String.valueOf(
            simple.receive(16, Duration.ofSeconds(30)).isEmpty()));
    }

    static void transactions(Producer producer, SimpleConsumer simple, String topic)
        throws Exception {
        Transaction committed = producer.beginTransaction();
        producer.send(builder(topic, "committed").build(), committed);
        committed.commit();
        Transaction rolledBack = producer.beginTransaction();
        producer.send(builder(topic, "rolled back").build(), rolledBack);
        rolledBack.rollback();
        Transaction orphan = producer.beginTransaction();
        producer.send(builder(topic, "orphan").build(), orphan);
        List<MessageView> views = receive(simple, 2);
        print("transactions", sorted(texts(views)));
        for (MessageView view : views) {
            simple.ack(view);
        }
    }

    static void push(Producer producer, String topic, String group) throws Exception {
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        PushConsumer push = PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(configuration).setConsumerGroup(group)
            .setSubscriptionExpressions(
                Collections.singletonMap(topic, new FilterExpression("P")))
            .setMessageListener(view -> {
                seen.add(text(view) + ":" + view.getDeliveryAttempt());
                boolean fails = text(view).equals("p-1") && view.getDeliveryAttempt() == 1;
                return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
        for (int n = 0; n < 3; n++) {
            producer.send(builder(topic, "p-" + n).setTag("P").build());
        }
        await(seen, 4);
        print("push", sorted(seen));
        push.close();
    }

    static void orderly(Producer producer, String topic, String group) throws Exception {
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        for (int n = 0; n < 6; n++) {
            producer.send(builder(topic, "o-" + n).setMessageGroup("g").build());
        }
        PushConsumer push = PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(configuration).setConsumerGroup(group)
            .setSubscriptionExpressions(
                Collections.singletonMap(topic, FilterExpression.SUB_ALL))
            .setMessageListener(view -> {
                seen.add(text(view));
                return ConsumeResult.SUCCESS;
            }).build();
        await(seen, 6);
        print("orderly", String.join(",", seen));
        push.close();
    }

    static MessageBuilder builder(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic)
            .setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    static List<MessageView> receive(SimpleConsumer simple, int count) throws Exception {
        List<MessageView> views = new ArrayList<>();
        long end = System.currentTimeMillis() + 100_000;
        while (views.size() < count && System.currentTimeMillis() < end) {
            views.addAll(simple.receive(16, Duration.ofSeconds(60)));
        }
        return views;
    }

    static void await(ConcurrentLinkedQueue<String> seen, int count) throws Exception {
        long end = System.currentTimeMillis() + 100_000;
        while (seen.size() < count && System.currentTimeMillis() < end) {
            Thread.sleep(20);
        }
    }

    static String text(MessageView view) {
        ByteBuffer body = view.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    static List<String> texts(List<MessageView> views) {
        List<String> found = new ArrayList<>();
        for (MessageView view : views) {
            found.add(text(view));
        }
        return found;
    }

    static String sorted(Iterable<String> items) {
        List<String> all = new ArrayList<>();
        items.forEach(all::add);
        Collections.sort(all);
        return String.join(",", all);
    }

    static void print(String name, Object value) {
        System.out.println(name + "=" + value);
    }
}
