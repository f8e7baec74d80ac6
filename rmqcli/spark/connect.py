"""Spark Connect: check the server's URL and the client's packages; open a session.

A Spark Connect server runs the programs of clients that have neither Spark nor Java.
PySpark contains the client; the packages that the client needs are an extra of rmqcli.

Source: DefaultChannelBuilder and SparkSession of pyspark.sql.connect.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import warnings
from typing import TYPE_CHECKING, Any, Final

from rmqcli.decode.settings import missing_packages
from rmqcli.errors import (
    ConfigError,
    ConnectError,
    DeniedError,
    RefusedError,
    RmqError,
    UsageError,
)
from rmqcli.hint import Argument, Hint, Setting
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
#: The modules that PySpark's client imports, and the packages that provide them.
CLIENT_MODULES: Final = {
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "google.rpc": "googleapis-common-protos",
    "pandas": "pandas",
    "zstandard": "zstandard",
}
#: The environment variable with the token; the URL may contain the token instead.
TOKEN_VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105  # its name

_URL: Final = re.compile(r"sc://([^/;]+)(?:/(?:;[^;=]+=[^;]*)*)?", re.IGNORECASE)
#: The status and details in the text of a gRPC error: PySpark passes on only the text.
_STATUS: Final = re.compile(
    r"^\s*status = StatusCode\.(\w+)\s+details = \"(.*)\"$", re.MULTILINE
)
_CERTIFICATE: Final = re.compile(r"CERTIFICATE_VERIFY_FAILED: ([^:]+)")
_DENIED: Final = {"PERMISSION_DENIED": 7, "UNAUTHENTICATED": 16}
_REASON_MAX: Final = 300
_CONNECT_MS: Final = 5000
#: The waits between tries are 50 ms, 0.2 s, 0.8 s, 3.2 s and then 10 s, so the client
#: gives up a server after half a minute. PySpark's default of 15 tries takes ten
#: minutes.
_TRIES: Final = 6
_WAIT_MAX_MS: Final = 10_000


def remote_address(url: str) -> Address:
    """Return the address in `sc://HOST[:PORT][/;NAME=VALUE]`. Raises UsageError."""
    found = _URL.fullmatch(url)
    hint = Hint("give sc://HOST:15002 as ", Argument("remote"))
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
    """Raise ConfigError, naming all missing packages, if the client lacks any."""
    modules = missing_packages(tuple(CLIENT_MODULES))
    missing = [CLIENT_MODULES[module] for module in modules]
    if missing:
        raise ConfigError(
            f"this Python lacks {', '.join(missing)}, which the client of Spark Connect"
            " needs",
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
            hint=Hint("start the server, or check ", Argument("remote")),
        ) from error


def check_private(url: str, environ: Mapping[str, str]) -> None:
    """Raise RefusedError unless the connection to the server is encrypted or local.

    A token makes PySpark use TLS, except for localhost.
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
        hint=Hint(
            "give ",
            Setting("remote", f"{url.rstrip('/').partition('/;')[0]}/;use_ssl=true"),
            ", or ",
            Setting("allow_unencrypted", True),
        ),
    )


@contextlib.contextmanager
def connect_session(url: str) -> Iterator[SparkSession]:
    """Open a session with the server for the duration of the block.

    This rmqcli is sent to the server, whose Python workers import it. Raises
    ConfigError when packages of the client are missing, DeniedError when the server
    does not accept the token, and ConnectError when it does not answer like a Spark
    Connect server.
    """
    check_client_packages()
    check_remote_answers(url)
    with scratch_folder() as folder, warnings.catch_warnings():
        # The error that follows has the same information.
        warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")
        # PySpark warns about the version of pandas, which is not used here.
        warnings.simplefilter("ignore", FutureWarning)
        # gRPC's own log repeats on stderr what errors say.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
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


def _no_server(url: str, error: BaseException) -> RmqError:
    """Return the error for the first call of a session, which failed."""
    text = text_of(error).strip()
    found = _STATUS.search(text)
    address = remote_address(url).text
    server = f"the Spark Connect server {shown_url(url)}"
    if found is None:
        reason = (text.splitlines() or [type(error).__name__])[0]
    else:
        name, reason = found.groups()
        if name in _DENIED:
            return DeniedError(
                f"{server} refuses this client: {reason[:_REASON_MAX]}",
                code=_DENIED[name],
                name=name,
                remark=reason,
                address=address,
                hint=f"give the server's token as ;token=TOKEN or in {TOKEN_VARIABLE}",
            )
        unknown_ca = _CERTIFICATE.search(reason)
        if unknown_ca is not None:
            return ConnectError(
                f"{server} has a certificate that is not accepted: {unknown_ca[1]}",
                address=address,
                hint="name a file with the CA that signed it in"
                " GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
            )
        reason = f"{reason} ({name})"
    return ConnectError(
        f"{server} does not answer: {reason[:_REASON_MAX]}",
        address=address,
        hint=Hint(
            "check that ",
            Argument("remote"),
            " has the port of Spark Connect, and use_ssl=true if and only if the"
            " server uses TLS",
        ),
    )


def _is_this_machine(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
