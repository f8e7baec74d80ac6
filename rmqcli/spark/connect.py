"""Spark Connect: the URL of a server, what its client needs, and a session with it.

A server of Spark Connect runs the programs of clients that have no Spark of their own,
and no Java. PySpark brings the client; the packages that it needs are an extra.

Source: DefaultChannelBuilder and SparkSession of pyspark.sql.connect.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import warnings
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from rmqcli.errors import ConfigError, ConnectError, RefusedError, UsageError
from rmqcli.spark.failure import text_of
from rmqcli.spark.master import shown_url
from rmqcli.spark.package import zip_package
from rmqcli.spark.scratch import scratch_folder
from rmqcli.transport.address import check_listens, parse_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql.connect.session import SparkSession

    from rmqcli.transport.address import Address

PORT_DEFAULT: Final = 15_002
#: The modules that PySpark's client imports besides its own, and where they come from.
CLIENT_MODULES: Final = {
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "google.rpc": "googleapis-common-protos",
    "pandas": "pandas",
    "zstandard": "zstandard",
}
#: The environment variable of the token, for which the URL needs none.
TOKEN_VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105  # its name

_URL: Final = re.compile(r"sc://([^/;]+)(?:/(?:;[^;=]+=[^;]*)*)?", re.IGNORECASE)
_CONNECT_MS: Final = 5000
#: Waits of 50 ms, 0.2, 0.8, 3.2, and then 10 s: half a minute until a server that is
#: gone is given up. PySpark's own 15 tries take ten minutes.
_TRIES: Final = 6
_WAIT_MAX_MS: Final = 10_000


def check_remote_url(url: str) -> None:
    """Raise UsageError for what is not the URL of a Spark Connect server."""
    remote_address(url)


def remote_address(url: str) -> Address:
    """Return the address in `sc://HOST[:PORT][/;NAME=VALUE]`. Raises UsageError."""
    found = _URL.fullmatch(url)
    hint = "give sc://HOST:15002 as the remote argument"
    if found is None:
        raise UsageError(
            f"{shown_url(url)!r} is not the URL of a Spark Connect server", hint=hint
        )
    host = found[1]
    if host.endswith("]") or ":" not in host:
        host += f":{PORT_DEFAULT}"
    try:
        return parse_address(host)
    except UsageError as error:
        raise UsageError(
            f"{shown_url(url)!r} is not the URL of a Spark Connect server:"
            f" {error.message}",
            hint=hint,
        ) from error


def check_client_packages() -> None:
    """Raise ConfigError when packages of the client are missing; it names them all."""
    missing = [name for module, name in CLIENT_MODULES.items() if not _is_there(module)]
    if missing:
        raise ConfigError(
            f"Spark Connect needs {', '.join(missing)} for its client, and this Python"
            " lacks them",
            hint="pip install 'rmqcli[connect]'",
        )


def check_remote_answers(url: str) -> None:
    """Raise ConnectError when nothing listens at the server's address."""
    address = remote_address(url)
    try:
        check_listens(address, timeout_ms=_CONNECT_MS)
    except ConnectError as error:
        raise ConnectError(
            f"the Spark Connect server {shown_url(url)} cannot be reached: {error}",
            address=address.text,
            hint="start the server, or check the remote argument",
        ) from error


def check_private(url: str, environ: Mapping[str, str]) -> None:
    """Raise RefusedError when what is sent to the server could be read on its way.

    A token makes PySpark use TLS, except for localhost, which is on this machine.
    """
    parameters = dict(
        pair.split("=", 1) for pair in url.partition(";")[2].split(";") if "=" in pair
    )
    has_token = "token" in parameters or bool(environ.get(TOKEN_VARIABLE))
    uses_tls = parameters.get("use_ssl", "").lower() == "true"
    if uses_tls or has_token or _is_this_machine(remote_address(url).host):
        return
    raise RefusedError(
        "the access and secret key would travel to the Spark Connect server"
        f" {shown_url(url)} unencrypted",
        hint=f"give remote='{url.rstrip('/').partition('/;')[0]}/;use_ssl=true', or"
        " allow_unencrypted=True",
    )


@contextlib.contextmanager
def connect_session(url: str) -> Iterator[SparkSession]:
    """Open a session with the server for the time of the block.

    Its Python workers import this rmqcli, which is sent to the server. Raises
    ConfigError without the packages of the client, ConnectError when the server does
    not answer as one of Spark Connect.
    """
    check_client_packages()
    check_remote_answers(url)
    with scratch_folder() as folder, warnings.catch_warnings():
        # The error that follows says as much.
        warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")
        # PySpark's opinion of the version of pandas, of which nothing is used here.
        warnings.simplefilter("ignore", FutureWarning)
        from pyspark.errors import PySparkException
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession

        session = SparkSession.builder.remote(url).create()
        session.client.set_retry_policies(
            [DefaultPolicy(max_retries=_TRIES, max_backoff=_WAIT_MAX_MS)]
        )
        try:
            try:
                session.addArtifacts(zip_package(folder), pyfile=True)
            except PySparkException as error:
                raise _no_server(url, error) from error
            yield session
        finally:
            session.stop()


def setting(session: SparkSession, name: str) -> str | None:
    """Return a setting of the server, None when it is not set."""
    value: Any = session.conf.get(name, None)
    return None if value is None else str(value)


def _no_server(url: str, error: BaseException) -> ConnectError:
    lines = text_of(error).strip().splitlines() or [type(error).__name__]
    return ConnectError(
        f"the Spark Connect server {shown_url(url)} does not answer: {lines[0][:300]}",
        address=remote_address(url).text,
        hint="check the remote argument: the port is that of Spark Connect, and"
        " use_ssl=true is for servers with TLS",
    )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def _is_this_machine(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
