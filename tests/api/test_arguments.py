"""Each function that makes a request sends the right code, and all its arguments."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import textwrap
from typing import Any

from rmqcli.api import calls
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.acl import AclInfo, PolicyInfo, UserWithPassword
from rmqcli.wire.bodies.config import SubscriptionGroupConfig, TopicConfig
from rmqcli.wire.bodies.heartbeat import HeartbeatData
from rmqcli.wire.header import BoundaryType
from rmqcli.wire.headers.client import ConsumerSendMsgBackRequestHeader
from rmqcli.wire.headers.send import (
    EndTransactionRequestHeader,
    SendMessageRequestHeaderV2,
)
from rmqcli.wire.receipt_handle import ReceiptHandle
from rmqcli.wire.subscription import SubscriptionData
from rmqcli.wire.version import version_name
from tests.kit.rows import each_row

#: Two values for the arguments of each type, by annotation; neither is a default.
VALUES: dict[str, tuple[Any, ...]] = {
    "str": ("one", "two"),
    "str | None": ("one", "two"),
    "int": (41, 42),
    "int | None": (41, 42),
    "bool": (False, True),
    "bool | None": (False, True),
    "bytes": (b"one", b"two"),
    "BoundaryType | None": (BoundaryType.LOWER, BoundaryType.UPPER),
    "MessageQueue": tuple(MessageQueue("t", "broker-a", each) for each in (1, 2)),
    "Sequence[MessageQueue]": tuple(
        (MessageQueue("t", "broker-a", each),) for each in (1, 2)
    ),
    "SubscriptionData": (SubscriptionData(topic="one"), SubscriptionData(topic="two")),
    "Mapping[str, str]": ({"one": "1"}, {"two": "2"}),
    "Collection[str]": (("one",), ("two",)),
    "Sequence[TopicConfig]": tuple(
        (TopicConfig(topic_name=each),) for each in ("one", "two")
    ),
    "Sequence[SubscriptionGroupConfig]": tuple(
        (SubscriptionGroupConfig(group_name=each),) for each in ("one", "two")
    ),
    "list[PolicyInfo]": ([PolicyInfo()], []),
    "HeartbeatData": (HeartbeatData(client_id="one"), HeartbeatData(client_id="two")),
}


def handle(offset):
    return ReceiptHandle(
        start_offset=1,
        pop_time_ms=2,
        invisible_ms=3,
        revive_queue_id=4,
        topic_type="0",
        broker_name="broker-a",
        queue_id=5,
        offset=offset,
        commit_log_offset=6,
    )


VALUES["ReceiptHandle"] = handle(7), handle(8)
VALUES["Iterable[tuple[str, ReceiptHandle]]"] = tuple(
    [("one", handle(each))] for each in (7, 8)
)


def objects(kind):
    """For each field of a header or body, two objects that differ only there."""
    kinds = {
        name: str(each.annotation)
        for name, each in inspect.signature(kind).parameters.items()
        if str(each.annotation) in VALUES
    }
    first = {name: VALUES[each][0] for name, each in kinds.items()}
    for name, each in kinds.items():
        yield name, kind(**first), kind(**first | {name: VALUES[each][1]})


#: Arguments that are the whole content of a request: each of their fields counts.
CONTENTS = {
    "AclInfo": AclInfo,
    "UserWithPassword": UserWithPassword,
    "TopicConfig": TopicConfig,
    "SubscriptionGroupConfig": SubscriptionGroupConfig,
    "ConsumerSendMsgBackRequestHeader": ConsumerSendMsgBackRequestHeader,
    "EndTransactionRequestHeader": EndTransactionRequestHeader,
    "SendMessageRequestHeaderV2": SendMessageRequestHeaderV2,
}

FUNCTIONS = [
    function
    for module in pkgutil.iter_modules(calls.__path__)
    for name, function in inspect.getmembers(
        importlib.import_module(f"rmqcli.api.calls.{module.name}"), inspect.isfunction
    )
    if function.__module__ == f"rmqcli.api.calls.{module.name}"
    and name[0] != "_"
    and "__mutmut_" not in name
]


#: function; its code; the oldest version that answers it; the codes of answers that
#: are parsed; what errors call it
REQUESTS = """
create_user; 3001; 5.3.0; 0; creation of user one
delete_acl; 3008; 5.3.0; 0; deletion of the rule of one for one
delete_user; 3003; 5.3.0; 0; deletion of user one
get_acl_config; 54; any; 0; accounts of access control 1.0
get_user_with_password; 3004; 5.3.0; 0; user one
list_acls; 3010; 5.3.0; 0; list of rules
list_users; 3005; 5.3.0; 0; list of users
put_acl; 3006; 5.3.0; 0; rules of one
update_user; 3002; 5.3.0; 0; change of user one
consumer_send_msg_back; 36; any; 0; send-back of one for group one
lock_batch_mq; 41; any; 0; locks of 1 queue for group one
send_heartbeat; 34; any; 0; heartbeat of one
unlock_batch_mq; 42; any; 0; unlocking of 1 queue of group one
unregister_client; 35; any; 0; unregistration of client one
clean_expired_consume_queue; 306; any; 0; clean-up of queues
clean_unused_topic; 316; any; 0; clean-up of topics
create_subscription_groups; 225; 5.3.1; 0; settings of 1 group
create_topics; 18; 5.3.0; 0; settings of 1 topic
delete_subscription_group; 207; any; 0; deletion of group one
delete_topic_in_broker; 215; any; 0; deletion of topic one
get_all_subscription_group_config; 201; any; 0; settings of all groups
get_all_topic_config; 21; any; 0; settings of all topics
get_broker_config; 26; any; 0; broker settings
get_broker_ha_status; 907; 5.0.0; 0; replication status
get_broker_runtime_info; 28; any; 0; runtime info
get_subscription_group_config; 352; 5.0.0; 0; settings of group one
get_subscription_group_names; 201; any; 0; settings of all groups
get_subscription_groups; 201; any; 0; settings of all groups
get_topic_config; 351; 5.0.0; 0; settings of topic one
get_topic_tables; 21; any; 0; settings of all topics
put_topic; 17; any; 0; settings of topic one
update_and_create_subscription_group; 200; any; 0; settings of group one
update_and_create_topic; 17; any; 0; settings of topic one
update_broker_config; 25; any; 0; change of broker settings
check_client_config; 46; any; 0; check of TAG for topic one
consume_message_directly; 309; any; 0; consumption by one
get_consumer_connection_list; 203; any; 0 206; members of group one
get_consumer_list_by_group; 38; any; 0; client ids of group one
get_consumer_running_info; 307; any; 0; running info of one
query_topics_by_consumer; 343; 5.0.0; 0; topics of group one
get_controller_metadata; 1005; any; 0; controllers
get_sync_state_data; 1006; any; 0; SyncStateSet of brokers
delete_topic_in_namesrv; 216; any; 0; deletion of topic one
get_all_topic_list; 206; any; 0; topic list
get_broker_cluster_info; 106; any; 0; cluster info
get_route_info_by_topic; 105; any; 0; route of topic one
add_write_perm_of_broker; 327; 4.9.2; 0; giving one the write permission
delete_kv_config; 102; any; 0; removal of one in one
get_kv_config; 101; any; 0 22; value of one in one
get_kvlist_by_namespace; 219; any; 0 22; values of one
get_namesrv_config; 319; any; 0; settings of the name server
put_kv_config; 100; any; 0; setting of one in one
update_namesrv_config; 318; any; 0; change of name server settings
wipe_write_perm_of_broker; 205; any; 0; taking the write permission of one
get_all_consumer_offset; 43; any; 0; committed offsets of all groups
get_earliest_msg_storetime; 32; any; 0; time of the oldest message of one:41
get_max_offset; 30; any; 0; max offset of one:41
get_min_offset; 31; any; 0; min offset of one:41
invoke_broker_to_reset_offset; 222; any; 0; reset of group one in one
query_consumer_offset; 14; any; 0 22; committed offset of group one in one:41
search_offset_by_timestamp; 29; any; 0; offset by time of one:41
update_consumer_offset; 15; any; 0; commit of group one in one:41
ack_message; 200051; 5.0.0; 0; ack of group one in one:5
batch_ack_message; 200151; 5.1.3; 0; acks of group one at one
change_invisible_time; 200053; 5.0.0; 0; change of invisible time of group one in one:5
orderly_pop_has_messages; 200054; 5.0.0; 0; messages of one:41 for group one
pop_message; 200050; 5.0.0; 0 19 209 210; pop of topic one for group one
end_transaction; 37; any; 0; end of transaction one of one
get_all_producer_info; 328; 4.9.4; 0; producers
get_producer_connection_list; 204; any; 0 1; producers of group one
recall_message; 370; 5.3.1; 0; recall of a message of topic one
pull_for_group; 11; any; 0 19 20 21; pull of t@broker-a:1
pull_message; 11; any; 0 19 20 21; pull of t@broker-a:1
send_batch_message; 320; any; 0 10 11 12; batch send to topic one
send_message; 310; any; 0 10 11 12; send to topic one
get_consume_stats; 208; any; 0; consume stats of group one
get_topic_stats_info; 202; any; 0; stats of topic one
query_consume_time_span; 303; any; 0; time span of group one in one
query_topic_consume_by_who; 300; any; 0; groups of topic one
query_consume_queue; 321; any; 0; entries of one:41
query_message; 12; any; 0 22; messages of topic one with key one
view_message_by_id; 33; any; 0; message at commit log offset 41
"""

#: The fields of each request's header, of those that have any.
HEADERS = """
create_user: username=one
delete_acl: subject=one policyType=one resource=one
delete_user: username=one
get_user_with_password: username=one
put_acl: subject=one
update_user: username=one
consumer_send_msg_back: offset=41 group=one delayLevel=41 originMsgId=one
    originTopic=one unitMode=false maxReconsumeTimes=41
