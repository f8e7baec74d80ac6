"""Messages of mixed kinds, made from a seed, and how they must be read back."""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass, field

#: Close to a broker's limit, which is 4 MiB including properties and topic.
BIG_BODY_BYTES = 4 * 1024 * 1024 - 4096

TEXTS = [
    "plain",
    "naïve café",
    "订单-已支付",
    "emoji 🚀",
    'quote " and \\ slash',
    "tab\there",
]


@dataclass(frozen=True)
class Sent:
    """A message as it is sent, and as it must be when it is read."""

    number: int
    body: bytes
    tags: str | None = None
    keys: str | None = None
    properties: dict[str, str] = field(default_factory=dict)

    def record(self) -> dict[str, object]:
        """Return the message as a record for `rmq send --jsonl`."""
        return {
            "body_b64": base64.b64encode(self.body).decode(),
            "body_encoding": "base64",
            "tags": self.tags,
            "keys": self.keys,
            "properties": {"number": str(self.number)} | self.properties,
        }

    def essence(self) -> tuple[object, ...]:
        """Return all that a producer sets, for comparison."""
        return (self.body, self.tags, self.keys, sorted(self.properties.items()))


def mixed_messages(count: int, *, seed: int) -> list[Sent]:
    """Return `count` messages: one is large, the others binary, text, JSON or empty."""
    rng = random.Random(seed)
    return [
        Sent(
            number=number,
            body=_body(rng, number),
            tags=rng.choice([None, "TagA", "TagB", "标签", "Aa", "BB"]),
            keys=rng.choice([None, f"order-{number}", f"order-{number} k{number % 7}"]),
            properties=rng.choice([{}, {"a": "1", "用户": rng.choice(TEXTS)}]),
        )
        for number in range(count)
    ]


def _body(rng: random.Random, number: int) -> bytes:
    if number == 0:
        return rng.randbytes(BIG_BODY_BYTES)
    kind = rng.randrange(6)
    if kind == 0:
        return bytes(range(256)) + rng.randbytes(rng.randrange(64))
    if kind == 1:
        return rng.choice(TEXTS).encode()
    if kind == 2:
        return b'{"id":%d,"amount":1.50}' % number
    if kind == 3:
        return b""
    if kind == 4:
        return b"x" * rng.randrange(1, 6000)
    return rng.randbytes(rng.randrange(1, 300))
