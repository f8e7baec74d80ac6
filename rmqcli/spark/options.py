"""The options of a DataFrame's format, as Spark gives them: text, any case of names.

What source and sink share: reading an option by its documented name, errors that name
it, and how the cluster is reached.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rmqcli.config import ClientConfig
from rmqcli.errors import TextError, UsageError
from rmqcli.transport.tls import TlsOptions
from rmqcli.units import parse_duration_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

#: The options of how the cluster is reached.
CONNECTION_NAMES: Final = (
    "timeout",
    "aclFile",
    "tls",
    "tlsCa",
    "tlsInsecure",
    "tlsServerName",
    "tlsCert",
    "tlsKey",
)


class Given:
    """The options that were written, by their documented names.

    Raises UsageError for one that `documented` does not have. `call` is the method
    that may have been given a path, such as `load`, and `instead` what to write.
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
                raise UsageError(f"{call} takes no path here", hint=f"write {instead}")
            if name is None:
                raise _unknown(written, documented)
            self._values[name] = value
        self.names = frozenset(self._values)

    def text(self, name: str) -> str | None:
        """The text of an option, None when it was not written."""
        value = self._values.get(name)
        if value is not None and not value.strip():
            raise UsageError(f"option {name} is empty", hint="leave it out")
        return value

    def read(self, name: str, parse: Callable[[str], Any], default: T) -> T | Any:  # noqa: ANN401  # what `parse` returns
        """What `parse` makes of an option, else the default. Errors name it."""
        text = self.text(name)
        if text is None:
            return default
        return named(name, lambda: parse(text))


def named(name: str, parse: Callable[[], T]) -> T:
    """What `parse` returns; what it raises becomes a UsageError that names the option.

    For TextError and ValueError.
    """
    try:
        return parse()
    except TextError as error:
        raise UsageError(f"option {name}: {error.message}", hint=error.hint) from None
    except ValueError as error:
        raise UsageError(f"option {name}: {error}") from None


def boolean(text: str) -> bool:
    """`true` or `false`. Raises ValueError."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return word == "true"


@dataclass(frozen=True, slots=True)
class Connection:
    """How the cluster is reached. Can be pickled.

    Where options describe it, `config` has no credentials: `client_config` reads them
    in the process that connects, so the pickle holds no secret. Credentials that are in
    `config` travel with it.
    """

    config: ClientConfig
    acl_file: str | None

    def client_config(self) -> ClientConfig:
        """The configuration with credentials, else with those of this process.

        Raises ConfigError when a file or variable is there but cannot be used.
        """
        if self.config.credentials is not None:
            return self.config
        from rmqcli.credentials import load_credentials

        credentials = load_credentials(self.acl_file, environ=os.environ, stdin=None)
        return replace(self.config, credentials=credentials)


def connection(given: Given, *, environ: Mapping[str, str]) -> Connection:
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
        timeout_ms=given.read("timeout", parse_duration_ms, 5_000),
        tls=_tls(given),
    )
    return Connection(config, acl_file)


def _unknown(written: str, documented: tuple[str, ...]) -> UsageError:
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
