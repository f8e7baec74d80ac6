"""The RocketMQ releases that the numbers in a command's `version` stand for.

Peers exchange the ordinal of Java's `MQVersion.Version`, an append-only list: every
release takes two numbers, one for its snapshot and one for itself. Since 4.0.0 every
minor version has room for ten releases and 4.9 is followed by 5.0, so names can be
computed.

Source: MQVersion in apache/rocketmq.
"""

from __future__ import annotations

V4_0_0 = 213
V4_6_0 = 333
V4_9_0 = 393
V4_9_2 = 397  # 327; unknown codes are answered; dead letters without a delay
V4_9_4 = 401  # routes in strict JSON
V4_9_7 = 407
V4_9_8 = 409
V5_0_0 = 413  # 343, 345, 351, 352, setZeroIfNotFound
V5_1_0 = 433  # pullOffset in consume stats; offsets are only stored for known groups
V5_1_3 = 439  # BATCH_ACK_MESSAGE
V5_2_0 = 453  # the broker itself resets offsets, by queue and offset
V5_3_0 = 473
V5_3_1 = 475
V5_5_0 = 513

#: The version that this client announces. Name servers answer clients from 401 on in
#: strict JSON; a server that shuts down may answer clients above 475 with GO_AWAY,
#: which nothing here needs.
CLIENT_VERSION = V4_9_8

_ORDINALS_PER_MINOR = 20
_MINORS_OF_4 = 10
_HIGHER_VERSION = 612  # MQVersion.Version.HIGHER_VERSION


def version_name(ordinal: int) -> str:
    """Return a release's name such as `4.9.7` or `5.0.0-SNAPSHOT`.

    Numbers below 4.0.0 and beyond the list that Java knows are returned as text: no
    release that old speaks with this client, and none that new exists.
    """
    if not V4_0_0 - 1 <= ordinal < _HIGHER_VERSION:
        return str(int(ordinal))
    is_snapshot = ordinal % 2 == 0
    minors, rest = divmod(ordinal + is_snapshot - V4_0_0, _ORDINALS_PER_MINOR)
    majors, minor = divmod(minors, _MINORS_OF_4)
    ending = "-SNAPSHOT" if is_snapshot else ""
    return f"{4 + majors}.{minor}.{rest // 2}{ending}"
