"""What the embedded brokers have stored, read from their stores."""

from __future__ import annotations

from rmqcli.broker.message.copy import look_message


def stored(cluster, topic):
    """The messages of a topic's queues, by broker, queue and offset."""

    def read():
        found = []
        for broker in cluster.brokers:
            if not broker.is_running:
                continue
            for queue_id in range(16):
                bounds = broker.store.queue_bounds(topic, queue_id)
                if bounds is None:
                    continue
                count = bounds[1] - bounds[0]
                units = broker.store.units(topic, queue_id, bounds[0], count)
                found += [
                    look_message(broker.store, u.commit_log_offset) for u in units
                ]
        return found

    return cluster.call(read)


def bodies(cluster, topic):
    """The bodies of a topic's messages, sorted."""
    return sorted(message.body for message in stored(cluster, topic))
