"""The options of a DataFrame's format, which Spark passes as text.

Source and sink share this module: it reads an option by its documented name, ignoring
case, names the option in errors, and determines how to reach the cluster.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rmqcli.config import ClientConfig, parse_address_map
from rmqcli.dataclass import dataclass
from rmqcli.errors import TextError, UsageError
from rmqcli.transport.tls import TlsOptions
from rmqcli.units import parse_duration_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

#: The options that say how to reach the cluster.
CONNECTION_NAMES: Final = (
    "timeout",
    "aclFile",
    "tls",
    "tlsCa",
    "tlsInsecure",
    "tlsServerName",
    "tlsCert",
    "tlsKey",
    "addressMap",
)

#: Options of Spark's source for Kafka that have another name here.
KAFKA_NAMES: Final = {
    "kafka.bootstrap.servers": "namesrv",
    "kafka.group.id": "commitGroup",
    "includeHeaders": "includeProperties",
    "fetchOffset.numRetries": "retryFor",
    "fetchOffset.retryIntervalMs": "retryInterval",
    "kafka.request.timeout.ms": "timeout",
    "kafka.sasl.jaas.config": "aclFile",
}


class Given:
    """The options that the user set, by their documented names.

    Raises UsageError for an option that is not in `documented`. `call` is the method to
    which the user may have passed a path, such as `load`, and `instead` is what to
    write for that.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        *,
        documented: tuple[str, ...],
        call: str,
        instead: str,
    ) -> None:
        names = {name.lower(): name for name in documented}
        self._values: dict[str, str] = {}
        for written, value in options.items():
            name = names.get(written.lower())
            if name is None and written.lower() == "path":
                raise UsageError(
                    f"{call} does not accept a path", hint=f"write {instead}"
                )
            if name is None:
                raise _unknown(written, documented)
            self._values[name] = value
        self.names = frozenset(self._values)

    def text(self, name: str) -> str | None:
        """The text of an option, None when it is not set.

        Raises UsageError when the text is blank.
        """
        value = self._values.get(name)
        if value is not None and not value.strip():
            raise UsageError(f"option {name} is empty", hint="leave it out")
        return value

    def read(self, name: str, parse: Callable[[str], Any], default: T) -> T | Any:  # noqa: ANN401  # what `parse` returns
        """The parsed value of an option, or the default. Errors name the option."""
        text = self.text(name)
        if text is None:
            return default
        return named(name, lambda: parse(text))


def named(name: str, parse: Callable[[], T]) -> T:
    """Call `parse` and return its result.

    A TextError or ValueError that it raises becomes a UsageError that names the option.
    """
    try:
        return parse()
    except TextError as error:
        raise UsageError(f"option {name}: {error.message}", hint=error.hint) from None
    except ValueError as error:
        raise UsageError(f"option {name}: {error}") from None


def positive_ms(text: str) -> int:
    """Parse a duration such as `5s` that is not 0; return milliseconds."""
    found_ms = parse_duration_ms(text)
    if not found_ms:
        raise ValueError(f"{text!r} must be greater than 0")
    return found_ms


def boolean(text: str) -> bool:
    """Parse `true` or `false`, in any case. Raises ValueError for any other text."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return word == "true"


@dataclass(frozen=True, slots=True)
class ClusterConnection:
    """How to reach the cluster. Can be pickled.

    When options describe the connection, `config` has no credentials: `client_config`
    reads them in the process that connects, so the pickle contains no secret. When
    `config` has credentials, they are pickled with it.
    """

    config: ClientConfig
    acl_file: str | None

    def client_config(self) -> ClientConfig:
        """The configuration with its own credentials, or with those of this process.

        Raises ConfigError when a file or environment variable with credentials exists
        but cannot be used.
        """
        if self.config.credentials is not None:
            return self.config
        from rmqcli.credentials import load_credentials

        credentials = load_credentials(self.acl_file, environ=os.environ, stdin=None)
        return replace(self.config, credentials=credentials)


def connection(given: Given, *, environ: Mapping[str, str]) -> ClusterConnection:
    """The connection that the options describe. Raises UsageError or ConfigError."""
    acl_file = given.text("aclFile")
    if acl_file == "-":
        raise UsageError(
            "option aclFile cannot be stdin: every worker reads the file",
            hint="write the path of a file that exists on every worker",
        )
    config = ClientConfig.from_env(
        environ,
        namesrv=given.text("namesrv"),
        timeout_ms=given.read("timeout", positive_ms, 5_000),
        tls=_tls(given),
        address_map=given.read("addressMap", parse_address_map, ()),
    )
    return ClusterConnection(config, acl_file)


def _unknown(written: str, documented: tuple[str, ...]) -> UsageError:
    ours = {name.lower(): ours for name, ours in KAFKA_NAMES.items()}
    of_kafka = ours.get(written.lower())
    if of_kafka in documented:
        return UsageError(
            f"option {written} does not exist", hint=f"here it is option {of_kafka}"
        )
    lower = {name.lower(): name for name in documented}
    near = difflib.get_close_matches(written.lower(), lower, n=1)
    allowed = f"the options are {', '.join(documented)}"
    return UsageError(
        f"option {written} does not exist",
        hint=f"did you mean {lower[near[0]]}? {allowed}" if near else allowed,
    )


def _tls(given: Given) -> TlsOptions | None:
    parts = ("tlsCa", "tlsInsecure", "tlsServerName", "tlsCert", "tlsKey")
    tls = given.read("tls", boolean, default=any(p in given.names for p in parts))
    insecure = given.read("tlsInsecure", boolean, default=False)
    cert, key = given.text("tlsCert"), given.text("tlsKey")
    if not tls:
        for name in parts:
            if name in given.names:
                raise UsageError(f"option {name} contradicts tls=false")
        return None
    if key is not None and cert is None:
        raise UsageError("option tlsKey needs tlsCert")
    return TlsOptions(
        ca_file=given.text("tlsCa"),
        insecure=insecure,
        cert_file=cert,
        key_file=key,
        server_hostname=given.text("tlsServerName"),
    )
