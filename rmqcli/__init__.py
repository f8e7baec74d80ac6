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
    from rmqcli.admin.acl import AclDecision as AclDecision
    from rmqcli.admin.acl import AclEntries as AclEntries
    from rmqcli.admin.acl import AclEntry as AclEntry
    from rmqcli.admin.admin import Admin as Admin
    from rmqcli.admin.admin import PlannedReset as PlannedReset
    from rmqcli.admin.admin import ResetResult as ResetResult
    from rmqcli.admin.brokers import BrokerDetail as BrokerDetail
    from rmqcli.admin.brokers import BrokerRow as BrokerRow
    from rmqcli.admin.brokers import Replica as Replica
    from rmqcli.admin.brokers import SyncState as SyncState
    from rmqcli.admin.brokers import ThreadPoolQueue as ThreadPoolQueue
    from rmqcli.admin.clean import CleanStep as CleanStep
    from rmqcli.admin.cluster import ClusterSummary as ClusterSummary
    from rmqcli.admin.definitions.apply import DefinitionResult as DefinitionResult
    from rmqcli.admin.definitions.apply import DefinitionsResult as DefinitionsResult
    from rmqcli.admin.definitions.compare import DefinitionChange as DefinitionChange
    from rmqcli.admin.definitions.compare import SettingDifference as SettingDifference
    from rmqcli.admin.definitions.model import Definition as Definition
    from rmqcli.admin.definitions.model import Definitions as Definitions
    from rmqcli.admin.definitions.model import parse_definitions as parse_definitions
    from rmqcli.admin.definitions.plan import DefinitionsPlan as DefinitionsPlan
    from rmqcli.admin.delayed import DelayedMessage as DelayedMessage
    from rmqcli.admin.delayed import DelayedMessages as DelayedMessages
    from rmqcli.admin.dlq.listing import GroupLetters as GroupLetters
    from rmqcli.admin.dlq.listing import LetterList as LetterList
    from rmqcli.admin.dlq.log import LetterPlace as LetterPlace
    from rmqcli.admin.dlq.log import LetterResult as LetterResult
    from rmqcli.admin.dlq.read import DeadLetter as DeadLetter
    from rmqcli.admin.dlq.read import DeadLetters as DeadLetters
    from rmqcli.admin.dlq.retries import WaitingMessage as WaitingMessage
    from rmqcli.admin.dlq.retries import WaitingMessages as WaitingMessages
    from rmqcli.admin.doctor.model import CheckResult as CheckResult
    from rmqcli.admin.doctor.model import CheckStatus as CheckStatus
    from rmqcli.admin.doctor.model import Diagnosis as Diagnosis
    from rmqcli.admin.doctor.model import Finding as Finding
    from rmqcli.admin.drain import DrainPlan as DrainPlan
    from rmqcli.admin.drain import DrainProgress as DrainProgress
    from rmqcli.admin.drain import DrainStep as DrainStep
    from rmqcli.admin.drain import UnreadGroup as UnreadGroup
    from rmqcli.admin.groups import GroupDetail as GroupDetail
    from rmqcli.admin.groups import GroupList as GroupList
    from rmqcli.admin.groups import GroupMember as GroupMember
    from rmqcli.admin.groups import GroupResult as GroupResult
    from rmqcli.admin.groups import GroupRow as GroupRow
    from rmqcli.admin.groups import GroupSettings as GroupSettings
    from rmqcli.admin.kv import KVResult as KVResult
    from rmqcli.admin.kv import KVValues as KVValues
    from rmqcli.admin.lag.model import BrokerFailure as BrokerFailure
    from rmqcli.admin.lag.model import GroupLag as GroupLag
    from rmqcli.admin.lag.model import GroupState as GroupState
    from rmqcli.admin.lag.model import LagList as LagList
    from rmqcli.admin.lag.model import PopLag as PopLag
    from rmqcli.admin.lag.model import TopicLag as TopicLag
    from rmqcli.admin.message.by_time import TimeSearch as TimeSearch
    from rmqcli.admin.message.find import FoundMessages as FoundMessages
    from rmqcli.admin.message.gather import MessageOutcome as MessageOutcome
    from rmqcli.admin.message.gather import StoredState as StoredState
    from rmqcli.admin.message.trace import MessageTrace as MessageTrace
    from rmqcli.admin.message.trace import TraceEvent as TraceEvent
    from rmqcli.admin.message.trace import TraceEventKind as TraceEventKind
    from rmqcli.admin.message.trace import TraceGap as TraceGap
    from rmqcli.admin.message.verdict import GroupVerdict as GroupVerdict
    from rmqcli.admin.message.verdict import MessageVerdict as MessageVerdict
    from rmqcli.admin.producers import ProducerList as ProducerList
    from rmqcli.admin.producers import ProducerRow as ProducerRow
    from rmqcli.admin.recall import RecallPlan as RecallPlan
    from rmqcli.admin.resend import ResendPlan as ResendPlan
    from rmqcli.admin.resend import ResendResult as ResendResult
    from rmqcli.admin.reset.backup import Backup as Backup
    from rmqcli.admin.reset.cluster_identity import ClusterIdentity as ClusterIdentity
    from rmqcli.admin.reset.plan import EdgeMessage as EdgeMessage
    from rmqcli.admin.reset.plan import QueuePlan as QueuePlan
    from rmqcli.admin.reset.plan import ResetPlan as ResetPlan
    from rmqcli.admin.reset.result import QueueOutcome as QueueOutcome
    from rmqcli.admin.reset.result import QueueResult as QueueResult
    from rmqcli.admin.settings import SettingResult as SettingResult
    from rmqcli.admin.settings import SettingsDiff as SettingsDiff
    from rmqcli.admin.settings import SettingsPlan as SettingsPlan
    from rmqcli.admin.settings import SettingValue as SettingValue
    from rmqcli.admin.settings import ShownSettings as ShownSettings
    from rmqcli.admin.stacks import MemberStacks as MemberStacks
    from rmqcli.admin.stacks import StackGroup as StackGroup
    from rmqcli.admin.stacks import StackList as StackList
    from rmqcli.admin.tail.filter import FilterArguments as FilterArguments
    from rmqcli.admin.topic_counts import TopicCount as TopicCount
    from rmqcli.admin.topic_counts import TopicCounts as TopicCounts
    from rmqcli.admin.topics import TopicBroker as TopicBroker
    from rmqcli.admin.topics import TopicDetail as TopicDetail
    from rmqcli.admin.topics import TopicList as TopicList
    from rmqcli.admin.topics import TopicQueue as TopicQueue
    from rmqcli.admin.topics import TopicResult as TopicResult
    from rmqcli.admin.topics import TopicRow as TopicRow
    from rmqcli.admin.transactions import OpenTransaction as OpenTransaction
    from rmqcli.admin.transactions import OpenTransactions as OpenTransactions
    from rmqcli.api.calls.send import SendStatus as SendStatus
    from rmqcli.cluster import Cluster as Cluster
    from rmqcli.cluster import connect as connect
    from rmqcli.config import ClientConfig as ClientConfig
    from rmqcli.consumer.consumer import Consumer as Consumer
    from rmqcli.consumer.simple.consumer import SimpleConsumer as SimpleConsumer
    from rmqcli.consumer.simple.received import ReceivedMessage as ReceivedMessage
    from rmqcli.consumer.subscriptions import sql as sql
    from rmqcli.copy.copy import CopyPlan as CopyPlan
    from rmqcli.copy.copy import CopyQueue as CopyQueue
    from rmqcli.copy.copy import CopyReport as CopyReport
    from rmqcli.copy.library import Copy as Copy
    from rmqcli.copy.log import SourceSpan as SourceSpan
    from rmqcli.decode.single import Decode as Decode
    from rmqcli.decode.single import parse_decode as parse_decode
    from rmqcli.engine.allocate import (
        AllocateMachineRoomNearby as AllocateMachineRoomNearby,
    )
    from rmqcli.engine.allocate import (
        AllocateMessageQueueAveragely as AllocateMessageQueueAveragely,
    )
    from rmqcli.engine.allocate import (
        AllocateMessageQueueAveragelyByCircle as AllocateMessageQueueAveragelyByCircle,
    )
    from rmqcli.engine.allocate import (
        AllocateMessageQueueByConfig as AllocateMessageQueueByConfig,
    )
    from rmqcli.engine.allocate import (
        AllocateMessageQueueByMachineRoom as AllocateMessageQueueByMachineRoom,
    )
    from rmqcli.engine.allocate import (
        AllocateMessageQueueConsistentHash as AllocateMessageQueueConsistentHash,
    )
    from rmqcli.engine.allocate import (
        AllocateMessageQueueStrategy as AllocateMessageQueueStrategy,
    )
    from rmqcli.engine.config import ConsumeFromWhere as ConsumeFromWhere
    from rmqcli.engine.config import ConsumerConfig as ConsumerConfig
    from rmqcli.engine.config import MessageModel as MessageModel
    from rmqcli.engine.listener import (
        ConsumeConcurrentlyContext as ConsumeConcurrentlyContext,
    )
    from rmqcli.engine.listener import (
        ConsumeConcurrentlyStatus as ConsumeConcurrentlyStatus,
    )
    from rmqcli.engine.listener import ConsumeOrderlyContext as ConsumeOrderlyContext
    from rmqcli.engine.listener import ConsumeOrderlyStatus as ConsumeOrderlyStatus
    from rmqcli.engine.message import PulledMessage as PulledMessage
    from rmqcli.engine.message import UndecodableMessage as UndecodableMessage
    from rmqcli.engine.queue_lag import LagState as LagState
    from rmqcli.engine.queue_lag import QueueLag as QueueLag
    from rmqcli.engine.reports import FailedDelivery as FailedDelivery
    from rmqcli.engine.reports import Fate as Fate
    from rmqcli.engine.reports import QueueStart as QueueStart
    from rmqcli.engine.reports import Start as Start
    from rmqcli.errors import AckError as AckError
    from rmqcli.errors import BodyError as BodyError
    from rmqcli.errors import BrokerError as BrokerError
    from rmqcli.errors import BusyError as BusyError
    from rmqcli.errors import ChangeUnknownError as ChangeUnknownError
    from rmqcli.errors import ConfigError as ConfigError
    from rmqcli.errors import ConnectError as ConnectError
    from rmqcli.errors import DeadlineError as DeadlineError
    from rmqcli.errors import DecodeError as DecodeError
    from rmqcli.errors import DeniedError as DeniedError
    from rmqcli.errors import DisconnectedError as DisconnectedError
    from rmqcli.errors import FilterError as FilterError
    from rmqcli.errors import FrameError as FrameError
    from rmqcli.errors import HeaderError as HeaderError
    from rmqcli.errors import NoBrokerError as NoBrokerError
    from rmqcli.errors import NotFoundError as NotFoundError
    from rmqcli.errors import PartialError as PartialError
    from rmqcli.errors import ReceiptHandleError as ReceiptHandleError
    from rmqcli.errors import RefusedError as RefusedError
    from rmqcli.errors import RmqError as RmqError
    from rmqcli.errors import SendUnknownError as SendUnknownError
    from rmqcli.errors import StaticTopicError as StaticTopicError
    from rmqcli.errors import StorageDeniedError as StorageDeniedError
    from rmqcli.errors import StorageError as StorageError
    from rmqcli.errors import StorageNotFoundError as StorageNotFoundError
    from rmqcli.errors import StorageUnreachableError as StorageUnreachableError
    from rmqcli.errors import TextError as TextError
    from rmqcli.errors import TimeLimitError as TimeLimitError
    from rmqcli.errors import TransportError as TransportError
    from rmqcli.errors import UnsupportedError as UnsupportedError
    from rmqcli.errors import UsageError as UsageError
    from rmqcli.errors import WireError as WireError
    from rmqcli.hint import Hint as Hint
    from rmqcli.model import Message as Message
    from rmqcli.model import MessageQueue as MessageQueue
    from rmqcli.position import Ago as Ago
    from rmqcli.position import AtGroup as AtGroup
    from rmqcli.position import AtNow as AtNow
    from rmqcli.position import AtOffset as AtOffset
    from rmqcli.position import AtTime as AtTime
    from rmqcli.position import Earliest as Earliest
    from rmqcli.position import LastN as LastN
    from rmqcli.position import Latest as Latest
    from rmqcli.position import PlusN as PlusN
    from rmqcli.position import Position as Position
    from rmqcli.position import parse_position as parse_position
    from rmqcli.producer.backend import SendResult as SendResult
    from rmqcli.producer.config import ProducerConfig as ProducerConfig
    from rmqcli.producer.message import ProducerMessage as ProducerMessage
    from rmqcli.producer.producer import Producer as Producer
    from rmqcli.producer.producer import select_by_hash as select_by_hash
    from rmqcli.producer.transactions import (
        LocalTransactionState as LocalTransactionState,
    )
    from rmqcli.producer.transactions import (
        TransactionSendResult as TransactionSendResult,
    )
    from rmqcli.proxy.message import ProxyMessage as ProxyMessage
    from rmqcli.redrive.flush import FlushedTopic as FlushedTopic
    from rmqcli.redrive.flush import FlushPlan as FlushPlan
    from rmqcli.redrive.library import FlushReport as FlushReport
    from rmqcli.redrive.library import Redrive as Redrive
    from rmqcli.redrive.library import RedriveReport as RedriveReport
    from rmqcli.redrive.library import RetryFlush as RetryFlush
    from rmqcli.redrive.redrive import LeftOut as LeftOut
    from rmqcli.redrive.redrive import RedrivePlan as RedrivePlan
    from rmqcli.spark.source.data_source import RocketMQDataSource as RocketMQDataSource
    from rmqcli.transport.tls import TlsOptions as TlsOptions
    from rmqcli.wire.acl import Credentials as Credentials
    from rmqcli.wire.bodies.config import (
        SubscriptionGroupConfig as SubscriptionGroupConfig,
    )
    from rmqcli.wire.bodies.config import TopicConfig as TopicConfig
    from rmqcli.wire.bodies.consumer import ConsumerRunningInfo as ConsumerRunningInfo
    from rmqcli.wire.bodies.consumer import ConsumeStatus as ConsumeStatus
    from rmqcli.wire.bodies.consumer import PopProcessQueueInfo as PopProcessQueueInfo
    from rmqcli.wire.bodies.consumer import ProcessQueueInfo as ProcessQueueInfo
    from rmqcli.wire.bodies.stats import TopicOffset as TopicOffset
    from rmqcli.wire.subscription import SubscriptionData as SubscriptionData

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
    "rmqcli.admin.message.verdict": "GroupVerdict MessageVerdict",
    "rmqcli.admin.message.trace": "MessageTrace TraceEvent TraceEventKind TraceGap",
    "rmqcli.admin.delayed": "DelayedMessage DelayedMessages",
    "rmqcli.admin.dlq.listing": "GroupLetters LetterList",
    "rmqcli.admin.dlq.read": "DeadLetter DeadLetters",
    "rmqcli.admin.dlq.retries": "WaitingMessage WaitingMessages",
    "rmqcli.admin.settings": (
        "SettingResult SettingValue SettingsDiff SettingsPlan ShownSettings"
    ),
    "rmqcli.admin.tail.filter": "FilterArguments",
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
    "rmqcli.admin.dlq.log": "LetterPlace LetterResult",
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

_PUBLIC = sorted(["__version__", *_HOMES])

if not TYPE_CHECKING:  # type checkers go by the imports above
    __all__ = _PUBLIC


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if home.startswith("rmqcli.spark."):
        from rmqcli.spark.extra import require_extra

        require_extra(name)
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return _PUBLIC
