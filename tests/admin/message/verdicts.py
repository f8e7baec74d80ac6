"""The table of verdicts: what became of a message, written down before it is asked.

A row is a message and its group in one state, and what consumers of the group must see
afterwards. Each row is tried with each of its versions that a run asks for, and those
of POP also with each way to receive. Beside the group of a row, the topic has a second
group, which has consumed nothing: for it the same message waits, unless no consumer
gets it yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

ALL = ("4.6.0", "4.9.7", "5.3.3", "5.5.0")
V5 = ("5.3.3", "5.5.0")
#: Versions that are not the oldest or the newest: the gate leaves them to the night.
NIGHTLY = ("4.9.7", "5.3.3")
#: These have no settings of their topics of transactions, and so refuse to read them.
V4 = ("4.6.0", "4.9.7")
#: How a group receives by POP: over remoting, or by gRPC through a proxy in each mode.
WAYS = ("remoting", "local", "cluster")

#: What consumers see after the question.
COMES = "comes"
NEVER = "never comes"
HELD = "a member has it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A state, the verdict of its group, and what happens then.

    `verdict` is what `message show` says; `attempt` is checked if it is not None, and
    `reason` is a part of the reason. `other` is the verdict of the second group. Of
    POP, `ways` are those that the row is for, and with `is_ordered` the group is one
    that receives in order. With `has_priority` the topic is of messages with a
    priority, each of which has a queue of its own.
    """

    state: str
    verdict: str
    then: str
    attempt: int | None = None
    waiting_before: int | None = None
    reason: str = ""
    other: str = "waiting"
    versions: tuple[str, ...] = ALL
    ways: tuple[str, ...] = WAYS
    is_ordered: bool = False
    has_priority: bool = False


#: Groups over remoting whose members pull, or have left.
PULLED = (
    Row(state="first of its queue", verdict="waiting", then=COMES, waiting_before=0),
    Row(state="third of its queue", verdict="waiting", then=COMES, waiting_before=2),
    Row(
        state="group without an offset",
        verdict="unknown",
        then=COMES,
        reason="no offset was ever committed",
    ),
    Row(
        state="offset moved by someone",
        verdict="unknown",
        then=NEVER,
        reason="no member is online",
    ),
    Row(
        state="consumed, and the members left",
        verdict="unknown",
        then=NEVER,
        reason="no member is online",
    ),
    Row(
        state="reset by this tool",
        verdict="unknown",
        then=NEVER,
        reason="a reset moved the group over it",
    ),
    Row(state="consumed", verdict="consumed", then=NEVER, attempt=1),
    Row(state="consumed with its tag", verdict="consumed", then=NEVER, attempt=1),
    Row(state="another tag", verdict="filtered", then=NEVER),
    Row(state="no tag", verdict="filtered", then=NEVER),
    Row(state="selected by SQL", verdict="consumed", then=NEVER, attempt=1),
    Row(state="not selected by SQL", verdict="filtered", then=NEVER),
    Row(
        state="skipped by an earlier filter",
        verdict="unknown",
        then=NEVER,
        reason="another filter before",
    ),
    Row(
        state="older than a group that begins at the end",
        verdict="unknown",
        then=NEVER,
        reason="another filter before",
    ),
    Row(state="in a listener", verdict="in_flight", then=HELD),
    Row(state="consumed at the second try", verdict="consumed", then=NEVER, attempt=2),
    Row(state="broadcast", verdict="broadcast", then=NEVER),
    Row(state="retry that is due", verdict="in_retry", then=COMES, attempt=2),
    Row(state="retry with a delay", verdict="in_retry", then=COMES, attempt=2),
    Row(state="dead", verdict="dead", then=NEVER),
    Row(state="dead and in retry", verdict="in_retry", then=COMES, attempt=2),
    Row(state="delay level", verdict="delayed", then=COMES, other="delayed"),
    Row(
        state="delay level that is over",
        verdict="waiting",
        then=COMES,
        waiting_before=0,
    ),
    Row(
        state="delivery time",
        verdict="delayed",
        then=COMES,
        other="delayed",
        versions=V5,
    ),
    Row(
        state="recalled",
        verdict="recalled",
        then=NEVER,
        other="recalled",
        versions=V5,
    ),
    Row(state="half", verdict="half", then=NEVER, other="half", versions=V5),
    Row(
        state="half",
        verdict="unknown",
        then=NEVER,
        other="unknown",
        reason="does not show",
        versions=V4,
    ),
    Row(
        state="rolled back",
        verdict="rolled_back",
        then=NEVER,
        other="rolled_back",
        versions=V5,
    ),
    Row(
        state="rolled back",
        verdict="unknown",
        then=NEVER,
        other="unknown",
        reason="does not show",
        versions=V4,
    ),
    Row(state="committed", verdict="waiting", then=COMES, waiting_before=0),
    Row(
        state="beside a group that consumes",
        verdict="waiting",
        then=COMES,
        waiting_before=1,
        other="consumed",
    ),
    Row(
        state="consumed beside a group that consumes",
        verdict="consumed",
        then=NEVER,
        attempt=1,
        other="consumed",
    ),
    Row(
        state="third of its queue",
        verdict="waiting",
        then=COMES,
        waiting_before=2,
        versions=("5.5.0",),
        has_priority=True,
    ),
    Row(
        state="consumed",
        verdict="consumed",
        then=NEVER,
        attempt=1,
        versions=("5.5.0",),
        has_priority=True,
    ),
)

