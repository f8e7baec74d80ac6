"""What the threads of a group's members do: their stacks, grouped where they are equal.

A dump is the text that a client reports about itself, in the format of RocketMQ's Java
clients or in jstack's, which clients of this package use. The listener's frame is the
outermost one of the user's code: the function that the client's consume service called.

Source: UtilAll#jstack in apache/rocketmq, Utilities#stackTrace in rocketmq-clients.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, Final

from rmqcli.admin.groups import chosen_member, online_members
from rmqcli.admin.lag.proxied import find_proxied_members
from rmqcli.api.calls.consumer import get_consumer_running_info
from rmqcli.client_id import is_grpc_client
from rmqcli.dataclass import dataclass
from rmqcli.errors import DecodeError, PartialError, RmqError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.api.client import Client

#: At most this many members are asked; a dump may have 100 KiB.
MEMBERS_MAX: Final = 64

#: `NAME        TID: 12 STATE: WAITING`; the lines below it begin with the same name
_JAVA_HEADER = re.compile(r"(?P<prefix>(?P<name>.*?) *)TID: \d+ STATE: (?P<state>\w+)")
#: `"NAME" #12 daemon ...`
_QUOTED_HEADER = re.compile(r'"(?P<name>.*)"')
_QUOTED_STATE = re.compile(r"\s+java\.lang\.Thread\.State: (?P<state>\w+)")
_QUOTED_FRAME = re.compile(r"\s+at (?P<frame>.+)")
#: The frame that calls listeners: of Java's clients over remoting and gRPC, and ours.
#: Java puts `loader/module@version/` before the class, with what applies of it.
_SERVICE_FRAME = re.compile(
    r"(?:[^/(]*/){0,2}(?:org\.apache\.rocketmq\.client\.impl\.consumer\.ConsumeMessage\w*Service\b"
    r"|org\.apache\.rocketmq\.client\.java\.impl\.consumer\.ConsumeTask\b"
    r"|rmqcli\.engine\.consume\.request\.)"
)
#: In the name of the class that Java makes for a lambda, which has no source.
_LAMBDA = "$$Lambda"
_CONSUME_THREAD = re.compile(r"ConsumeMessageThread|rmq-consume-|.*MessageConsumption")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStack:
    """One thread: its state, if the dump has it, and its calls, the innermost first."""

    name: str
    state: str | None
    frames: tuple[str, ...]

    @property
    def listener(self) -> str | None:
        """The frame of the listener; None unless the thread runs one."""
        for at, frame in enumerate(self.frames):
            if _SERVICE_FRAME.match(frame):
                calls = reversed(self.frames[:at])
                return next((e for e in calls if _LAMBDA not in e), None)
        return None

    @property
    def is_consuming(self) -> bool:
        """Whether the thread calls listeners, at this moment or at others."""
        return bool(_CONSUME_THREAD.match(self.name)) or any(
            map(_SERVICE_FRAME.match, self.frames)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StackGroup:
    """Threads of one client with the same state and the same calls.

    `frames` are the calls, the innermost first. `listener` is the frame of the listener
    that the threads are running; None when they run none. `is_consuming` says whether
    these threads call listeners at all.
    """

    threads: tuple[str, ...]
    state: str | None
    frames: tuple[str, ...]
    listener: str | None
    is_consuming: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStacks:
    """The stacks of one member, or why they are not known (`error`).

    Stacks of listeners come first, then idle consume threads, then all others; the most
    frequent ones first.
    """

    client_id: str
    stacks: tuple[StackGroup, ...] = ()
    error: RmqError | None = None


@dataclass(frozen=True, slots=True)
class StackList:
    """The members of a group, and the errors of brokers that did not tell theirs.

    Members that only such a broker knows are missing.
    """

    members: list[MemberStacks]
    errors: dict[str, RmqError] = field(default_factory=dict, hash=False)


def member_stacks(
    client: Client, group: str, client_id: str | None = None
) -> StackList:
    """Ask the members of a group, or one of them, for the stacks of their threads.

    Returns one entry for each; a member that did not answer has an error, and so does
    a client of gRPC, which is not asked: its proxy, even where it is part of the
    broker, drops the request, and a thread of the broker would wait for 10 s. Raises
    NotFoundError for a group without members that brokers know, and for a client that
    is not one of them.
    """
    members, errors = online_members(client, group)
    proxied: list[str] = []
    if client_id is None:
        behind = find_proxied_members(client, errors)
        errors = {**behind.errors, **errors}
        of_group = behind.by_group.get(group)
        if of_group is not None:
            proxied = [each.client_id for each in of_group[0].connections]
    if client_id is not None:
        for name, silent in ({} if client_id in members else errors).items():
            raise PartialError(
                f"whether {client_id} is a member of group {group} is not known:"
                f" {name}: {silent.message}",
                hint=silent.hint,
            )
        members = {client_id: chosen_member(members, group, client_id)}
        errors = {}
    of_proxies = {each for each in (*members, *proxied) if is_grpc_client(each)}
    of_proxies |= set(proxied) - members.keys()
    asked = sorted(members.keys() - of_proxies)[:MEMBERS_MAX]
    answers = client.ask_many(
        {
            each: (
                members[each].address,
                get_consumer_running_info(group, each, jstack=True),
            )
            for each in asked
        },
    )
    found = []
    for each in sorted(members.keys() - of_proxies):
        answer = answers.get(each)
        if answer is None:
            error = RmqError(f"not asked: only {MEMBERS_MAX} members are")
            found.append(MemberStacks(client_id=each, error=error))
        elif isinstance(answer, RmqError):
            found.append(MemberStacks(client_id=each, error=answer))
        else:
            found.append(_stacks_of(each, answer.jstack))
    for each in sorted(of_proxies):
        error = UnsupportedError(
            f"{each} cannot be asked: proxies do not pass this request on"
        )
        found.append(MemberStacks(client_id=each, error=error))
    return StackList(found, errors)


def _stacks_of(client_id: str, dump: str | None) -> MemberStacks:
    if not dump:
        error: RmqError = UnsupportedError(f"{client_id} answered without any stack")
        return MemberStacks(client_id=client_id, error=error)
    threads = parse_thread_dump(dump)
    if not threads:
        error = DecodeError(f"{client_id} answered a text that is no dump of threads")
        return MemberStacks(client_id=client_id, error=error)
    return MemberStacks(client_id=client_id, stacks=group_stacks(threads))


def parse_thread_dump(dump: str) -> list[ThreadStack]:
    """Return the threads of a dump, in its order. Pure; other lines are left out."""
    found: list[ThreadStack] = []
    name, state, prefix = "", None, None
    frames: list[str] = []
    is_thread = False

    def end() -> None:
        if is_thread:
            found.append(ThreadStack(name=name, state=state, frames=tuple(frames)))
        frames.clear()

    for line in dump.splitlines():
        if header := _JAVA_HEADER.fullmatch(line):
            end()
            name, state = header["name"], header["state"]
            prefix, is_thread = header["prefix"], True
        elif header := _QUOTED_HEADER.match(line):
            end()
            name, state, prefix, is_thread = header["name"], None, None, True
        elif prefix is not None and line.startswith(prefix) and line != prefix:
            frames.append(line.removeprefix(prefix))
        elif header := _QUOTED_STATE.match(line):
            state = header["state"]
        elif prefix is None and (call := _QUOTED_FRAME.fullmatch(line)):
            frames.append(call["frame"])
    end()
    return found


def group_stacks(threads: Iterable[ThreadStack]) -> tuple[StackGroup, ...]:
    """Put threads with the same state and calls together, in MemberStacks' order."""
    groups: dict[tuple[str | None, tuple[str, ...], bool], list[ThreadStack]] = {}
    for thread in threads:
        key = (thread.state, thread.frames, thread.is_consuming)
        groups.setdefault(key, []).append(thread)
    found = [
        StackGroup(
            threads=tuple(sorted(thread.name for thread in each)),
            state=each[0].state,
            frames=each[0].frames,
            listener=each[0].listener,
            is_consuming=each[0].is_consuming,
        )
        for each in groups.values()
    ]
    found.sort(
        key=lambda e: (e.listener is None, not e.is_consuming, -len(e.threads)),
    )
    return tuple(found)
