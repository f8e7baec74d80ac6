import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;

/**
 * The official client as a member of a group; see tests/kit/clients/member.py for what it says and
 * is told. Arguments: simple, push or lite, endpoints, group, topic, seconds of a simple consumer's
 * lease, and the lite topics of a lite consumer.
 */
public class GrpcMember {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static final CountDownLatch STOPPED = new CountDownLatch(1);
    static volatile boolean holds;

    public static void main(String[] args) {
        try {
            ClientConfiguration configuration = ClientConfiguration.newBuilder()
                .setEndpoints(args[1]).enableSsl(false)
                .setRequestTimeout(Duration.ofSeconds(10)).build();
            Thread orders = new Thread(GrpcMember::followOrders);
            orders.setDaemon(true);
            orders.start();
            if (args[0].equals("simple")) {
                simple(configuration, args[2], args[3], Duration.ofSeconds(Long.parseLong(args[4])));
            } else if (args[0].equals("lite")) {
                lite(configuration, args[2], args[3], Arrays.copyOfRange(args, 5, args.length));
            } else {
                push(configuration, args[2], args[3]);
            }
            say("stopped", "");
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1); // the client's threads would go on
        }
    }

    static void simple(ClientConfiguration configuration, String group, String topic,
        Duration lease) throws Exception {
        SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration).setConsumerGroup(group)
            .setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(
                new HashMap<>(Collections.singletonMap(topic, FilterExpression.SUB_ALL)))
            .build();
        say("started", "");
        while (STOPPED.getCount() > 0) {
            for (MessageView view : consumer.receive(4, lease)) {
                begin(view);
                consumer.ack(view);
                say("done", text(view));
            }
        }
        consumer.close();
    }

    static void push(ClientConfiguration configuration, String group, String topic)
        throws Exception {
        PushConsumer consumer = PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(configuration).setConsumerGroup(group)
            .setSubscriptionExpressions(
                Collections.singletonMap(topic, FilterExpression.SUB_ALL))
            .setConsumptionThreadCount(4)
            .setMessageListener(GrpcMember::consume).build();
        say("started", "");
        STOPPED.await();
        consumer.close();
    }

    static void lite(ClientConfiguration configuration, String group, String topic,
        String[] liteTopics) throws Exception {
        LitePushConsumer consumer = PROVIDER.newLitePushConsumerBuilder()
            .setClientConfiguration(configuration).setConsumerGroup(group).bindTopic(topic)
            .setMessageListener(GrpcMember::consume).build();
        for (String each : liteTopics) {
            consumer.subscribeLite(each);
        }
        say("started", "");
        STOPPED.await();
        consumer.close();
    }

    static ConsumeResult consume(MessageView view) {
        begin(view);
        say("done", text(view));
        return ConsumeResult.SUCCESS;
    }

    static void begin(MessageView view) {
        say("begin", text(view));
        if (holds) {
            say("holding", text(view));
            while (true) {
                try {
                    Thread.sleep(Long.MAX_VALUE);
                } catch (InterruptedException ignored) {
                    // until it is killed
                }
            }
        }
    }

    static void followOrders() {
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        try {
            for (String order = orders.readLine(); order != null; order = orders.readLine()) {
                if (order.equals("hold")) {
                    holds = true;
                    say("held", "");
                } else {
                    STOPPED.countDown();
                }
            }
        } catch (java.io.IOException ended) {
            STOPPED.countDown();
        }
    }

    static synchronized void say(String event, String body) {
        System.out.println(event + "\t" + System.nanoTime() + "\t" + body);
        System.out.flush();
    }

    static String text(MessageView view) {
        ByteBuffer body = view.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
