"""Which queues a client consumes, and whether by pulling or by POP: 400 and 401.

Imitated: both modes; the strategies AVG and AVG_BY_CIRCLE; sharing of queues in POP
mode; retry topics, which are always pulled; null as the answer if the broker cannot
tell, after which a client keeps the queues that it has.
Not imitated: `serverLoadBalancerEnable`; a default mode other than PULL; lite topics.

Source: `QueryAssignmentProcessor`, `AllocateMessageQueueAveragely` and
`AllocateMessageQueueAveragelyByCircle` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from rmqcli.broker.dispatch import handles
from rmqcli.broker.request import Reply, no_group, no_permission, no_topic, system_error
from rmqcli.broker.state.request_modes import MODES_MAX
from rmqcli.broker.topic_names import RETRY_PREFIX
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies import pop
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.version import V5_0_0

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqcli.broker.request import BrokerRequest
    from rmqcli.broker.state.broker import BrokerState


@handles(RequestCode.QUERY_ASSIGNMENT, since=V5_0_0)
def query_assignment(broker: BrokerState, request: BrokerRequest) -> Reply:
    """The queues of a topic that are assigned to one client of a group (400)."""
    body = request.body(pop.QueryAssignmentRequestBody)
    topic, group = body.topic, body.consumer_group
    if topic is None or body.message_model is None:
        raise system_error("java.lang.NullPointerException")
    stored = broker.request_modes.get(topic, group or "")
    mode = pop.MODE_PULL if stored is None else stored.mode or pop.MODE_PULL
    shared = 0 if stored is None else stored.pop_share_queue_num
    queues = broker.topic_queues(topic)
    if queues is not None and body.message_model == "CLUSTERING":
        queues = _allocate(broker, body, sorted(queues), mode=mode, shared=shared)
    assignments = None
    if queues is not None:
        assignments = [
            pop.MessageQueueAssignment(message_queue=queue, mode=mode)
            for queue in dict.fromkeys(queues)
        ]
    answer = pop.QueryAssignmentResponseBody(message_queue_assignments=assignments)
    return Reply(body=encode_body(answer))


def _allocate(
    broker: BrokerState,
    body: pop.QueryAssignmentRequestBody,
    queues: Sequence[MessageQueue],
    *,
    mode: str,
    shared: int,
) -> list[MessageQueue] | None:
    group = broker.clients.consumer_group(body.consumer_group or "")
    strategy = _STRATEGIES.get(body.strategy_name or "")
    client_id = body.client_id
    if group is None or strategy is None:
        return None
    client_ids = sorted(member.client_id for member in group.members)
    if mode == pop.MODE_POP:
        return _allocate_for_pop(strategy, client_id, queues, client_ids, shared=shared)
    if not client_id or not queues:
        return None
    return strategy(client_id, queues, client_ids)


def _allocate_for_pop(
    strategy: _Strategy,
    client_id: str | None,
    queues: Sequence[MessageQueue],
    client_ids: Sequence[str],
    *,
    shared: int,
) -> list[MessageQueue] | None:
    """The queues of one client in POP mode; None if they cannot be determined.

    Source: QueryAssignmentProcessor.allocate4Pop.
    """
    if shared <= 0 or shared >= len(client_ids) - 1:
        return [MessageQueue(each.topic, each.broker_name, -1) for each in queues]
    if not client_id or not queues:
        return None
    if len(client_ids) > len(queues):
        if client_id not in client_ids:
            return []
        return [queues[client_ids.index(client_id) % len(queues)]]
    allocated = strategy(client_id, queues, client_ids)
    if client_id in client_ids:
        first = client_ids.index(client_id)
        for turn in range(1, shared + 1):
            other = client_ids[(first + turn) % len(client_ids)]
            allocated += strategy(other, queues, client_ids)
    return allocated


def allocate_averagely(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """The queues of one client: adjacent ones; the first clients may get one more."""
    if client_id not in client_ids:
        return []
    index = client_ids.index(client_id)
    size, more = divmod(len(queues), len(client_ids))
    start = index * size + min(index, more)
    return list(queues[start : start + size + (index < more)])


def allocate_averagely_by_circle(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """The queues of one client, if the clients get them one by one in turn."""
    if client_id not in client_ids:
        return []
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


if TYPE_CHECKING:
    _Strategy: TypeAlias = Callable[
        [str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]
    ]

_STRATEGIES: Final[dict[str, _Strategy]] = {
    "AVG": allocate_averagely,
    "AVG_BY_CIRCLE": allocate_averagely_by_circle,
}


@handles(RequestCode.SET_MESSAGE_REQUEST_MODE, since=V5_0_0)
def set_message_request_mode(broker: BrokerState, request: BrokerRequest) -> Reply:
    """Set whether a group consumes a topic by pulling or by POP (401)."""
    body = request.body(pop.SetMessageRequestModeRequestBody)
    topic, group = body.topic, body.consumer_group
    if topic is None or group is None:
        raise system_error("java.lang.NullPointerException")
    if topic.startswith(RETRY_PREFIX):
        raise no_permission("retry topic is not allowed to set mode")
    if broker.topics.get(topic) is None:
        raise no_topic(f"topic[{topic}] not exist")
    if broker.groups.find_or_create(group) is None:
        raise no_group("subscription group does not exist")
    modes = broker.request_modes
    if modes.is_full and modes.get(topic, group) is None:
        raise system_error(
            f"the request mode was not set: the broker already has {MODES_MAX}"
            " request modes"
        )
    modes.set(topic, group, body)
    return Reply()
