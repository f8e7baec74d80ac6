package org.apache.rocketmq.test.base;

import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.broker.out.BrokerOuterAPI;
import org.apache.rocketmq.broker.topic.TopicConfigManager;
import org.apache.rocketmq.client.exception.OffsetNotFoundException;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.attribute.TopicMessageType;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.header.QueryConsumerOffsetRequestHeader;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.test.util.MQAdminTestUtils;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.junit.Assume;
import org.mockito.Mockito;

/**
 * Lets RocketMQ's integration tests run against a cluster of another process.
 *
 * <p>It takes the place of the class of this name in RocketMQ's jar of tests, which starts a name
 * server and three brokers. What tests ask of the controllers is asked over the network; a setting
 * that needs a restart skips the test. The system property {@code namesrv} names the cluster.
 */
public class IntegrationTestBase {
    private static final String CLUSTER = "DefaultCluster";
    private static final int TIMEOUT_MS = 5_000;
    private static final int TOPIC_TIMEOUT_S = 30;
    private static final String NAMESRV = System.getProperty("namesrv");

    private static DefaultMQAdminExt admin;
    private static Iterator<String> names;

    public static NamesrvController createAndStartNamesrv() {
        try {
            admin = new DefaultMQAdminExt(TIMEOUT_MS);
            admin.setNamesrvAddr(NAMESRV);
            admin.setInstanceName("integration-test-base");
            admin.start();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
        names = List.of("broker-a", "broker-b", "broker-c").iterator();
        NettyServerConfig config = new NettyServerConfig();
        config.setListenPort(Integer.parseInt(NAMESRV.substring(NAMESRV.indexOf(':') + 1)));
        NamesrvController controller = Mockito.mock(NamesrvController.class);
        Mockito.when(controller.getNettyServerConfig()).thenReturn(config);
        return controller;
    }

    public static BrokerController createAndStartBroker(String namesrv) {
        try {
            String name = names.next();
            return broker(
                    name,
                    admin.examineBrokerClusterInfo().getBrokerAddrTable().get(name).selectBrokerAddr());
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static BrokerController broker(String name, String address) throws Exception {
        BrokerController controller = Mockito.mock(BrokerController.class);
        BrokerConfig config = new OutsideConfig(address);
        config.setBrokerName(name);
        config.setBrokerClusterName(CLUSTER);
        Mockito.when(controller.getBrokerConfig()).thenReturn(config);
        Mockito.when(controller.getBrokerAddr()).thenReturn(address);
        Mockito.when(controller.getBrokerOuterAPI()).thenReturn(Mockito.mock(BrokerOuterAPI.class));

        MQClientAPIImpl api =
                admin.getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl();
        DefaultMessageStore store = Mockito.mock(DefaultMessageStore.class);
        Mockito.when(controller.getMessageStore()).thenReturn(store);
        Mockito.when(store.getMinOffsetInQueue(Mockito.anyString(), Mockito.anyInt()))
                .thenAnswer(
                        asked ->
                                api.getMinOffset(
                                        address,
                                        new MessageQueue(
                                                asked.getArgument(0), name, asked.getArgument(1)),
                                        TIMEOUT_MS));
        Mockito.when(store.getMaxOffsetInQueue(Mockito.anyString(), Mockito.anyInt()))
                .thenAnswer(
                        asked ->
                                api.getMaxOffset(
                                        address,
                                        new MessageQueue(
                                                asked.getArgument(0), name, asked.getArgument(1)),
                                        TIMEOUT_MS));
        MessageStoreConfig storeConfig = new OutsideStoreConfig(address);
        Mockito.when(controller.getMessageStoreConfig()).thenReturn(storeConfig);
        // No request tells how far a broker's queues are behind its log.
        Mockito.when(store.dispatchBehindBytes())
                .thenAnswer(
                        asked -> {
                            Thread.sleep(200);
                            return 0L;
                        });

        TopicConfigManager topics = Mockito.mock(TopicConfigManager.class);
        Mockito.when(controller.getTopicConfigManager()).thenReturn(topics);
        Mockito.when(topics.getTopicConfigTable())
                .thenAnswer(asked -> admin.getAllTopicConfig(address, TIMEOUT_MS).getTopicConfigTable());
        ConsumerOffsetManager offsets = Mockito.mock(ConsumerOffsetManager.class);
        Mockito.when(controller.getConsumerOffsetManager()).thenReturn(offsets);
        Mockito.when(offsets.queryOffset(Mockito.anyString(), Mockito.anyString(), Mockito.anyInt()))
                .thenAnswer(
                        asked -> {
                            QueryConsumerOffsetRequestHeader header =
                                    new QueryConsumerOffsetRequestHeader();
                            header.setConsumerGroup(asked.getArgument(0));
                            header.setTopic(asked.getArgument(1));
                            header.setQueueId(asked.getArgument(2));
                            header.setSetZeroIfNotFound(false);
                            try {
                                return api.queryConsumerOffset(address, header, TIMEOUT_MS);
                            } catch (OffsetNotFoundException none) {
                                return -1L;
                            }
                        });
        return controller;
    }

    public static boolean initTopic(
            String topic, String namesrv, String cluster, int queues, CQType type) {
        return initTopic(topic, namesrv, cluster, queues, type, TopicMessageType.NORMAL);
    }

    public static boolean initTopic(
            String topic, String namesrv, String cluster, CQType type) {
        return initTopic(topic, namesrv, cluster, BaseConf.QUEUE_NUMBERS, type);
    }

    public static boolean initTopic(
            String topic, String namesrv, String cluster, TopicMessageType kind) {
        return initTopic(
                topic, namesrv, cluster, BaseConf.QUEUE_NUMBERS, CQType.SimpleCQ, kind);
    }

    public static boolean initTopic(
            String topic,
            String namesrv,
            String cluster,
            int queues,
            CQType type,
            TopicMessageType kind) {
        Map<String, String> attributes = new HashMap<>();
        if (type != CQType.SimpleCQ) {
            attributes.put("+queue.type", type.toString());
        }
        if (kind != TopicMessageType.NORMAL) {
            attributes.put("+message.type", kind.toString());
        }
        return MQAdminTestUtils.createTopic(
                namesrv, cluster, topic, queues, attributes, TOPIC_TIMEOUT_S);
    }

    public static void initMQAdmin(String namesrv) {
        try {
            MQAdminTestUtils.startAdmin(namesrv);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static void set(String address, String name, Object value) {
        Properties properties = new Properties();
        properties.setProperty(name, String.valueOf(value));
        try {
            admin.updateBrokerConfig(address, properties);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    /** The settings of a store; those that tests change are changed over the network. */
    private static final class OutsideStoreConfig extends MessageStoreConfig {
        private final String address;

        OutsideStoreConfig(String address) {
            this.address = address;
        }

        @Override
        public void setAppendTopicForTimerDeleteKey(boolean value) {
            set(address, "appendTopicForTimerDeleteKey", value);
        }
    }

    /** The settings of a broker; those that tests change are changed over the network. */
    private static final class OutsideConfig extends BrokerConfig {
        private final String address;

        OutsideConfig(String address) {
            this.address = address;
        }

        @Override
        public void setPopFromRetryProbabilityForPriority(int value) {
            set(address, "popFromRetryProbabilityForPriority", value);
        }

        @Override
        public void setUseSeparateRetryQueue(boolean value) {
            set(address, "useSeparateRetryQueue", value);
        }

        @Override
        public void setPriorityOrderAsc(boolean value) {
            set(address, "priorityOrderAsc", value);
        }

        @Override
        public void setPopConsumerKVServiceEnable(boolean value) {
            Assume.assumeFalse("popConsumerKVServiceEnable needs a restart", value);
        }
    }
}
