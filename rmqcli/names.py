"""Names of topics and groups: which are valid, and what a mistyped one was meant to be.

The embedded broker has rules of its own (`broker/topic_names`), so that it does not
share a mistake with the code that it tests.

Source: Validators, TopicValidator.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from rmqcli.checked import check_type
from rmqcli.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection

TOPIC_LENGTH_MAX: Final = 127  # TopicValidator.TOPIC_MAX_LENGTH
GROUP_LENGTH_MAX: Final = 255  # Validators.CHARACTER_MAX_LENGTH
#: With %RETRY% before it, it names a folder of each broker: at most 255 characters.
MEMBER_GROUP_LENGTH_MAX: Final = 248
#: A group's name, or the name of a topic that exists: those of retries and dead letters
#: are made of the name of a group, and may be longer than `TOPIC_LENGTH_MAX`.
STORED_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")

#: Groups that MixAll reserves for clients that were given none, and for RocketMQ.
_RESERVED_GROUPS: Final = (
    "DEFAULT_CONSUMER",
    "DEFAULT_PRODUCER",
    "CLIENT_INNER_PRODUCER",
)
#: How similar a name must be, from 0 to 1, to be what was meant.
_SIMILAR: Final = 0.75
_SUGGESTED_MAX: Final = 3
#: A shorter text is not taken for the beginning of the name that was meant.
_BEGUN_MIN: Final = 3


def check_topic(topic: str) -> None:
    """Raise ConfigError for a name that no topic can have, TypeError for no str."""
    _check("topic", topic, TOPIC_LENGTH_MAX)


def check_group(group: str, kind: str = "consumer group") -> None:
    """Raise ConfigError for a group name that brokers refuse, or that is reserved.

    `kind` is what errors call it. Raises TypeError for anything else than a str.
    """
    _check(kind, group, GROUP_LENGTH_MAX)
    if group in _RESERVED_GROUPS:
        raise ConfigError(
            f"{group} is reserved and cannot be a group name",
            hint="choose another name",
        )


def check_member_group(group: str) -> None:
    """Raise as `check_group` does, and for a group that is too long for members.

    A broker may accept their heartbeats, and cannot store a message that failed.
    """
    check_group(group)
    if len(group) > MEMBER_GROUP_LENGTH_MAX:
        raise ConfigError(
            f"the consumer group's name has {len(group)} characters, more than"
            f" {MEMBER_GROUP_LENGTH_MAX}",
            hint="brokers store the group's retries under its name with %RETRY% before"
            " it: choose a shorter one",
        )


def similar(name: str, known: Collection[str]) -> list[str]:
    """Return the names that `name` may be a mistyped form of, most similar first."""
    import difflib  # only when a name was mistyped

    lower = name.lower()
    if same := [each for each in known if each.lower() == lower]:
        return same
    begun = [
        each
        for each in sorted(known, key=lambda each: (len(each), each))
        if len(name) >= _BEGUN_MIN and each.lower().startswith(lower)
    ]
    near = difflib.get_close_matches(
        name, sorted(known), n=_SUGGESTED_MAX, cutoff=_SIMILAR
    )
    return list(dict.fromkeys([*begun, *near]))[:_SUGGESTED_MAX]


def _check(kind: str, name: str, length_max: int) -> None:
    if type(name) is not str:
        check_type(name, str, kind.rpartition(" ")[2])
    _check_text(kind, name, length_max)


@lru_cache(maxsize=1024)  # a program makes many messages for few topics
def _check_text(kind: str, name: str, length_max: int) -> None:
    if not name.strip():
        raise ConfigError(f"the {kind}'s name is empty")
    if len(name) > length_max:
        raise ConfigError(
            f"the {kind}'s name has {len(name)} characters, more than {length_max}"
        )
    if not STORED_NAME.fullmatch(name):
        raise ConfigError(
            f"{kind} {name!r} has characters that are not allowed",
            hint="use only letters, digits and % | _ -",
        )