unregister_client: clientID=one producerGroup=one consumerGroup=one
delete_subscription_group: groupName=one removeOffset=false cleanOffset=false
delete_topic_in_broker: topic=one
get_subscription_group_config: group=one
get_topic_config: topic=one lo=true
put_topic: topic=one defaultTopic=TBW102 readQueueNums=41 writeQueueNums=41 perm=41
    topicFilterType=one topicSysFlag=41 order=false
update_and_create_topic: topic=one defaultTopic=TBW102 readQueueNums=41
    writeQueueNums=41 perm=41 topicFilterType=one topicSysFlag=41 order=false
    attributes=-one
consume_message_directly: consumerGroup=one clientId=one msgId=one topic=one
get_consumer_connection_list: consumerGroup=one
get_consumer_list_by_group: consumerGroup=one
get_consumer_running_info: consumerGroup=one clientId=one jstackEnable=false
query_topics_by_consumer: group=one
delete_topic_in_namesrv: topic=one clusterName=one
get_route_info_by_topic: topic=one acceptStandardJsonOnly=true
add_write_perm_of_broker: brokerName=one
delete_kv_config: namespace=one key=one
get_kv_config: namespace=one key=one
get_kvlist_by_namespace: namespace=one
put_kv_config: namespace=one key=one value=one
wipe_write_perm_of_broker: brokerName=one
get_earliest_msg_storetime: topic=one queueId=41
get_max_offset: topic=one queueId=41
get_min_offset: topic=one queueId=41
invoke_broker_to_reset_offset: topic=one group=one timestamp=41 isForce=false
    queueId=41 offset=41
