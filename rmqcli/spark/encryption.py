"""Check that Spark encrypts the data that it sends between machines.

Tasks carry the access and secret key of the RocketMQ cluster to the workers. Spark
sends tasks over its RPC and block transfer connections, which are unencrypted unless
`spark.network.crypto.enabled` or `spark.ssl.rpc.enabled` (4.0) is true; the other
settings of `spark.ssl` concern web pages and files.

Source: "Spark Security" of Spark's documentation, SparkSubmitArguments.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
from typing import TYPE_CHECKING, Final

from rmqcli.errors import RefusedError
from rmqcli.hint import Hint, Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Either of them encrypts RPC and block transfer.
ENCRYPTING: Final = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
_SETTING: Final = re.compile(r"([^\s=:]+)\s*[=:\s]\s*(.*)")


def check_encrypted(read: Callable[[str], str | None]) -> None:
    """Raise RefusedError unless a setting makes Spark encrypt its connections.

    `read` returns the value of a setting, None when it is not set.
    """
    for name in ENCRYPTING:
        if (read(name) or "").strip().lower() == "true":
            return
    raise RefusedError(
        "the access and secret key would travel to Spark's workers unencrypted:"
        f" neither {' nor '.join(ENCRYPTING)} is true",
        hint=Hint(
            "set spark.authenticate and spark.network.crypto.enabled in"
            " spark-defaults.conf, or give ",
            Setting("allow_unencrypted", True),
        ),
    )


def submitted_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that spark-submit will use.

    They are those of spark-defaults.conf, overridden by PYSPARK_SUBMIT_ARGS.
    """
    values: dict[str, str] = {}
    folder = environ.get("SPARK_CONF_DIR")
    if not folder:
        folder = os.path.join(environ.get("SPARK_HOME") or _pyspark_home(), "conf")
    path = os.path.join(folder, "spark-defaults.conf")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        lines = []
    for line in lines:
        match = _SETTING.fullmatch(line.strip())
        if match is not None and not line.lstrip().startswith(("#", "!")):
            values[match[1]] = match[2]
    words = shlex.split(environ.get("PYSPARK_SUBMIT_ARGS", ""))
    for flag, word in itertools.pairwise(words):
        name, equals, value = word.partition("=")
        if flag in ("--conf", "-c") and equals:
            values[name] = value
    return values


def _pyspark_home() -> str:
    import importlib.util  # only for a cluster

    found = importlib.util.find_spec("pyspark")
    return os.path.dirname(found.origin) if found and found.origin else ""
