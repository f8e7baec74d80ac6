"""Which output format a profile gives to the errors of a command."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rmqcli.cli.configuration.places import has_config
from rmqcli.config import parse_endpoints, parse_namesrv
from rmqcli.errors import RmqError

_OPTIONS = {
    "--profile": "profile",
    "--namesrv": "namesrv",
    "-n": "namesrv",
    "--endpoints": "endpoints",
    "--store": "store",
}


def output_by_profile(arguments: Sequence[str]) -> str | None:
    """Return the `output` of the profile that a command line uses, or would use.

    The arguments may be wrong. None without a profile, or for one that cannot be used.
    """
    if not has_config(os.environ):
        return None
    from rmqcli.cli.configuration.choose import PROFILE_VARIABLE, choose

    typed = _typed(arguments)
    values: dict[str, object] = {
        "profile": os.environ.get(PROFILE_VARIABLE) or None,
        **typed,
    }
    try:
        if "namesrv" in typed:
            values["namesrv"] = parse_namesrv(typed["namesrv"])
        if "endpoints" in typed:
            values["endpoints"] = parse_endpoints(typed["endpoints"])
        chosen = choose(values, frozenset(typed), os.environ, lambda _: None)
    except RmqError:
        return None
    return None if chosen is None or "store" in typed else chosen.profile.output


def _typed(arguments: Sequence[str]) -> dict[str, str]:
    """Return the values of the options that choose a cluster."""
    found = {}
    words = iter(arguments)
    for word in words:
        if word == "--":
            break
        flag, equals, value = word.partition("=")
        if word.startswith("-n") and len(word) > 2:
            flag, equals, value = "-n", "=", word[2:]
        if flag in _OPTIONS:
            found[_OPTIONS[flag]] = value if equals else next(words, "")
    return found
