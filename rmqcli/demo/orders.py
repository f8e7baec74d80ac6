"""The orders that `rmq demo` sends: made up, but the same for the same seed.

Each message is one event of an order (created, paid, shipped, refunded). Messages are
sharded by order id, so that the events of one order stay in one queue and in order.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from rmqcli.producer.message import OutgoingMessage

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

TOPIC: Final = "orders"
GROUP: Final = "billing"

_CUSTOMERS: Final = ("ada", "bo", "chen", "dara", "emil", "fatima", "goran", "hana")
_ITEMS: Final = (
    ("espresso beans", 1450),
    ("paper filters", 390),
    ("hand grinder", 8900),
    ("kettle", 5400),
    ("cup", 1200),
)
#: The possible events of an order, and their frequencies.
_FATES: Final = (
    ("Created", "Paid", "Shipped"),
    ("Created", "Paid", "Refunded"),
    ("Created", "Cancelled"),
)
_PER_CENT: Final = (80, 12, 8)


def order_events(rng: random.Random) -> Iterator[OutgoingMessage]:
    """Yield events without end; ten orders are in progress at a time."""
    number = 1000
    open_orders: list[list[OutgoingMessage]] = []
    while True:
        while len(open_orders) < 10:
            number += 1
            open_orders.append(_order(number, rng))
        chosen = rng.randrange(len(open_orders))
        yield open_orders[chosen].pop(0)
        if not open_orders[chosen]:
            del open_orders[chosen]


def _order(number: int, rng: random.Random) -> list[OutgoingMessage]:
    (fate,) = rng.choices(_FATES, _PER_CENT)
    item, cents = rng.choice(_ITEMS)
    quantity = rng.randint(1, 4)
    order_id, customer = f"A-{number}", rng.choice(_CUSTOMERS)
    return [
        OutgoingMessage(
            json.dumps(
                {
                    "order": order_id,
                    "event": event,
                    "customer": customer,
                    "item": item,
                    "quantity": quantity,
                    "total_cents": cents * quantity,
                },
                separators=(",", ":"),
            ).encode(),
            {"TAGS": event, "KEYS": order_id},
        )
        for event in fate
    ]
