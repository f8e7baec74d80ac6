"""`rmq explain`: what the codes mean that errors and exits of commands show.

Every code of rmq, of RocketMQ's servers, of its proxies and of gRPC is here with its
number, so that the command loads neither gRPC nor protobuf. A test compares them with
the enumerations of those.

Source: ResponseCode, RemotingSysResponseCode and the request processors that answer
with them; ReplicasInfoManager and JRaftController of the controller; ResponseBuilder,
GrpcValidator and the activities of the proxy; all in apache/rocketmq. definition.proto
(Code) in apache/rocketmq-apis.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.cli.options import Common, argument, command_options
from rmqcli.cli.ui.errors import unknown_name
from rmqcli.cli.ui.messages import screen_size, wrap_words
from rmqcli.cli.ui.output import Column, emit_json, row_of

if TYPE_CHECKING:
    from collections.abc import Iterable

COLUMNS = (
    Column("code", "the number"),
    Column("name", "its name"),
    Column("kind", "exit code, response code, proxy code or gRPC status"),
    Column("said_by", "who says it"),
    Column("meaning", "what it means"),
    Column("cause", "what usually causes it; null if there is nothing to say"),
    Column("advice", "one thing to try; null if there is nothing to do"),
)
_LINE_MAX: Final = 100


_VERBOSE = "Run the command again with -v, which shows the server's own text."
_NEVER = "No server of the open source RocketMQ is known to answer with it."
_BROKER, _PROXY, _CONTROLLER = "a broker", "a proxy", "a controller"
_GRPC = "a proxy, or gRPC in the client"
_ANY = "a broker, a name server or a proxy"
_LATER = "Try again in a moment."
_STORED = "The message need not be sent again."
_ACL_4 = " Brokers of 4.x say with this number that a change of access control failed."

_EXIT_CODES = (
    (0, "OK", "rmq", "Everything that was asked for was done.", None, None),
    (1, "FAILED", "rmq", "The command failed for a reason that has no exit code.",
     "A server refused the request, or a file cannot be read or written.", _VERBOSE),
    (2, "USAGE", "rmq",
     "Options, arguments or a file of settings cannot be used as they are.",
     "A misspelt option, options that exclude each other, or an unknown profile.",
     "See the options with: rmq help COMMAND"),
    (3, "NOT_FOUND", "rmq",
     "A topic, group, queue, message, broker or cluster does not exist.",
     "A misspelt name, or the name servers of another cluster.",
     "See what there is with: rmq cluster"),
    (4, "DENIED", "rmq", "Credentials are missing or wrong, or do not suffice.",
     ("No credentials, an account without the right, or a topic that may not be read"
     " or written."), "See which rule decides with: rmq acl explain"),
    (5, "UNREACHABLE", "rmq", "There was no connection, or no answer in time.",
     "A wrong address, a server that does not run, or a network that is down or slow.",
     "Check NAMESRV_ADDR or the profile, or give more time with --timeout."),
    (6, "PARTIAL", "rmq",
     "Some of what was asked for could not be read or done; the rest is shown.",
     "A broker did not answer, or has left the cluster.",
     "See which servers answer with: rmq doctor"),
    (7, "REFUSED", "rmq", "Nothing was done, to be safe.",
     ("Offsets moved since the plan, the change was not confirmed, the profile forbids"
     " it, or a file would be replaced."), "Follow the hint of the error."),
    (8, "EMPTY", "rmq", "There is nothing to show, and --fail-if-empty was given.",
     None, None),
    (130, "INTERRUPTED", "rmq", "The command was ended by Ctrl-C or SIGTERM.",
     None, None),
    (0, "OK", "rmq check", "The value is within both thresholds.", None, None),
    (1, "WARNING", "rmq check", "The value has passed the threshold of --warn.",
     None, None),
    (2, "CRITICAL", "rmq check", "The value has passed the threshold of --crit.",
     None, None),
    (3, "UNKNOWN", "rmq check", "The value is not known.",
     "A server did not answer, or what was named does not exist.",
     "See which servers answer with: rmq doctor"),
    (0, "OK", "rmq doctor", "No check found anything wrong.", None, None),
    (1, "WARNING", "rmq doctor",
     "A check found something to look at, or could not be done.", None,
     "Follow the advice beside the finding."),
    (2, "PROBLEM", "rmq doctor", "A check found a problem.", None,
     "Follow the advice beside the finding."),
)  # fmt: skip

_RESPONSE_CODES = (
    (0, "SUCCESS", _ANY, "The request succeeded.", None, None),
    (1, "SYSTEM_ERROR", _ANY,
     "The request failed for a reason that has no code of its own.",
     ("An exception in the server, a setting that is off, or credentials that access"
     " control of 4.x denies."), _VERBOSE),
    (2, "SYSTEM_BUSY", _ANY, "The server is overloaded and has not done the request.",
     "Requests waited for too long, or the disk or the page cache is too slow.",
     "Send more slowly, and look at the broker's disk."),
    (3, "REQUEST_CODE_NOT_SUPPORTED", _ANY, "The server does not know the request.",
     ("The server is older than the request, or of another kind: a proxy, for example,"
     " does not do what brokers do."), "See the versions with: rmq brokers"),
    (4, "TRANSACTION_FAILED", "nobody", _NEVER, None, None),
    (10, "FLUSH_DISK_TIMEOUT", _BROKER,
     "The message is stored, but was not flushed to the disk in time.",
     "A slow disk; only brokers with flushDiskType=SYNC_FLUSH wait for it.", _STORED),
    (11, "SLAVE_NOT_AVAILABLE", _BROKER,
     "The message is stored on the master, but no slave was there to copy it.",
     ("The slave is down or too far behind; only brokers with brokerRole=SYNC_MASTER"
     " wait for it. A slave answers with it when a message is recalled there."),
     _STORED),
    (12, "FLUSH_SLAVE_TIMEOUT", _BROKER,
     "The message is stored on the master, but no slave has copied it in time.",
     "A slow slave or network; only brokers with brokerRole=SYNC_MASTER wait for it.",
     _STORED),
    (13, "MESSAGE_ILLEGAL", _BROKER, "The broker refuses the message or the receipt.",
     ("The body is larger than maxMessageSize, the properties than 32 KiB; the delay is"
     " too long; a message of a compaction topic has no key; a receipt handle names a"
     " queue that does not exist."), _VERBOSE),
    (14, "SERVICE_NOT_AVAILABLE", _BROKER, "The broker stores no messages at present.",
     "It is starting or stopping, it is a slave, or its disk is full.",
     "See how full its disks are with: rmq brokers"),
    (15, "VERSION_NOT_SUPPORTED", "the remoting port of a proxy",
     "The request does not name the broker that it is for.",
     "The client is older than RocketMQ 5.",
     "Use a newer client, or connect it to name servers."),
    (16, "NO_PERMISSION", "a broker or a proxy", "The request is not allowed.",
     ("The topic or the broker may not be read or written, the group may not consume,"
     " or the account lacks the right."),
     ("See the topic's permissions with rmq topic show, and the account's with rmq acl"
     " explain.")),
    (17, "TOPIC_NOT_EXIST", "a broker or a name server", "The topic does not exist.",
     "A misspelt name, or no broker that has the topic is registered.",
     "List the topics with: rmq topics"),
    (18, "TOPIC_EXIST_ALREADY", "nobody", _NEVER, None, None),
    (19, "PULL_NOT_FOUND", _BROKER, "The queue has no message at this offset yet.",
     "The consumer has reached the end of the queue.", None),
    (20, "PULL_RETRY_IMMEDIATELY", _BROKER,
     "This pull found nothing, and the next one continues at another offset.",
     "None of the messages matches the filter, or they are no longer stored.", None),
    (21, "PULL_OFFSET_MOVED", _BROKER,
     "The offset is not in the queue; the answer says where to continue.",
     ("Messages were removed before the group consumed them, or the topic was created"
     " again."), "See what was lost with: rmq lag GROUP"),
    (22, "QUERY_NOT_FOUND", "rmq, a broker or a name server",
     "What was asked for is not there.",
     ("The group has committed no offset in the queue, no message has the key, or the"
     " key-value store has no such key."), None),
    (23, "SUBSCRIPTION_PARSE_FAILED", _BROKER, "The filter expression cannot be read.",
     "A mistake in an SQL92 expression or a list of tags.", "Check the expression."),
    (24, "SUBSCRIPTION_NOT_EXIST", _BROKER,
     "The broker does not know the group, or not that it subscribes to this topic.",
     ("The member has just started, or members of one group subscribe to different"
     " topics."), "Compare the subscriptions with: rmq group show GROUP"),
    (25, "SUBSCRIPTION_NOT_LATEST", _BROKER,
     "The member's subscription is newer than the one that the broker knows.",
     "The subscription was changed, and the next heartbeat has not arrived.",
     "If it stays, compare the members with: rmq group show GROUP"),
    (26, "SUBSCRIPTION_GROUP_NOT_EXIST", _BROKER, "The consumer group does not exist.",
     ("A misspelt name, or a broker that does not create groups by itself"
     " (autoCreateSubscriptionGroup=false)."), "List the groups with: rmq groups"),
    (27, "FILTER_DATA_NOT_EXIST", _BROKER,
     "The broker has no compiled filter for the group and topic.",
     "The SQL92 expression is wrong, or the first heartbeat has not arrived.",
     "Check the expression."),
    (28, "FILTER_DATA_NOT_LATEST", _BROKER,
     "The broker's compiled filter is older than the member's expression.",
     "The expression was changed, and the next heartbeat has not arrived.", _LATER),
    (29, "INVALID_PARAMETER", _BROKER, "A value in the request is not possible.",
     ("An illegal name of a topic or group, or an unknown attribute. Brokers before"
     " 5.3.2 answer SYSTEM_ERROR instead."), _VERBOSE),
    (200, "TRANSACTION_SHOULD_COMMIT", "nobody", _NEVER, None, None),
    (201, "TRANSACTION_SHOULD_ROLLBACK", "nobody", _NEVER, None, None),
    (202, "TRANSACTION_STATE_UNKNOW", "nobody", _NEVER, None, None),
    (203, "TRANSACTION_STATE_GROUP_WRONG", "nobody", _NEVER, None, None),
    (204, "NO_BUYER_ID", "nobody", _NEVER, None, None),
    (205, "NOT_IN_CURRENT_UNIT", "nobody", _NEVER, None, None),
    (206, "CONSUMER_NOT_ONLINE", _BROKER,
     "The group, or the member that was named, is not connected to the broker.",
     "It does not run, or its members are connected to a proxy only.",
     "See who is online with: rmq group members GROUP"),
    (207, "CONSUME_MSG_TIMEOUT", _BROKER,
     "A member did not answer in time what the broker asked it.",
     "Its listener is slow, or the member hangs.",
     "See what it does with: rmq group stack GROUP"),
    (208, "NO_MESSAGE", "rmq or a broker", "There is no such message.",
     ("It was deleted or not sent yet, its topic was created again, or its receipt"
     " handle names a message that is no longer stored."),
     "See the topic's offsets with: rmq topic show TOPIC"),
    (209, "POLLING_FULL", _BROKER, "Too many requests wait for messages.",
     "More clients than the broker lets wait at once." + _ACL_4, _LATER),
    (210, "POLLING_TIMEOUT", _BROKER,
     "No message came while a POP request waited, or the request arrived too late.",
     "The topic has nothing new." + _ACL_4, None),
    (211, "BROKER_NOT_EXIST", "rmq, or a container of brokers",
     "A broker or a cluster of this name does not exist.",
     "A misspelt name, or a broker that is not registered." + _ACL_4,
     "List the brokers with: rmq brokers"),
    (212, "BROKER_DISPATCH_NOT_COMPLETE", "nobody", _NEVER, None, None),
    (213, "BROADCAST_CONSUMPTION", "mqadmin",
     "The group consumes in broadcasting mode, so brokers do not know its offsets.",
     None, None),
    (215, "FLOW_CONTROL", "nobody", _NEVER + " Clients take it as a reason to wait.",
     None, None),
    (501, "NOT_LEADER_FOR_QUEUE", _BROKER,
     "The broker does not have this queue of a static topic.",
     "The queue has moved to another broker, or the topic is not mapped here.",
     _LATER),
    (604, "ILLEGAL_OPERATION", _BROKER,
     "The message can no longer be recalled, or the transaction no longer be ended.",
     ("Its delivery time is over, the handle is of another topic or broker, or the time"
     " before the broker's first check is over."), _VERBOSE),
    (1500, "GO_AWAY", "a server that shuts down",
     "The request was not done; the client is to connect again.",
     "The server is being restarted.", _LATER),
    (2000, "CONTROLLER_FENCED_MASTER_EPOCH", _CONTROLLER,
     "The controller refuses the new set of replicas that are in sync.",
     "The broker has become master anew since, and sent the number of before.", None),
    (2001, "CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH", _CONTROLLER,
     "The controller refuses the new set of replicas that are in sync.",
     "The master has based it on an older set than the controller's.", None),
    (2002, "CONTROLLER_INVALID_MASTER", _CONTROLLER,
     "The controller refuses the new set of replicas that are in sync.",
     "The broker that sent it is not the master any more.",
     "See which broker is master with: rmq brokers"),
    (2003, "CONTROLLER_INVALID_REPLICAS", _CONTROLLER,
     "The controller refuses the new set of replicas that are in sync.",
     "It has a broker that is not registered with the controller.",
     "See what is registered with: mqadmin getSyncStateSet"),
    (2004, "CONTROLLER_MASTER_NOT_AVAILABLE", _CONTROLLER,
     "The old master is down, and no other broker can become master.",
     "None of the replicas that are in sync is alive.",
     "Start the old master, or a replica that was in sync."),
    (2005, "CONTROLLER_INVALID_REQUEST", _CONTROLLER,
     "The heartbeat of a broker does not name its broker ID.", None, None),
    (2006, "CONTROLLER_BROKER_NOT_ALIVE", _CONTROLLER,
     "The controller refuses the new set of replicas that are in sync.",
     "It has a broker that sends the controller no heartbeats.",
     "See which brokers answer with: rmq brokers"),
    (2007, "CONTROLLER_NOT_LEADER", _CONTROLLER,
     "This controller does not decide: another one is the leader.",
     "The leader has changed, or there is none because too few controllers run.",
     "See which one leads with: mqadmin getControllerMetaData"),
    (2008, "CONTROLLER_BROKER_METADATA_NOT_EXIST", _CONTROLLER,
     "The controller does not know the broker.",
     "A misspelt name, or a broker that is not registered with it.",
     "See the brokers with: rmq brokers"),
    (2009, "CONTROLLER_INVALID_CLEAN_BROKER_METADATA", _CONTROLLER,
     "What the controller knows of the broker was not removed.",
     "The broker is alive, it is not known, or its IDs were not numbers.", _VERBOSE),
    (2010, "CONTROLLER_BROKER_NEED_TO_BE_REGISTERED", _CONTROLLER,
     "The broker must be registered with the controller first.",
     "It is new, or was removed from the controller.",
     "Restart the broker: it registers itself when it starts."),
    (2011, "CONTROLLER_MASTER_STILL_EXIST", _CONTROLLER,
     "No new master was elected, because the old one is alive.", None, None),
    (2012, "CONTROLLER_ELECT_MASTER_FAILED", _CONTROLLER,
     "No broker could become master.",
     "None of the replicas that are in sync, or not the one that was named, is alive.",
     "See which brokers answer with: rmq brokers"),
    (2013, "CONTROLLER_ALTER_SYNC_STATE_SET_FAILED", _CONTROLLER,
     "The controller did not take the new set of replicas that are in sync.",
     ("It does not know the broker, the set is the one that it has, or the set lacks"
     " the master."), _VERBOSE),
    (2014, "CONTROLLER_BROKER_ID_INVALID", _CONTROLLER,
     "The broker does not get the ID that it asked for.",
     ("Another broker of this name has it, or the controller knows none of this name,"
     " and the ID is not the first."), _VERBOSE),
    (2015, "CONTROLLER_JRAFT_INTERNAL_ERROR", _CONTROLLER,
     "The controllers could not agree on the request.",
     "The leader changed meanwhile, or too few controllers run.", _VERBOSE),
    (2016, "CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS", _CONTROLLER,
     "The controller has no heartbeat of the broker.",
     "The broker is down, or has just been started.", _LATER),
    (2017, "LMQ_QUOTA_EXCEEDED", _BROKER,
     "The broker has more light queues, as of lite topics, than it allows.",
     "The limit is its setting maxLmqConsumeQueueNum.", "Use fewer lite topics."),
    (2018, "LITE_SUBSCRIPTION_QUOTA_EXCEEDED", _BROKER,
     "The client subscribes to more lite topics than the broker allows.", None,
     "Subscribe to fewer lite topics."),
    (3001, "USER_NOT_EXIST", "rmq", "The user of access control does not exist.",
     "A misspelt name, or a user of another broker.",
     "List the users with: rmq acl user list"),
    (3002, "POLICY_NOT_EXIST", "rmq", "The rule of access control does not exist.",
     "A misspelt user or resource, or a rule of another broker.",
     "List the rules with: rmq acl rule list"),
)  # fmt: skip

_PROXY_CODES = (
    (0, "CODE_UNSPECIFIED", "The answer has no code.",
     "The server is not a proxy of RocketMQ, or a newer one.", _VERBOSE),
    (20000, "OK", "The call succeeded.", None, None),
    (30000, "MULTIPLE_RESULTS", "Each message of the call has a result of its own.",
     None, None),
    (40000, "BAD_REQUEST", "The call lacks something, or has a value out of range.",
     None, _VERBOSE),
    (40001, "ILLEGAL_ACCESS_POINT", "The address is not possible.", None,
     "Check the address that the client was given."),
    (40002, "ILLEGAL_TOPIC", "The name of the topic is not allowed.",
     "Illegal characters, a name that is too long, or a system topic.",
     "Use another topic."),
    (40003, "ILLEGAL_CONSUMER_GROUP", "The name of the group is not allowed.",
     "Illegal characters, a name that is too long, or a system group.",
     "Use another group."),
    (40004, "ILLEGAL_MESSAGE_TAG", "The tag of the message is not allowed.",
     "The tag is blank, or contains | or a control character.", "Use another tag."),
    (40005, "ILLEGAL_MESSAGE_KEY", "A key of the message is not allowed.",
     "The key is blank, or contains a control character.", "Use another key."),
    (40006, "ILLEGAL_MESSAGE_GROUP", "The message group is not allowed.",
     "It is blank, too long, or contains a control character.",
     "Use another message group."),
    (40007, "ILLEGAL_MESSAGE_PROPERTY_KEY", "A property is not allowed.",
     ("Its name is one of RocketMQ's own, or its name or value contains a control"
     " character."), "Use another name."),
    (40008, "INVALID_TRANSACTION_ID", "The transaction ID is not valid.",
     "It is empty.", None),
    (40009, "ILLEGAL_MESSAGE_ID", "The message ID is not valid.",
     "It is empty.", None),
    (40010, "ILLEGAL_FILTER_EXPRESSION", "The filter expression cannot be read.",
     "A mistake in an SQL92 expression or a list of tags.", "Check the expression."),
    (40011, "ILLEGAL_INVISIBLE_TIME", "The invisible time is out of range.",
     "It is shorter or longer than the proxy allows.", _VERBOSE),
    (40012, "ILLEGAL_DELIVERY_TIME", "The delivery time is not allowed.",
     "It is further away than the proxy allows.", "Use a shorter delay."),
    (40013, "INVALID_RECEIPT_HANDLE", "The receipt handle is no longer valid.",
     "The invisible time of the message is over.",
     "Acknowledge earlier, or ask for a longer invisible time."),
    (40014, "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE",
     "The topic does not accept this kind of message.",
     "A delayed, ordered or transactional message to a topic of another message.type.",
     "See the topic's type with: rmq topic show TOPIC"),
    (40015, "UNRECOGNIZED_CLIENT_TYPE", "The proxy does not know the client.",
     "The client has sent no settings yet, or the proxy was restarted.", _LATER),
    (40016, "MESSAGE_CORRUPTED", "The message is damaged.",
     ("A call without messages, or with messages to several topics; or a body whose"
     " checksum differs."), _VERBOSE),
    (40017, "CLIENT_ID_REQUIRED", "The call does not name its client.",
     "The header x-mq-client-id is missing.", "Use a client of RocketMQ 5."),
    (40018, "ILLEGAL_POLLING_TIME", "The time to wait for messages is too short.",
     "The call's deadline leaves the proxy no time to wait.",
     "Give more time with --timeout."),
    (40019, "ILLEGAL_OFFSET", "The offset is not possible.", None, _VERBOSE),
    (40020, "ILLEGAL_LITE_TOPIC", "The name of the lite topic is not allowed.",
     None, "Use another lite topic."),
    (40100, "UNAUTHORIZED", "The call is not signed, or the account may not do this.",
     "Credentials are missing or wrong, or do not suffice.",
     "See which rule decides with: rmq acl explain"),
    (40200, "PAYMENT_REQUIRED", "The account is suspended because it has not paid.",
     "Only a hosted RocketMQ answers with it.", None),
    (40300, "FORBIDDEN", "The topic may not be read or written.",
     "The topic has no readable, or no writable queue.",
     "See the topic's permissions with: rmq topic show TOPIC"),
    (40400, "NOT_FOUND", "What was named does not exist.", None, _VERBOSE),
    (40401, "MESSAGE_NOT_FOUND", "No message came while the call waited.",
     "The topic has nothing new that matches the filter.", None),
    (40402, "TOPIC_NOT_FOUND", "The topic does not exist.",
     ("A misspelt name, or no broker that has the topic is registered. A proxy creates"
     " no topics."), "Create it with: rmq topic create TOPIC"),
    (40403, "CONSUMER_GROUP_NOT_FOUND", "The consumer group does not exist.",
     "A misspelt name, or a broker that does not create groups by itself.",
     "Create it with: rmq group create GROUP"),
    (40404, "OFFSET_NOT_FOUND", "The group has committed no offset there.",
     None, None),
    (40800, "REQUEST_TIMEOUT", "The client was too slow.", None, _LATER),
    (41300, "PAYLOAD_TOO_LARGE", "The call is larger than the server allows.",
     None, "Send smaller messages."),
    (41301, "MESSAGE_BODY_TOO_LARGE",
     "The body of the message is larger than the proxy allows.",
     "The limit is the proxy's maxMessageSize.", "Send smaller messages."),
    (41302, "MESSAGE_BODY_EMPTY", "The message has no body.",
     "The proxy is set to refuse empty bodies.", "Send a body."),
    (42800, "PRECONDITION_FAILED", "The client is not ready for this call.",
     None, _VERBOSE),
    (42900, "TOO_MANY_REQUESTS", "The proxy or the broker is overloaded.",
     "Too many calls at once, or too many that wait for messages.", _LATER),
    (42901, "LITE_TOPIC_QUOTA_EXCEEDED", "There are too many lite topics.",
     None, "Use fewer lite topics."),
    (42902, "LITE_SUBSCRIPTION_QUOTA_EXCEEDED",
     "The client subscribes to more lite topics than the broker allows.", None,
     "Subscribe to fewer lite topics."),
    (43100, "REQUEST_HEADER_FIELDS_TOO_LARGE", "The headers of the call are too large.",
     None, _VERBOSE),
    (43101, "MESSAGE_PROPERTIES_TOO_LARGE", "The message has too many properties.",
     "Their number or their size is larger than the proxy allows.",
     "Send fewer or shorter properties."),
    (50000, "INTERNAL_ERROR", "The call failed for a reason without a code.",
     None, _VERBOSE),
    (50001, "INTERNAL_SERVER_ERROR", "The call failed for a reason without a code.",
     "The proxy passes nearly every error of a broker on as this one.", _VERBOSE),
    (50002, "HA_NOT_AVAILABLE",
     "The message is stored on the master, but no slave was there to copy it.",
     "The slave is down or too far behind.", _STORED),
    (50100, "NOT_IMPLEMENTED", "The proxy, or its broker, cannot do this.",
     "It is older than the request, or the feature is switched off.", _VERBOSE),
    (50400, "PROXY_TIMEOUT",
     "The broker did not answer the proxy in time; it may have done the request.",
     "The broker is down, slow, or cannot be reached from the proxy.",
     "See which brokers answer with: rmq doctor"),
    (50401, "MASTER_PERSISTENCE_TIMEOUT",
     "The message is stored, but was not flushed to the disk in time.",
     "A slow disk; only brokers with flushDiskType=SYNC_FLUSH wait for it.", _STORED),
    (50402, "SLAVE_PERSISTENCE_TIMEOUT",
     "The message is stored on the master, but no slave has copied it in time.",
     "A slow slave or network.", _STORED),
    (50500, "UNSUPPORTED", "The operation is not supported.", None, _VERBOSE),
    (50501, "VERSION_UNSUPPORTED", "This version does not support the operation.",
     None, "Use a newer version."),
    (50502, "VERIFY_FIFO_MESSAGE_UNSUPPORTED",
     "A member of an ordered group does not consume a single message on request.",
     "That would break the order of messages.", None),
    (60000, "FAILED_TO_CONSUME_MESSAGE", "The listener of a member failed.",
     "An exception in the listener.", "Look at the log of the member."),
)  # fmt: skip

_GRPC_STATUSES = (
    (0, "OK", "The call succeeded.", None, None),
    (1, "CANCELLED", "The call was cancelled.",
     "The client, or a load balancer on the way, has given it up.", _LATER),
    (2, "UNKNOWN", "The server failed without saying why.", None, _VERBOSE),
    (3, "INVALID_ARGUMENT", "The proxy refuses the client's settings.",
     None, _VERBOSE),
    (4, "DEADLINE_EXCEEDED", "No answer came in time; the request may be done.",
     "The proxy or its broker is slow, or the port is not that of a proxy.",
     "Give more time with --timeout."),
    (5, "NOT_FOUND", "What was named does not exist.", None, _VERBOSE),
    (6, "ALREADY_EXISTS", "What was to be created exists.", None, _VERBOSE),
    (7, "PERMISSION_DENIED", "The caller may not do this.", None,
     "Check the credentials."),
    (8, "RESOURCE_EXHAUSTED", "A limit is reached.",
     "The server is overloaded, or a message is larger than gRPC allows.", _VERBOSE),
    (9, "FAILED_PRECONDITION", "The server is not in a state to do this.",
     None, _VERBOSE),
    (10, "ABORTED", "The server has given the call up.", None, _LATER),
    (11, "OUT_OF_RANGE", "A value is out of range.", None, _VERBOSE),
    (12, "UNIMPLEMENTED", "The server does not know the call.",
     "It is older than the call, or not a proxy of RocketMQ.",
     "Check that this is the gRPC port of a proxy, usually 8081."),
    (13, "INTERNAL", "The server, or gRPC itself, failed.", None, _VERBOSE),
    (14, "UNAVAILABLE", "There is no connection, or it ended during the call.",
     ("The proxy does not run, the address is wrong, or one side uses TLS and the other"
     " does not."), "Check the address, and --plaintext."),
    (15, "DATA_LOSS", "Data was lost or damaged.", None, _VERBOSE),
    (16, "UNAUTHENTICATED", "The caller's credentials are missing or wrong.", None,
     "Check the credentials."),
)  # fmt: skip


class Meaning(NamedTuple):
    """What a code means; the fields are those of `COLUMNS`."""

    code: int
    name: str
    kind: str
    said_by: str
    meaning: str
    cause: str | None
    advice: str | None


def meanings() -> list[Meaning]:
    """Return what each code means, those of rmq first."""
    return [
        Meaning(code, name, kind, said_by, meaning, cause, advice)
        for kind, rows in (
            ("exit code", _EXIT_CODES),
            ("response code", _RESPONSE_CODES),
            ("proxy code", ((*row[:2], _PROXY, *row[2:]) for row in _PROXY_CODES)),
            ("gRPC status", ((*row[:2], _GRPC, *row[2:]) for row in _GRPC_STATUSES)),
        )
        for code, name, said_by, meaning, cause, advice in rows
    ]


@command_options(
    formats=("table", "json"), fields=COLUMNS, connects=False, changes=False
)
def explain(
    common: Common,
    code: str = argument(
        help="An exit code, or the number or name of a server's code.",
        words=tuple(sorted({each.name for each in meanings()})),
    ),
) -> None:
    """Explain an exit code, or a code of a server's answer.

    Example: rmq explain NO_PERMISSION

    A number or a name may mean several things; all of them are shown. Errors have the
    server's code in the JSON of -o json, and name it in their text. No server is asked.
    """
    found = _find(code)
    if common.output == "json":
        emit_json([row_of(COLUMNS, each) for each in found])
    else:
        sys.stdout.write("\n".join(_text(found)))


def _find(text: str) -> list[Meaning]:
    """Return the meanings of a number or name. Raises UsageError if there is none."""
    name = text.upper().replace("-", "_")
    known = meanings()
    found = [each for each in known if name in (each.name, str(each.code))]
    if not found:
        names = {each.name for each in known}
        raise unknown_name("code", name, sorted(names), help_command="rmq explain")
    return found


def _text(found: Iterable[Meaning]) -> Iterable[str]:
    width = min(screen_size(sys.stdout).columns, _LINE_MAX)
    for each in found:
        lines = [f"{each.code} {each.name}: {each.kind}, said by {each.said_by}"]
        for title, words in (
            ("means", each.meaning),
            ("cause", each.cause),
            ("try", each.advice),
        ):
            if words:
                text = f"{title}: {words}"
                lines += wrap_words(text, max(width, 40), first="  ", rest="    ")
        yield "".join(f"{line}\n" for line in lines)
