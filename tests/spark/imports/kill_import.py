"""Kill an import with SIGKILL before one of its calls to the disk, until it is done.

    python -m tests.spark.imports.kill_import NAMESRV TOPIC DIR

Each import runs in a child process, with a disk that kills it at its n-th call; n goes
from 0 to 6 and starts over. Writing a state takes five calls, so children die after a
batch is stored and before that is recorded, while it is being recorded, and after one
or two batches. Prints how many children were killed.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from rmqcli.config import ClientConfig
from rmqcli.producer.batches import BatchSender
from rmqcli.producer.config import ProducerConfig
from rmqcli.producer.producer import Producer
from rmqcli.spark.imports.plan import map_queues, read_export
from rmqcli.spark.imports.run import run_import
from rmqcli.spark.imports.state import open_state, state_path
from tests.spark.export.kill_points import KillingDisk, in_child

if TYPE_CHECKING:
    from rmqcli.spark.export.disk import Disk


def import_all(namesrv: str, topic: str, folder: str, disk: Disk) -> None:
    content = read_export(folder)
    config = ProducerConfig(send_msg_timeout_ms=30_000)
    client = ClientConfig(namesrv=(namesrv,))
    with Producer(client=client, config=config) as producer:
        places = map_queues(content, producer.queues(topic), remap_queues=False)
        path = state_path(content, topic, None)
        with open_state(
            path, topic=topic, namesrv=(namesrv,), places=places, disk=disk
        ) as state:
            for _ in run_import(
                content, topic, state=state, sender=BatchSender(producer)
            ):
                pass


def main() -> None:
    namesrv, topic, folder = sys.argv[1:]
    kills = 0
    while True:
        disk = KillingDisk(kills % 7)
        status = in_child(lambda: import_all(namesrv, topic, folder, disk))  # noqa: B023
        if status == 0:
            break
        assert os.WIFSIGNALED(status), status
        kills += 1
        assert kills < 1_000
    print(kills)


if __name__ == "__main__":
    main()