query_consumer_offset: consumerGroup=one topic=one queueId=41
    setZeroIfNotFound=false
search_offset_by_timestamp: topic=one queueId=41 timestamp=41
update_consumer_offset: consumerGroup=one topic=one queueId=41 commitOffset=41
ack_message: consumerGroup=one topic=one queueId=5 extraInfo=1 2 3 4 0 broker-a 5 7
    6 offset=7
change_invisible_time: consumerGroup=one topic=one queueId=5 extraInfo=1 2 3 4 0
    broker-a 5 7 6 offset=7 invisibleTime=41 suspend=false
orderly_pop_has_messages: consumerGroup=one topic=one queueId=41 pollTime=0
    bornTime=0 order=true
pop_message: consumerGroup=one topic=one queueId=-1 maxMsgNums=41 invisibleTime=41
    pollTime=41 bornTime=0 initMode=1 expType=one exp=one order=false
end_transaction: topic=one producerGroup=one tranStateTableOffset=41
    commitLogOffset=41 commitOrRollback=41 fromTransactionCheck=false msgId=one
    transactionId=one
get_producer_connection_list: producerGroup=one
recall_message: topic=one recallHandle=one
pull_for_group: consumerGroup=one topic=t queueId=1 queueOffset=41 maxMsgNums=41
    commitOffset=41 suspendTimeoutMillis=41 subVersion=41 expressionType=one
    bname=broker-a maxMsgBytes=262144 subscription=one sysFlag=7
