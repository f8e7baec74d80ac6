"""Lets brokers check an SQL92 expression before messages are read by it.

A pull does not reveal that a broker cannot read the expression: it returns every
message then. Brokers of other versions, and with other settings, accept other
expressions, so each broker is asked about itself.

Source: ClientManageProcessor.checkClientConfig and PullMessageProcessor in
apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rmqcli.admin.tail.follow import is_refusal
from rmqcli.admin.topics import batch_topics, topics_without_tag_filter
from rmqcli.api.calls.consumer import check_client_config
from rmqcli.errors import BrokerError, FilterError, RmqError, UnsupportedError
from rmqcli.hint import Blank, Hint, Setting
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.subscription import SQL92, parse_subscription

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from rmqcli.admin.tail.filter import TailFilter
    from rmqcli.api.client import Client
    from rmqcli.model import MessageQueue


def check_sql(
    client: Client, expression: str, queues: Collection[MessageQueue]
) -> dict[MessageQueue, RmqError]:
    """Return the queues of brokers that could not be asked whether they can filter.

    Nothing may be read from these: another broker's answer does not count for them.
    Raises the error of the first broker that refuses the expression, NoBrokerError when
    no broker answers, and UnsupportedError for a topic with batches that are kept as
    one record.
    """
    errors = sql_errors(client, expression, queues)
    for error in errors.values():
        if is_refusal(error):
            raise error
    client.raise_if_none_answers(errors.values())
    found = batch_topics(client, [queue.topic for queue in queues])
    if found:
        raise UnsupportedError(
            f"topic {found[0]} may keep batches as one record (queue.type=BatchCQ),"
            " whose messages a broker cannot filter by SQL",
            hint=Hint("use ", Setting("tag", Blank("EXPR"))),
        )
    return errors


def sql_errors(
    client: Client, expression: str, queues: Collection[MessageQueue]
) -> dict[MessageQueue, RmqError]:
    """Return the queues whose broker cannot filter by an expression, or did not say."""
    errors: dict[MessageQueue, RmqError] = {}
    questions = {}
    for queue in queues:
        try:
            address = client.reader_of(queue)
        except RmqError as error:
            errors[queue] = error
            continue
        subscription = parse_subscription(
            queue.topic, expression, expression_type=SQL92
        )
        questions[queue.topic, address] = address, check_client_config(subscription)
    answers = client.ask_many(questions)
    for queue in queues:
        if queue in errors:
            continue
        answer = answers[queue.topic, client.reader_of(queue)]
        if isinstance(answer, RmqError):
            errors[queue] = explain_sql(answer)
    return errors


def all_filter_by(client: Client, expression: str, topics: Iterable[str]) -> bool:
    """Whether all brokers of topics, slaves too, filter by an expression as it says.

    False if one does not answer: it may be read once it does.
    """
    topics = list(dict.fromkeys(topics))
    questions = {}
    for topic in topics:
        subscription = parse_subscription(topic, expression, expression_type=SQL92)
        for broker in client.route(topic).brokers:
            for address in broker.addresses.values():
                call = check_client_config(subscription)
                questions[topic, address] = address, call
    answers = client.ask_many(questions)
    if any(isinstance(answer, RmqError) for answer in answers.values()):
        return False
    return not batch_topics(client, topics)


def for_brokers(
    client: Client, topics: Iterable[str], tail_filter: TailFilter
) -> TailFilter:
    """Return the filter with only what all brokers evaluate as it is meant."""
    topics = list(topics)
    if tail_filter.where_sql is not None:
        asks_sql = all_filter_by(client, tail_filter.where_sql, topics)
        return replace(tail_filter, where_at_broker=asks_sql)
    if tail_filter.sql is not None or tail_filter.expression == "*":
        return tail_filter
    hides = bool(topics_without_tag_filter(client, topics))
    return replace(tail_filter, tags_at_broker=not hides)


def explain_sql(error: RmqError) -> RmqError:
    """Say in the error what is wrong with an SQL92 expression, if a broker refused it.

    Other errors are returned as they are.
    """
    if not isinstance(error, BrokerError):
        return error
    if error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
        reason = error.remark.partition("ParseException: ")[2].partition("\n")[0]
        return FilterError(
            f"the expression is not valid SQL92: {reason.rstrip('.') or error.remark}",
            code=error.code,
            name=error.name,
            remark=error.remark,
            address=error.address,
        )
    if "SQL92" in error.remark:
        error.message = f"the broker {error.address} does not filter by SQL92"
        error.hint = Hint(
            "set enablePropertyFilter=true on the broker, or use ",
            Setting("tag", Blank("EXPR")),
        )
    return error
