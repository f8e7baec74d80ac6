"""`rmq import`: send the messages in an export's Parquet files to a topic.

Shows progress on stderr and a summary on stdout, and after an interrupt how to
continue. `rmqcli.spark.imports` does the import. It needs pyarrow, but neither Spark
nor Java.
"""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rmqcli.cli.export.command import FORMATS
from rmqcli.cli.export.folders import parse_place
from rmqcli.cli.options import (
    MISSING,
    Common,
    argument,
    command_options,
    option,
    switch,
)
from rmqcli.cli.ui.output import Column, number_column, write_summary
from rmqcli.dataclass import dataclass
from rmqcli.errors import NotFoundError, RmqError
from rmqcli.hint import command_line
from rmqcli.names import check_topic
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rmqcli.model import MessageQueue
    from rmqcli.producer.batches import BatchSender, SentCounts
    from rmqcli.producer.producer import Producer
    from rmqcli.spark.extent import QueueKey
    from rmqcli.spark.imports.plan import ExportContent
    from rmqcli.spark.imports.state import ImportedQueue, ImportState

FIELDS = (
    Column("dir", "the folder of the export", title=None),
    Column("topic", "topic that receives the messages", title=None),
    Column("state", "file that records what was sent", title=None),
    Column("messages", "messages in the export", title=None),
    Column("broker_name", "broker of the exported queue", title="BROKER"),
    number_column("queue_id", "id of the exported queue", "QUEUE"),
    Column("to_broker_name", "broker that receives its messages", title="TO BROKER"),
    number_column("to_queue_id", "queue that receives its messages", "TO QUEUE"),
    number_column("rows", "messages of the queue in the export"),
    number_column("before", "messages that earlier runs sent"),
    number_column("sent", "messages that this run sent"),
    Column("unsure", "sent messages that may be stored twice", title=None),
)


def _parse_source(text: str) -> str:
    """The path or URL of an export. Raises TextError for an unsupported URL."""
    return parse_place(text, verb="read from", instead="copy it to a folder")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCommandOptions:
    """The options of `rmq import` as they were typed."""

    topic: str = argument(help="Topic to send to.")
    from_parquet: str = option(
        default=MISSING,
        parser=_parse_source,
        metavar="DIR",
        help="Folder of an export: a path, or an s3, gs, hdfs or file URL.",
    )
    remap_queues: bool = switch(
        help="If queues do not match, assign the topic's queues in turn."
    )
    allow_incomplete: bool = switch(
        help="Send the finished runs of an unfinished export."
    )
    state: str | None = option(
        metavar="DIR",
        help="Folder for the record of what was sent.  [default: in the export]",
    )
    dry_run: bool = switch(help="Show what would be sent; send nothing.")


@command_options(
    ImportCommandOptions,
    formats=FORMATS,
    fields=FIELDS,
    changes=lambda options: not options.dry_run,
)
def import_(common: Common, options: ImportCommandOptions) -> None:
    """Send the messages of an export to a topic, in queue order.

    Example: rmq import orders-copy --from-parquet ./orders

    The topic must exist. Body, keys, tags, flag and user properties are sent;
    properties that clients and brokers added are not. The progress is recorded after
    each batch, so the same command continues after an interrupt; it may then send one
    batch twice. When everything has been sent, running it again does nothing.
    """
    topic = options.topic
    check_topic(topic)
    from rmqcli.spark.extra import require_extra

    require_extra("rmq import")
    from rmqcli.producer.batches import BatchSender
    from rmqcli.producer.config import ProducerConfig
    from rmqcli.producer.producer import Producer
    from rmqcli.spark.export.cluster import BrokerCluster
    from rmqcli.spark.export.disk import Disk
    from rmqcli.spark.export.storage import storage_of
    from rmqcli.spark.imports.plan import counterparts, map_queues, read_export
    from rmqcli.spark.imports.state import (
        check_target,
        open_state,
        read_state,
        state_path,
    )

    content = read_export(
        options.from_parquet,
        storage=storage_of(options.from_parquet, os.environ),
        allow_incomplete=options.allow_incomplete,
    )
    _warn_of_gaps(common, content)
    config = ProducerConfig(
        send_msg_timeout_ms=common.timeout_ms,
        max_message_size_bytes=16 << 20,  # the broker applies its own limit
        create_topic_key=None,
    )
    client_config = replace(common.client_config(), endpoints=())
    with Producer(client=client_config, config=config) as producer:
        queues = _queues(producer, topic, content)
        places = map_queues(content, queues, remap_queues=options.remap_queues)
        path = state_path(content, topic, options.state)
        cluster = BrokerCluster(config=client_config, note=common.messages.warn)
        check = functools.partial(check_target, cluster, topic, path=path)
        if options.dry_run:
            known = read_state(path, namesrv=common.namesrv)
            check(known)
            _plan(common, content, topic, places, path, known)
            return
        with open_state(
            path, topic=topic, namesrv=common.namesrv, places=places, disk=Disk()
        ) as state:
            check(state.queues)
            sender = BatchSender(producer)
            # Where queues match, a message is in the queue in which it belongs.
            choice = [] if counterparts(content, queues) is not None else sorted(queues)
            before = {key: queue.sent for key, queue in state.queues.items()}
            _run(common, content, topic, state, sender, choice)
            _finish(common, content, topic, state, before, sender.counts)