pull_message: consumerGroup=TOOLS_CONSUMER topic=t queueId=1 queueOffset=41
    maxMsgNums=41 sysFlag=6 commitOffset=0 suspendTimeoutMillis=41 subVersion=0
    subscription=one expressionType=one
send_batch_message: a=one b=one c=one d=41 e=41 f=41 g=41 h=41 i=one j=41 k=false
    l=41 m=false n=one
send_message: a=one b=one c=one d=41 e=41 f=41 g=41 h=41 i=one j=41 k=false l=41
    m=false n=one
get_consume_stats: consumerGroup=one topic=one
get_topic_stats_info: topic=one
query_consume_time_span: topic=one group=one
query_topic_consume_by_who: topic=one
query_consume_queue: topic=one queueId=41 index=41 count=41
query_message: topic=one key=one maxNum=41 beginTimestamp=41 endTimestamp=41
view_message_by_id: offset=41 topic=one
"""


def pairs(function):
    """For each argument, and each field of a content, two calls that differ there."""
    kinds = {
        name: str(each.annotation)
        for name, each in inspect.signature(function).parameters.items()
    }
    first = {
        name: next(objects(CONTENTS[each]))[1] if each in CONTENTS else VALUES[each][0]
        for name, each in kinds.items()
    }
    for name, each in kinds.items():
        if each in CONTENTS:
            for field, one, two in objects(CONTENTS[each]):
                yield f"{name}.{field}", first | {name: one}, first | {name: two}
        else:
            yield name, first, first | {name: VALUES[each][1]}


@each_row("function", FUNCTIONS, ids=lambda each: each.__name__)
def test_requests_with_different_arguments_differ(function):
    lost = []
    for name, one, two in pairs(function):
        first, second = function(**one), function(**two)
        if (first.ext_fields, first.body) == (second.ext_fields, second.body):
            lost.append(name)
    assert lost == []


def test_requests_have_the_right_code_and_ask_no_broker_that_does_not_answer_them():
    """A broker before 4.9.2 does not answer a code that it does not know."""
    found = []
    for function in FUNCTIONS:
        _, arguments, _ = next(pairs(function), ("", {}, {}))
        call = function(**arguments)
        version = version_name(call.needs_version) if call.needs_version else "any"
        ok_codes = " ".join(map(str, sorted(call.ok_codes)))
        row = function.__name__, str(call.code), version, ok_codes, str(call.what)
        found.append("; ".join(row))
    assert found == REQUESTS.split("\n")[1:-1]


def test_requests_carry_the_whole_header():
    """Also where the body has the same names: brokers may read those of the header."""
    rows = [_header_row(function) for function in FUNCTIONS]
    assert "\n".join(filter(None, rows)).split("\n") == HEADERS.split("\n")[1:-1]


def _header_row(function):
    _, arguments, _ = next(pairs(function), ("", {}, {}))
    fields = function(**arguments).ext_fields or {}
    words = " ".join(f"{name}={value}" for name, value in fields.items())
    return fields and textwrap.fill(
        f"{function.__name__}: {words}",
        width=84,
        subsequent_indent="    ",
        break_on_hyphens=False,
    )
