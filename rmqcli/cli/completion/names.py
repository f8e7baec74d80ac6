"""Names for completion: `rmq __complete topic|group|broker|profile LINE`.

A shell runs this at each press of TAB. It therefore loads little,
waits at most BUDGET_S for an answer, prefers a fresh cache, and is silent about errors.
Topics and groups come from the name server's list of topics, which includes the retry
topic of each group that has consumed, brokers from its list of brokers, and profiles
from the user's file.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from rmqcli.files import replace_file, xdg_folder
from rmqcli.transport.topic_list import ask_broker_names, ask_topic_list

if TYPE_CHECKING:
    from rmqcli.cli.configuration.profile import Profile

#: Time limit for the network. Before that, Python takes some tens of ms to start.
BUDGET_S = 0.05
FRESH_S = 30
#: Cached names of up to this age are offered if the name server does not answer.
STALE_S = 24 * 60 * 60
NAMES_MAX = 10_000
_CACHE_BYTES_MAX = 4 << 20
_RETRY = "%RETRY%"
#: Each cluster has a topic with its own name, and one with this suffix.
_REPLY = "_REPLY_TOPIC"
#: Names that brokers accept, `rmqcli.names.STORED_NAME`, which takes longer to load,
#: and those that they have.
_NAME = re.compile(r"[%|a-zA-Z0-9_.-]{1,255}")
#: Names that are offered: without `|`, which a shell reads as a pipe, and not beginning
#: with `-`, because the names are other people's, and a command would take `-n` or
#: `--yes` for an option of ours.
_OFFERED = re.compile(r"[a-zA-Z0-9_%][a-zA-Z0-9_%-]*")
#: Names of brokers may have dots, as those of hosts have.
_OFFERED_BROKER = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9_.-]*")
_SYSTEM = re.compile(
    r"%|(?i:rmq_sys_)|CID_|(TBW102|SCHEDULE_TOPIC_XXXX|BenchmarkTest|SELF_TEST_TOPIC"
    r"|SELF_TEST_P_GROUP|SELF_TEST_C_GROUP|OFFSET_MOVED_EVENT|TOOLS_CONSUMER"
    r"|FILTERSRV_CONSUMER|__MONITOR_CONSUMER)$"
)
_NAMESRV = re.compile(r"(?:^|\s)(?:-n\s*|--namesrv[=\s]\s*)['\"]?([^\s'\";,]+)")
_PROFILE = re.compile(r"(?:^|\s)--profile[=\s]\s*['\"]?([^\s'\"]+)(?=\s)")


def main(arguments: Sequence[str]) -> None:
    """Print names, one per line; print nothing after any error."""
    try:
        kind, line = arguments[0], arguments[1] if len(arguments) > 1 else ""
        if kind == "profile":
            from rmqcli.cli.configuration.file import read_config

            names = sorted(filter(_OFFERED.fullmatch, read_config(os.environ).profiles))
        else:
            address = find_namesrv(line)
            names = [] if address is None else choose(kind, known_names(kind, address))
        sys.stdout.write("".join(f"{name}\n" for name in names))
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001  # a shell is waiting for words, not for ours
        os._exit(0)


def choose(kind: str, topics: Sequence[str]) -> list[str]:
    """Return the sorted names of a kind, `topic`, `group` or `broker`.

    `topics` are those of `known_names`: of brokers, their own names.
    """
    names: list[str] = []
    if kind == "broker":
        return sorted(set(filter(_OFFERED_BROKER.fullmatch, topics)))
    if kind == "topic":
        clusters = {n.removesuffix(_REPLY) for n in topics if n.endswith(_REPLY)}
        names = [n for n in topics if n.removesuffix(_REPLY) not in clusters]
    elif kind == "group":
        names = [name[len(_RETRY) :] for name in topics if name.startswith(_RETRY)]
    return sorted({n for n in names if _OFFERED.fullmatch(n) and not _SYSTEM.match(n)})


def find_namesrv(line: str) -> str | None:
    """Return the first name server of the command line so far.

    It is that of an option, of a profile or of NAMESRV_ADDR, as for the command. The
    result is None where there is none that can be asked without TLS.
    """
    typed = _NAMESRV.search(line)
    profile = None if typed else _profile_of(line)
    if profile is not None:
        if profile.uses_tls or not profile.namesrv:
            return None
        return profile.namesrv[0]
    text = typed[1] if typed else os.environ.get("NAMESRV_ADDR", "")
    address = re.split("[;,]", text)[0].strip() or "127.0.0.1:9876"
    if ":" not in address or address.endswith("]"):
        address += ":9876"
    return address


def _profile_of(line: str) -> Profile | None:
    """Return the profile that the command would use. Raises RmqError."""
    from rmqcli.cli.configuration.choose import choose

    named = _PROFILE.search(line)
    name = named[1] if named else os.environ.get("RMQ_PROFILE") or None
    typed = frozenset({"profile"} if named else ())
    chosen = choose({"profile": name}, typed, os.environ, lambda _: None)
    return None if chosen is None else chosen.profile


def known_names(kind: str, address: str) -> list[str]:
    """Return the name server's topics, or brokers, from the cache if that is fresh."""
    is_broker = kind == "broker"
    ask = ask_broker_names if is_broker else ask_topic_list
    path = _cache_path(address, "-brokers" if is_broker else "")
    age_s, cached = _read_cache(path)
    if cached is not None and 0 <= age_s < FRESH_S:
        return cached
    # The resolution of a host name has no time limit.
    watchdog = threading.Timer(2 * BUDGET_S, os._exit, (0,))
    watchdog.daemon = True
    watchdog.start()
    try:
        names = _checked(ask(address, budget_s=BUDGET_S))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return cached if cached is not None and 0 <= age_s < STALE_S else []
    finally:
        watchdog.cancel()
    _write_cache(path, names)
    return names


def _checked(names: object) -> list[str]:
    if not isinstance(names, list):
        raise TypeError
    found = [n for n in names if isinstance(n, str) and _NAME.fullmatch(n)]
    return found[:NAMES_MAX]


def _cache_path(address: str, suffix: str) -> str:
    home = xdg_folder(os.environ, "XDG_CACHE_HOME", ".cache") or ""
    name = sha256(address.encode()).hexdigest()[:16]
    return os.path.join(home, "rmq", "names", f"{name}{suffix}.json")


def _read_cache(path: str) -> tuple[float, list[str] | None]:
    """Return the cache's age in s and its names; None if they cannot be trusted."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(handle, "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid():
                return 0, None
            names = _checked(json.loads(file.read(_CACHE_BYTES_MAX)))
    except (OSError, ValueError, TypeError):
        return 0, None
    return time.time() - status.st_mtime, names  # noqa: TID251  # a file's age


def _write_cache(path: str, names: list[str]) -> None:
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        replace_file(path, json.dumps(names).encode(), mode=0o600, is_synced=False)
    except OSError:
        return  # without a cache the name server is asked each time