def _queues(
    producer: Producer, topic: str, content: ExportContent
) -> list[MessageQueue]:
    try:
        return producer.queues(topic)
    except NotFoundError as error:
        brokers = {queue.broker_name for queue in content.queues}
        count = max((queue.queue_id + 1 for queue in content.queues), default=1)
        on = "" if len(brokers) == 1 else f" on {counted(len(brokers), 'broker')}"
        error.hint = f"create it with the export's queues{on}: " + command_line(
            "rmq topic create", topic, options=["--queues", f"{count}"]
        )
        raise


def _warn_of_gaps(common: Common, content: ExportContent) -> None:
    """Warn about messages of the exported topic that cannot be sent."""
    if content.missing != 0:
        missing = "some messages of it are"
        if content.missing is not None:
            missing = counted(content.missing, "message of it is", "messages of it are")
        common.messages.warn(
            f"topic {content.topic}: {missing} not in the export, because the broker"
            " had deleted them"
        )
    if content.undecodable:
        common.messages.warn(
            f"{counted(content.undecodable, 'message is', 'messages are')} not sent,"
            " because the export could not decode them; their bytes are in"
            " _rmq/runs/*/undecodable.jsonl"
        )


def _plan(
    common: Common,
    content: ExportContent,
    topic: str,
    places: dict[QueueKey, MessageQueue],
    path: str,
    known: dict[QueueKey, ImportedQueue],
) -> None:
    """Show what an import would send after what the state records as sent."""
    from rmqcli.spark.imports.state import ImportedQueue

    before = {key: queue.sent for key, queue in known.items()}
    queues = {
        key: ImportedQueue(queue.broker_name, queue.queue_id, sent=before.get(key, 0))
        for key, queue in places.items()
    }
    _show(common, content, topic, path, queues, before)
    left = content.rows - sum(before.values())
    common.messages.info(
        f"{left:,} of {counted(content.rows, 'message')} would be sent to {topic};"
        " nothing was sent"
    )


def _show(
    common: Common,
    content: ExportContent,
    topic: str,
    path: str,
    queues: Mapping[QueueKey, ImportedQueue],
    before: Mapping[QueueKey, int],
    *,
    unsure: int = 0,
) -> None:
    """Write the summary of a run that began when `before` had been sent."""
    rows: list[dict[str, Any]] = [
        {
            "broker_name": queue.broker_name,
            "queue_id": queue.queue_id,
            "to_broker_name": queues[queue.key].to_broker_name,
            "to_queue_id": queues[queue.key].to_queue_id,
            "rows": queue.rows,
            "before": before.get(queue.key, 0),
            "sent": queues[queue.key].sent - before.get(queue.key, 0),
        }
        for queue in content.queues
    ]
    summary = {
        "dir": content.root,
        "topic": topic,
        "state": path,
        "messages": content.rows,
        "before": sum(row["before"] for row in rows),
        "sent": sum(row["sent"] for row in rows),
        "unsure": unsure,
        "queues": rows,
    }
    write_summary(summary, columns=FIELDS, fmt=common.output, color=common.use_color)


def _run(
    common: Common,
    content: ExportContent,
    topic: str,
    state: ImportState,
    sender: BatchSender,
    queues: Sequence[MessageQueue],
) -> None:
    """Send the remaining messages; an error or interrupt says how to continue."""
    from rmqcli.cli.ui.progress import Progress
    from rmqcli.spark.imports.run import run_import

    messages = common.messages
    if state.sent and state.sent < content.rows:
        messages.info(
            f"continuing: {state.sent:,} of {counted(content.rows, 'message')}"
            " have been sent; up to one batch after them may be sent twice"
        )
    batches = run_import(content, topic, state=state, sender=sender, queues=queues)
    try:
        with Progress(messages, "sent", total=content.rows) as progress:
            for _ in batches:
                progress.update(state.sent)
    except (KeyboardInterrupt, RmqError):
        messages.warn(
            f"not finished: {state.sent:,} of {counted(content.rows, 'message')}"
            " have been sent; the same command continues, and may send one batch twice"
        )
        raise


def _finish(
    common: Common,
    content: ExportContent,
    topic: str,
    state: ImportState,
    before: dict[QueueKey, int],
    counts: SentCounts,
) -> None:
    """Write the summary to stdout, and remarks on it to stderr."""
    messages, queues = common.messages, state.queues
    _show(common, content, topic, state.path, queues, before, unsure=counts.unsure)
    if not content.rows:
        messages.info("nothing to do: the export contains no messages")
    elif counts.stored:
        messages.info(f"{counted(counts.stored, 'message')} sent to {topic}")
    else:
        messages.info(
            "nothing to do: earlier runs sent everything, "
            f"{counted(content.rows, 'message')}; to send it again, remove {state.path}"
        )
    apart = sum(each.sent for queue in queues.values() for each in queue.apart)
    if apart:
        messages.info(
            f"{counted(apart, 'message is', 'messages are')} in the queues of their"
            " message groups or priorities, not in those of the table"
        )
    if counts.unsure:
        messages.warn(
            f"{counted(counts.unsure, 'message')} may be stored twice: a broker did not"
            " answer in time"
        )
    messages.warn_of_weak(counts.weak)