#: Groups that receive by POP, in each of WAYS.
POPPED = (
    Row(state="not received", verdict="waiting", then=COMES, versions=V5),
    Row(state="received", verdict="in_flight", then=COMES, attempt=1, versions=V5),
    Row(state="acknowledged", verdict="consumed", then=NEVER, attempt=1, versions=V5),
    Row(state="not acknowledged", verdict="in_retry", then=COMES, versions=V5),
    Row(state="received again", verdict="in_flight", then=COMES, versions=V5),
    Row(
        state="acknowledged again",
        verdict="consumed",
        then=NEVER,
        attempt=2,
        versions=V5,
    ),
    Row(state="passed over by its tag", verdict="filtered", then=NEVER, versions=V5),
    Row(
        state="passed over by a member that left",
        verdict="unknown",
        then=NEVER,
        reason="no member is online",
        versions=V5,
    ),
    Row(
        state="received",
        verdict="in_flight",
        then=COMES,
        attempt=1,
        versions=("5.5.0",),
        ways=("remoting", "cluster"),
        has_priority=True,
    ),
    Row(
        state="acknowledged",
        verdict="consumed",
        then=NEVER,
        attempt=1,
        versions=("5.5.0",),
        ways=("remoting", "cluster"),
        has_priority=True,
    ),
)

#: Groups that receive in order by POP, where the offset moves with acknowledgements.
ORDERED = (
    Row(
        state="not received",
        verdict="waiting",
        then=COMES,
        waiting_before=0,
        versions=V5,
    ),
    Row(state="received by a member", verdict="in_flight", then=COMES, versions=V5),
    Row(
        state="behind one that is received",
        verdict="unknown",
        then=COMES,
        reason="keeps what it has handed out where it cannot be read",
        versions=V5,
    ),
    Row(
        state="received",  # by a member that left
        verdict="unknown",
        then=COMES,
        reason="keeps what it has handed out where it cannot be read",
        versions=V5,
    ),
    Row(
        state="not acknowledged",
        verdict="waiting",
        then=COMES,
        waiting_before=0,
        versions=V5,
    ),
    Row(
        state="acknowledged by a member",
        verdict="consumed",
        then=NEVER,
        ways=("remoting",),
        versions=V5,
    ),
    Row(
        state="acknowledged by a member",
        verdict="unknown",
        then=NEVER,
        reason="a group that is new begins at the end",
        ways=("local", "cluster"),
        versions=V5,
    ),
    Row(  # The preparation takes a minute: only each night.
        state="acknowledged by a member of long standing",
        verdict="consumed",
        then=NEVER,
        versions=("5.3.3",),
    ),
    Row(
        state="acknowledged",  # by a member that left
        verdict="unknown",
        then=NEVER,
        reason="no member is online",
        versions=V5,
    ),
    Row(
        state="acknowledged again by a member",
        verdict="consumed",
        then=NEVER,
        ways=("remoting",),
        versions=V5,
    ),
)

#: Messages on a broker of two, the other of which is down. Each night only.
ALONE = (
    Row(state="first of its queue", verdict="waiting", then=COMES, waiting_before=0),
    Row(
        state="group with an offset on the other broker only",
        verdict="unknown",
        then=COMES,
        reason="no offset was ever committed",
    ),
    Row(
        state="consumed",
        verdict="unknown",
        then=NEVER,
        reason="retries may be on broker-a, which has left the route",
    ),
    Row(state="another tag", verdict="filtered", then=NEVER),
    Row(state="in a listener", verdict="in_flight", then=HELD),
    Row(state="retry that is due", verdict="in_retry", then=COMES, attempt=2),
    Row(state="dead", verdict="dead", then=NEVER),
)


def rows_of(version: str) -> list[Row]:
    """Return the rows over remoting of a version."""
    return [row for row in PULLED if version in row.versions]


def popped_of(version: str) -> list[tuple[str, Row]]:
    """Return the rows of POP of a version, each with its way."""
    return [
        (way, row)
        for way in WAYS
        for row in (*POPPED, *(replace(each, is_ordered=True) for each in ORDERED))
        if version in row.versions and way in row.ways
    ]


def cases() -> int:
    """Return how many verdicts the table has: each message in both of its groups."""
    of_versions = sum(len(rows_of(each)) + len(popped_of(each)) for each in ALL)
    return 2 * (of_versions + len(ALONE) * len(NIGHTLY))
