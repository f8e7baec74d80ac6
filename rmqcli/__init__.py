"""Consume, produce and administer Apache RocketMQ.

- `Consumer`: a member of a consumer group, with a listener or as an iterator.
- `SimpleConsumer`: a member that requests its messages and acknowledges them.
- `Producer`: sends messages, with futures, in batches, delayed or in transactions.
- `Admin`: lag, resets, topics, groups, brokers and single messages.
- `connect`: creates all of these for one cluster.
- `RocketMQDataSource`: topics as DataFrames of Apache Spark.

Consumers, producers and an Admin are started the same way: the constructor only checks
its arguments, and `with` or `start` starts them, once. After `close`, or the `with`
block, calls raise UsageError; of a Consumer, `queues`, `offsets` and `running_info` can
still be asked.

The errors that the library raises are `RmqError`s; see `rmqcli.errors` for the tree. A
value that cannot be used is a ConfigError, which is a ValueError, too, and a value of a
wrong type a TypeError. ConnectError and DeadlineError are a ConnectionError and a
TimeoutError. The names are loaded on first use, so that `import rmqcli` costs next to
nothing. Names that are not listed here may change with any version. An embedded cluster
for tests is in `rmqcli.testing`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rmqcli.admin.acl import AclDecision, AclEntries, AclEntry
    from rmqcli.admin.admin import Admin, PlannedReset, ResetResult
    from rmqcli.admin.brokers import (
        BrokerDetail,
        BrokerRow,
        Replica,
        SyncState,
        ThreadPoolQueue,
    )
    from rmqcli.admin.clean import CleanStep
    from rmqcli.admin.cluster import ClusterSummary
    from rmqcli.admin.definitions.apply import DefinitionResult, DefinitionsResult
    from rmqcli.admin.definitions.compare import DefinitionChange, SettingDifference
    from rmqcli.admin.definitions.model import (
        Definition,
        Definitions,
        parse_definitions,
    )
    from rmqcli.admin.definitions.plan import DefinitionsPlan
    from rmqcli.admin.delayed import DelayedMessage, DelayedMessages
    from rmqcli.admin.dlq.listing import GroupLetters, LetterList
    from rmqcli.admin.dlq.read import DeadLetter, DeadLetters
    from rmqcli.admin.dlq.retries import WaitingMessage, WaitingMessages
    from rmqcli.admin.doctor.model import CheckResult, CheckStatus, Diagnosis, Finding
    from rmqcli.admin.drain import DrainPlan, DrainProgress, DrainStep, UnreadGroup
    from rmqcli.admin.groups import (
        GroupDetail,
        GroupList,
        GroupMember,
        GroupResult,
        GroupRow,
        GroupSettings,
    )
    from rmqcli.admin.kv import KVResult, KVValues
    from rmqcli.admin.lag.model import (
        BrokerFailure,
        GroupLag,
        GroupState,
        LagList,
        PopLag,
        TopicLag,
    )
    from rmqcli.admin.message.by_time import TimeSearch
    from rmqcli.admin.message.find import FoundMessages
    from rmqcli.admin.message.gather import MessageOutcome, StoredState
    from rmqcli.admin.message.outcome import GroupVerdict, MessageVerdict
    from rmqcli.admin.message.trace import (
        MessageTrace,
        TraceEvent,
        TraceEventKind,
        TraceGap,
    )
    from rmqcli.admin.producers import ProducerList, ProducerRow
    from rmqcli.admin.recall import RecallPlan
    from rmqcli.admin.resend import ResendPlan, ResendResult
    from rmqcli.admin.reset.backup import Backup
    from rmqcli.admin.reset.cluster_identity import ClusterIdentity
    from rmqcli.admin.reset.plan import EdgeMessage, QueuePlan, ResetPlan
    from rmqcli.admin.reset.result import QueueOutcome, QueueResult
    from rmqcli.admin.settings import (
        SettingResult,
        SettingsDiff,
        SettingsPlan,
        SettingValue,
        ShownSettings,
    )
    from rmqcli.admin.stacks import MemberStacks, StackGroup, StackList
    from rmqcli.admin.topic_counts import TopicCount, TopicCounts
    from rmqcli.admin.topics import (
        TopicBroker,
        TopicDetail,
        TopicList,
        TopicQueue,
        TopicResult,
        TopicRow,
    )
    from rmqcli.admin.transactions import OpenTransaction, OpenTransactions
    from rmqcli.api.calls.send import SendStatus
    from rmqcli.cluster import Cluster, connect
    from rmqcli.config import ClientConfig
    from rmqcli.consumer.consumer import Consumer
    from rmqcli.consumer.simple.consumer import SimpleConsumer
    from rmqcli.consumer.simple.received import ReceivedMessage
    from rmqcli.consumer.subscriptions import sql
    from rmqcli.copy.copy import CopyPlan, CopyQueue, CopyReport
    from rmqcli.copy.library import Copy
    from rmqcli.copy.log import SourceSpan
    from rmqcli.decode.single import Decode, parse_decode
    from rmqcli.engine.allocate import (
        AllocateMachineRoomNearby,
        AllocateMessageQueueAveragely,
        AllocateMessageQueueAveragelyByCircle,
        AllocateMessageQueueByConfig,
        AllocateMessageQueueByMachineRoom,
        AllocateMessageQueueConsistentHash,
        AllocateMessageQueueStrategy,
    )
    from rmqcli.engine.config import ConsumeFromWhere, ConsumerConfig, MessageModel
    from rmqcli.engine.listener import (
        ConsumeConcurrentlyContext,
        ConsumeConcurrentlyStatus,
        ConsumeOrderlyContext,
        ConsumeOrderlyStatus,
    )
    from rmqcli.engine.message import PulledMessage, UndecodableMessage
    from rmqcli.engine.queue_lag import LagState, QueueLag
    from rmqcli.engine.reports import FailedDelivery, Fate, QueueStart, Start
    from rmqcli.errors import (
        AckError,
        BodyError,
        BrokerError,
        BusyError,
        ChangeUnknownError,
        ConfigError,
        ConnectError,
        DeadlineError,
        DecodeError,
        DeniedError,
        DisconnectedError,
        FilterError,
        FrameError,
        HeaderError,
        NoBrokerError,
        NotFoundError,
        PartialError,
        ReceiptHandleError,
        RefusedError,
        RmqError,
        SendUnknownError,
        StaticTopicError,
        StorageDeniedError,
        StorageError,
        StorageNotFoundError,
        StorageUnreachableError,
        TextError,
        TimeLimitError,
        TransportError,
        UnsupportedError,
        UsageError,
        WireError,
    )
    from rmqcli.hint import Hint
    from rmqcli.model import Message, MessageQueue
    from rmqcli.position import (
        Ago,
        AtGroup,
        AtNow,
        AtOffset,
        AtTime,
        Earliest,
        LastN,
        Latest,
        PlusN,
        Position,
        parse_position,
    )
    from rmqcli.producer.backend import SendResult
    from rmqcli.producer.config import ProducerConfig
    from rmqcli.producer.message import ProducerMessage
    from rmqcli.producer.producer import Producer, select_by_hash
    from rmqcli.producer.transactions import (
        LocalTransactionState,
        TransactionSendResult,
    )
    from rmqcli.proxy.message import ProxyMessage
    from rmqcli.redrive.flush import FlushedTopic, FlushPlan
    from rmqcli.redrive.library import (
        FlushReport,
        Redrive,
        RedriveReport,
        RetryFlush,
    )
    from rmqcli.redrive.log import LetterPlace, LetterResult
    from rmqcli.redrive.redrive import LeftOut, RedrivePlan
    from rmqcli.spark.source.data_source import RocketMQDataSource
    from rmqcli.transport.tls import TlsOptions
    from rmqcli.wire.acl import Credentials
    from rmqcli.wire.bodies.config import SubscriptionGroupConfig, TopicConfig
    from rmqcli.wire.bodies.consumer import (
        ConsumerRunningInfo,
        ConsumeStatus,
        PopProcessQueueInfo,
        ProcessQueueInfo,
    )
    from rmqcli.wire.bodies.stats import TopicOffset
    from rmqcli.wire.subscription import SubscriptionData

#: Module -> the public names that are loaded from it on first use.
_NAMES = {
    "rmqcli.admin.acl": "AclDecision AclEntries AclEntry",
    "rmqcli.admin.admin": "Admin PlannedReset ResetResult",
    "rmqcli.admin.brokers": "BrokerDetail BrokerRow Replica SyncState ThreadPoolQueue",
    "rmqcli.admin.clean": "CleanStep",
    "rmqcli.admin.cluster": "ClusterSummary",
    "rmqcli.admin.definitions.apply": "DefinitionResult DefinitionsResult",
    "rmqcli.admin.definitions.compare": "DefinitionChange SettingDifference",
    "rmqcli.admin.definitions.model": "Definition Definitions parse_definitions",
    "rmqcli.admin.definitions.plan": "DefinitionsPlan",
    "rmqcli.admin.doctor.model": "CheckResult CheckStatus Diagnosis Finding",
    "rmqcli.admin.drain": "DrainPlan DrainProgress DrainStep UnreadGroup",
    "rmqcli.admin.groups": (
        "GroupDetail GroupList GroupMember GroupResult GroupSettings GroupRow"
    ),
    "rmqcli.admin.kv": "KVResult KVValues",
    "rmqcli.admin.lag.model": (
        "BrokerFailure GroupLag GroupState LagList PopLag TopicLag"
    ),
    "rmqcli.admin.message.by_time": "TimeSearch",
    "rmqcli.admin.message.find": "FoundMessages",
    "rmqcli.admin.message.gather": "MessageOutcome StoredState",
    "rmqcli.admin.message.outcome": "GroupVerdict MessageVerdict",
    "rmqcli.admin.message.trace": "MessageTrace TraceEvent TraceEventKind TraceGap",
    "rmqcli.admin.delayed": "DelayedMessage DelayedMessages",
    "rmqcli.admin.dlq.listing": "GroupLetters LetterList",
    "rmqcli.admin.dlq.read": "DeadLetter DeadLetters",
    "rmqcli.admin.dlq.retries": "WaitingMessage WaitingMessages",
    "rmqcli.admin.settings": (
        "SettingResult SettingValue SettingsDiff SettingsPlan ShownSettings"
    ),
    "rmqcli.admin.transactions": "OpenTransaction OpenTransactions",
    "rmqcli.admin.producers": "ProducerList ProducerRow",
    "rmqcli.admin.recall": "RecallPlan",
    "rmqcli.admin.resend": "ResendPlan ResendResult",
    "rmqcli.admin.stacks": "MemberStacks StackGroup StackList",
    "rmqcli.admin.reset.backup": "Backup",
    "rmqcli.admin.reset.cluster_identity": "ClusterIdentity",
    "rmqcli.wire.bodies.config": "SubscriptionGroupConfig TopicConfig",
    "rmqcli.wire.bodies.consumer": (
        "ConsumeStatus ConsumerRunningInfo PopProcessQueueInfo ProcessQueueInfo"
    ),
    "rmqcli.wire.bodies.stats": "TopicOffset",
    "rmqcli.admin.reset.plan": "EdgeMessage QueuePlan ResetPlan",
    "rmqcli.admin.reset.result": "QueueOutcome QueueResult",
    "rmqcli.admin.topic_counts": "TopicCount TopicCounts",
    "rmqcli.admin.topics": (
        "TopicBroker TopicDetail TopicList TopicQueue TopicResult TopicRow"
    ),
    "rmqcli.hint": "Hint",
    "rmqcli.position": (
        "Ago AtGroup AtOffset AtTime Earliest LastN Latest AtNow PlusN Position "
        "parse_position"
    ),
    "rmqcli.api.calls.send": "SendStatus",
    "rmqcli.cluster": "Cluster connect",
    "rmqcli.copy.copy": "CopyPlan CopyQueue CopyReport",
    "rmqcli.copy.library": "Copy",
    "rmqcli.copy.log": "SourceSpan",
    "rmqcli.decode.single": "Decode parse_decode",
    "rmqcli.redrive.flush": "FlushedTopic FlushPlan",
    "rmqcli.redrive.library": "FlushReport Redrive RedriveReport RetryFlush",
    "rmqcli.redrive.log": "LetterPlace LetterResult",
    "rmqcli.redrive.redrive": "LeftOut RedrivePlan",
    "rmqcli.config": "ClientConfig",
    "rmqcli.consumer.consumer": "Consumer",
    "rmqcli.consumer.subscriptions": "sql",
    "rmqcli.consumer.simple.received": "ReceivedMessage",
    "rmqcli.consumer.simple.consumer": "SimpleConsumer",
    "rmqcli.engine.allocate": (
        "AllocateMachineRoomNearby AllocateMessageQueueAveragely "
        "AllocateMessageQueueAveragelyByCircle AllocateMessageQueueByConfig "
        "AllocateMessageQueueByMachineRoom AllocateMessageQueueConsistentHash "
        "AllocateMessageQueueStrategy"
    ),
    "rmqcli.engine.config": "ConsumeFromWhere ConsumerConfig MessageModel",
    "rmqcli.engine.listener": (
        "ConsumeConcurrentlyContext ConsumeConcurrentlyStatus ConsumeOrderlyContext "
        "ConsumeOrderlyStatus"
    ),
    "rmqcli.engine.queue_lag": "LagState QueueLag",
    "rmqcli.engine.message": "PulledMessage UndecodableMessage",
    "rmqcli.engine.reports": "FailedDelivery Fate QueueStart Start",
    "rmqcli.errors": (
        "AckError BodyError BrokerError BusyError ChangeUnknownError ConfigError "
        "ConnectError DeadlineError DecodeError DeniedError DisconnectedError "
        "FilterError FrameError HeaderError NoBrokerError NotFoundError PartialError "
        "ReceiptHandleError RefusedError RmqError SendUnknownError StaticTopicError "
        "StorageDeniedError StorageError StorageNotFoundError StorageUnreachableError "
        "TextError TimeLimitError TransportError UnsupportedError UsageError WireError"
    ),
    "rmqcli.model": "Message MessageQueue",
    "rmqcli.producer.backend": "SendResult",
    "rmqcli.producer.config": "ProducerConfig",
    "rmqcli.producer.message": "ProducerMessage",
    "rmqcli.producer.producer": "Producer select_by_hash",
    "rmqcli.producer.transactions": "LocalTransactionState TransactionSendResult",
    "rmqcli.proxy.message": "ProxyMessage",
    "rmqcli.spark.source.data_source": "RocketMQDataSource",
    "rmqcli.transport.tls": "TlsOptions",
    "rmqcli.wire.acl": "Credentials",
    "rmqcli.wire.subscription": "SubscriptionData",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = [
    "AckError",
    "AclDecision",
    "AclEntries",
    "AclEntry",
    "Admin",
    "Ago",
    "AllocateMachineRoomNearby",
    "AllocateMessageQueueAveragely",
    "AllocateMessageQueueAveragelyByCircle",
    "AllocateMessageQueueByConfig",
    "AllocateMessageQueueByMachineRoom",
    "AllocateMessageQueueConsistentHash",
    "AllocateMessageQueueStrategy",
    "AtGroup",
    "AtNow",
    "AtOffset",
    "AtTime",
    "Backup",
    "BodyError",
    "BrokerDetail",
    "BrokerError",
    "BrokerFailure",
    "BrokerRow",
    "BusyError",
    "ChangeUnknownError",
    "CheckResult",
    "CheckStatus",
    "CleanStep",
    "ClientConfig",
    "Cluster",
    "ClusterIdentity",
    "ClusterSummary",
    "ConfigError",
    "ConnectError",
    "ConsumeConcurrentlyContext",
    "ConsumeConcurrentlyStatus",
    "ConsumeFromWhere",
    "ConsumeOrderlyContext",
    "ConsumeOrderlyStatus",
    "ConsumeStatus",
    "Consumer",
    "ConsumerConfig",
    "ConsumerRunningInfo",
    "Copy",
    "CopyPlan",
    "CopyQueue",
    "CopyReport",
    "Credentials",
    "DeadLetter",
    "DeadLetters",
    "DeadlineError",
    "Decode",
    "DecodeError",
    "Definition",
    "DefinitionChange",
    "DefinitionResult",
    "Definitions",
    "DefinitionsPlan",
    "DefinitionsResult",
    "DelayedMessage",
    "DelayedMessages",
    "DeniedError",
    "Diagnosis",
    "DisconnectedError",
    "DrainPlan",
    "DrainProgress",
    "DrainStep",
    "Earliest",
    "EdgeMessage",
    "FailedDelivery",
    "Fate",
    "FilterError",
    "Finding",
    "FlushPlan",
    "FlushReport",
    "FlushedTopic",
    "FoundMessages",
    "FrameError",
    "GroupDetail",
    "GroupLag",
    "GroupLetters",
    "GroupList",
    "GroupMember",
    "GroupResult",
    "GroupRow",
    "GroupSettings",
    "GroupState",
    "GroupVerdict",
    "HeaderError",
    "Hint",
    "KVResult",
    "KVValues",
    "LagList",
    "LagState",
    "LastN",
    "Latest",
    "LeftOut",
    "LetterList",
    "LetterPlace",
    "LetterResult",
    "LocalTransactionState",
    "MemberStacks",
    "Message",
    "MessageModel",
    "MessageOutcome",
    "MessageQueue",
    "MessageTrace",
    "MessageVerdict",
    "NoBrokerError",
    "NotFoundError",
    "OpenTransaction",
    "OpenTransactions",
    "PartialError",
    "PlannedReset",
    "PlusN",
    "PopLag",
    "PopProcessQueueInfo",
    "Position",
    "ProcessQueueInfo",
    "Producer",
    "ProducerConfig",
    "ProducerList",
    "ProducerMessage",
    "ProducerRow",
    "ProxyMessage",
    "PulledMessage",
    "QueueLag",
    "QueueOutcome",
    "QueuePlan",
    "QueueResult",
    "QueueStart",
    "RecallPlan",
    "ReceiptHandleError",
    "ReceivedMessage",
    "Redrive",
    "RedrivePlan",
    "RedriveReport",
    "RefusedError",
    "Replica",
    "ResendPlan",
    "ResendResult",
    "ResetPlan",
    "ResetResult",
    "RetryFlush",
    "RmqError",
    "RocketMQDataSource",
    "SendResult",
    "SendStatus",
    "SendUnknownError",
    "SettingDifference",
    "SettingResult",
    "SettingValue",
    "SettingsDiff",
    "SettingsPlan",
    "ShownSettings",
    "SimpleConsumer",
    "SourceSpan",
    "StackGroup",
    "StackList",
    "Start",
    "StaticTopicError",
    "StorageDeniedError",
    "StorageError",
    "StorageNotFoundError",
    "StorageUnreachableError",
    "StoredState",
    "SubscriptionData",
    "SubscriptionGroupConfig",
    "SyncState",
    "TextError",
    "ThreadPoolQueue",
    "TimeLimitError",
    "TimeSearch",
    "TlsOptions",
    "TopicBroker",
    "TopicConfig",
    "TopicCount",
    "TopicCounts",
    "TopicDetail",
    "TopicLag",
    "TopicList",
    "TopicOffset",
    "TopicQueue",
    "TopicResult",
    "TopicRow",
    "TraceEvent",
    "TraceEventKind",
    "TraceGap",
    "TransactionSendResult",
    "TransportError",
    "UndecodableMessage",
    "UnreadGroup",
    "UnsupportedError",
    "UsageError",
    "WaitingMessage",
    "WaitingMessages",
    "WireError",
    "__version__",
    "connect",
    "parse_decode",
    "parse_definitions",
    "parse_position",
    "select_by_hash",
    "sql",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if home.startswith("rmqcli.spark."):
        from rmqcli.spark.extra import require_extra

        require_extra(name)
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
