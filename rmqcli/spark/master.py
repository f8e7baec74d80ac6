"""Check the URL of a Spark master before Java is started.

Spark itself notices only after seconds, or a minute, that a URL is not that of a master
or that the master does not answer, and then reports it between stack frames.

Source: SparkSubmit.prepareSubmitEnvironment, SparkSubmitArguments, StandaloneAppClient.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from rmqcli.errors import ConfigError, ConnectError, UsageError
from rmqcli.hint import Argument, Hint, Setting
from rmqcli.transport.address import check_listens, parse_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rmqcli.transport.address import Address

_STANDALONE: Final = "spark://"
_CONNECT_MS: Final = 5000
_SPARK_CONNECT: Final = re.compile(r"sc://", re.IGNORECASE)
#: The masters that spark-submit accepts.
_MASTER: Final = re.compile(r"local($|\[|-cluster\[)|spark://|k8s://|yarn$")
_TOKEN: Final = re.compile(r"(;token=)[^;]*", re.IGNORECASE)
_HINT: Final = "give spark://HOST:PORT, k8s://URL, yarn or local[*] as the master"


def is_local(master: str | None) -> bool:
    """Whether the workers are children of a JVM on this machine."""
    return master is None or master == "local" or master.startswith("local[")


def check_master_url(master: str | None, environ: Mapping[str, str]) -> None:
    """Raise UsageError unless `master` is the URL of a master, or None.

    None stands for this machine. Raises ConfigError for YARN when its configuration is
    not found. Opens no connection.
    """
    if master is None:
        return
    if _SPARK_CONNECT.match(master):
        raise UsageError(
            f"{shown_url(master)} is a Spark Connect server, not a master",
            hint=Hint("give it as ", Argument("remote")),
        )
    if not _MASTER.match(master):
        raise UsageError(f"{master!r} is not a Spark master", hint=_HINT)
    if master.startswith(_STANDALONE):
        standalone_addresses(master)
    names = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
    if (
        master == "yarn"
        and not any(environ.get(name) for name in names)
        and not _has_environment_file(environ)
    ):
        raise ConfigError(
            "the Spark master is yarn, but neither HADOOP_CONF_DIR nor YARN_CONF_DIR is"
            " set",
            hint="set HADOOP_CONF_DIR to the folder with yarn-site.xml",
        )


def standalone_addresses(master: str) -> list[Address]:
    """Return the addresses in `spark://HOST:PORT,HOST:PORT`.

    Raises UsageError when an address is invalid.
    """
    try:
        return [
            parse_address(text) for text in master.removeprefix(_STANDALONE).split(",")
        ]
    except UsageError as error:
        raise UsageError(
            f"{master!r} is not the URL of a Spark master: {error.message}",
            hint="give spark://HOST:7077 as the master",
        ) from error


def check_master_answers(master: str | None) -> None:
    """Raise ConnectError when no standalone master can be reached from this machine.

    When the URL names several masters, one of them is enough. Masters of other kinds
    are not checked.
    """
    if master is None or not master.startswith(_STANDALONE):
        return
    reason: ConnectError | None = None
    for address in standalone_addresses(master):
        try:
            check_listens(address, timeout_ms=_CONNECT_MS)
        except ConnectError as error:
            reason = error
        else:
            return
    raise ConnectError(
        f"the Spark master {master} cannot be reached: {reason}",
        address=master.removeprefix(_STANDALONE),
        hint=Hint("start the master, or check ", Argument("master")),
    ) from reason


def shown_url(url: str) -> str:
    """Return the URL of a Spark Connect server for display, without its token.

    Any other text is returned unchanged.
    """
    return _TOKEN.sub(r"\1TOKEN", url)


def check_kubernetes_image(
    master: str | None, read: Callable[[str], str | None], *, packages: Iterable[str]
) -> None:
    """Raise ConfigError for Kubernetes when no image for the executors is set.

    `read` returns a setting, None when it is not set. `packages` are the Python
    packages that the image needs. Spark itself reports a missing image only when it
    requests the first executor.
    """
    names = (
        "spark.kubernetes.container.image",
        "spark.kubernetes.executor.container.image",
    )
    if master is None or not master.startswith("k8s://") or any(map(read, names)):
        return
    raise ConfigError(
        f"the Spark master is Kubernetes, but {names[0]} is not set",
        hint=Hint(
            "give ",
            Setting("conf", f"{names[0]}=IMAGE"),
            f", an image with Python, {', '.join(packages)}",
        ),
    )


def _has_environment_file(environ: Mapping[str, str]) -> bool:
    """Whether spark-submit reads a script that may set more variables."""
    folder = environ.get("SPARK_CONF_DIR")
    if not folder and environ.get("SPARK_HOME"):
        folder = os.path.join(environ["SPARK_HOME"], "conf")
    return bool(folder) and os.path.exists(os.path.join(folder or "", "spark-env.sh"))
