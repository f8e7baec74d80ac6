"""`rmq serve`: runs the embedded cluster, a name server and brokers, in one process.

Checks the combination of flags, chooses ports, shows the addresses, and runs until
Ctrl-C or SIGTERM. The cluster itself is in `rmqcli.broker.cluster.embedded`.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rmqcli.cli.options import Common, command_options, option
from rmqcli.cli.ui.output import Column
from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from rmqcli.broker.cluster.embedded import ClusterOptions, EmbeddedCluster
    from rmqcli.broker.proxy.options import ProxyOptions

_address = partial(option, section="Addresses")
_data = partial(option, section="Data")
_broker = partial(option, section="Brokers")
_proxy = partial(option, section="Proxy")


COLUMNS = (
    Column("server", "namesrv, proxy, proxy-remoting, or the broker's name"),
    Column("address", "address on which it listens"),
    Column("version", "RocketMQ version that it imitates", priority=10),
    Column(
        "store", "folder with the broker's messages; null if there is none", priority=20
    ),
)
#: The first broker's port minus the name server's port: 10911 for 9876.
BROKER_PORT_DISTANCE = 10_911 - 9_876
#: Distance between two brokers' ports: leaves room for the VIP port, broker port - 2.
BROKER_PORT_STEP = 10
VIP_PORT_DISTANCE = 2
_OPEN_FILES_WANTED = 65_536
_ACCOUNT_EXAMPLE = (
    'write for each account a table such as [shop], with secret_key = "..." and'
    ' optionally rights = { "Topic:orders" = "Pub,Sub" }'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of `rmq serve` as they were typed, and checks of combinations."""

    listen: str = _address(
        default="127.0.0.1:9876",
        metavar="HOST:PORT",
        help="Address of the name server; the first broker listens on PORT + 1035."
        " PORT 0: any free ports.",
    )
    broker_port: int | None = _address(
        min=3,
        max=65_535,
        metavar="PORT",
        help="Port of the first broker; further ones listen on PORT + 10, PORT +"
        " 20, ...",
    )
    allow_remote: bool = _address(
        default=False,
        help="Allow --listen on an address that other machines can reach. There is "
        "no authentication.",
    )
    store: str | None = _data(metavar="DIR", help="Keep all data in this folder.")
    flush: str = _data(
        default="async",
        choices=("async", "sync"),
        help="Flush messages to disk before (sync) or after (async) answering.",
    )
    faults: str | None = _broker(
        metavar="FILE", help="Inject the faults listed in this JSON file."
    )
    like: str = _broker(
        default="5.5.0",
        choices=("4.6.0", "4.9.7", "5.5.0"),
        help="RocketMQ version to imitate.",
    )
    brokers: int = _broker(default=1, min=1, max=26, help="Number of master brokers.")
    queues: int = _broker(
        default=8,
        min=1,
        max=1024,
        help="Number of queues of topics that are created by sending.",
    )
    vip_channel: bool = _address(
        default=False, help="Also listen on the VIP port, broker port - 2."
    )
    proxy_port: int | None = _proxy(
        min=0,
        max=65_535,
        metavar="PORT",
        help="Also run a proxy for gRPC clients on this port; 0 is any free port.",
    )
    proxy_remoting_port: int | None = _proxy(
        min=0,
        max=65_535,
        metavar="PORT",
        help="Let remoting clients use the proxy as name server and brokers, on"
        " this port; 0 is any free port.",
    )
    proxy_tls_cert: str | None = _proxy(
        metavar="FILE",
        help="TLS certificate of the proxy, which then accepts only TLS connections.",
    )
    proxy_tls_key: str | None = _proxy(
        metavar="FILE", help="Key of the proxy's certificate."
    )
    proxy_accounts: str | None = _proxy(
        metavar="FILE",
        help="TOML file with the accounts that the proxy serves, and their rights.",
    )
    property_filter: bool = _broker(
        default=False, help="Allow SQL92 filters (enablePropertyFilter)."
    )

    def proxy(self) -> ProxyOptions | bool:
        """Return the settings of the proxy, or False without one.

        Raises UsageError, and ConfigError for an invalid file of accounts.
        """
        from rmqcli.broker.proxy.options import ProxyOptions

        cert, key = self.proxy_tls_cert, self.proxy_tls_key
        tls, accounts = key if cert is None else cert, self.proxy_accounts
        if self.proxy_port is None:
            for names, value in (
                ("--proxy-tls-cert and --proxy-tls-key need", tls),
                ("--proxy-remoting-port needs", self.proxy_remoting_port),
                ("--proxy-accounts needs", accounts),
            ):
                if value is not None:
                    raise UsageError(f"{names} --proxy-port", hint="add --proxy-port")
            return False
        if (cert is None) != (key is None):
            raise UsageError(
                "--proxy-tls-cert and --proxy-tls-key must be used together"
            )
        secrets, rights = (None, None) if accounts is None else read_accounts(accounts)
        return ProxyOptions(
            port=self.proxy_port,
            remoting_port=self.proxy_remoting_port,
            tls_cert=None if cert is None else Path(cert),
            tls_key=None if key is None else Path(key),
            accounts=secrets,
            rights=rights,
        )


@command_options(ServeOptions, fields=COLUMNS, connects=False)
def serve(common: Common, options: ServeOptions) -> None:
    """Run a name server and brokers, for development and tests.

    Example: rmq serve --store ~/rmq-store --listen 127.0.0.1:9876

    Exits with code 0 on Ctrl-C or SIGTERM. Not for production: only the proxy checks
    accounts, messages are not replicated, and everything runs in one thread.
    """
    from rmqcli.broker.cluster.embedded import ClusterOptions, EmbeddedCluster

    host, port = parse_listen(options.listen, allow_remote=options.allow_remote)
    settings = ClusterOptions(
        brokers=options.brokers,
        queues=options.queues,
        like=options.like,
        store=None if options.store is None else Path(options.store),
        flush="sync" if options.flush == "sync" else "async",
        host=host,
        namesrv_port=port,
        broker_ports=broker_ports(port, options.brokers, first=options.broker_port),
        vip_channel=options.vip_channel,
        proxy=options.proxy(),
        settings={
            "default_topic_queue_nums": options.queues,
            "enable_property_filter": options.property_filter,
        },
    )
    rules = []
    if options.faults is not None:
        from rmqcli.broker.fault_file import read_fault_file

        rules = read_fault_file(Path(options.faults))
    _allow_many_connections()
    with suppress(KeyboardInterrupt), EmbeddedCluster(settings) as cluster:
        for rule in rules:
            cluster.faults.add_rule(rule)
        _show(common, cluster, settings)
        threading.Event().wait()
    common.messages.info("stopped")


def parse_listen(text: str, *, allow_remote: bool) -> tuple[str, int]:
    """Return the host and port to listen on. Raises UsageError.

    Unless `allow_remote`, only a loopback address is accepted.
    """
    host, colon, port_text = text.rpartition(":")
    if not colon or not (port_text.isascii() and port_text.isdigit()):
        raise UsageError(
            f"--listen {text!r} is not HOST:PORT", hint="for example 127.0.0.1:9876"
        )
    port = int(port_text[:6])
    if port > 65_535:
        raise UsageError(f"port {port_text} of --listen is not in 0..65535")
    host = host.removeprefix("[").removesuffix("]") or "0.0.0.0"  # noqa: S104  # refused below, unless it is wanted
    if not (allow_remote or is_loopback(host)):
        raise UsageError(
            f"--listen {text!r} can be reached from other machines, and there is no"
            " authentication",
            hint="use 127.0.0.1, or add --allow-remote",
        )
    return host, port


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    import ipaddress  # only this command needs it

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def broker_ports(
    namesrv_port: int, brokers: int, *, first: int | None = None
) -> tuple[int, ...]:
    """Return the brokers' ports, from `first` on or derived from the name server's.

    Without `first`, and if the name server's port is 0, the result is empty, which
    means any free ports. Raises UsageError for a port above 65535, and for a broker
    whose port or VIP port is the name server's.
    """
    if first is None:
        if not namesrv_port:
            return ()
        first = namesrv_port + BROKER_PORT_DISTANCE
        source = f"for name server port {namesrv_port}"
    else:
        source = f"with --broker-port {first}"
    ports = tuple(first + BROKER_PORT_STEP * n for n in range(brokers))
    if ports[-1] > 65_535:
        raise UsageError(
            f"port {ports[-1]} of broker {brokers}, {source}, exceeds 65535",
            hint="choose a lower port, or --listen HOST:0 for any free ports",
        )
    for port in ports:
        if namesrv_port in (port, port - VIP_PORT_DISTANCE):
            raise UsageError(
                f"port {port} of a broker ({source}) or its VIP port"
                f" {port - VIP_PORT_DISTANCE} is also the port of the name server",
                hint="choose another --broker-port or --listen",
            )
    return ports


def read_accounts(path: str) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Read the accounts of a proxy: secret keys and rights, each by access key.

    An account without `rights` may do everything. Raises ConfigError, whose message
    never quotes the file, because it contains secrets.
    """
    import tomllib

    from rmqcli.credentials import read_private_file

    try:
        tables = tomllib.loads(read_private_file(path))
    except tomllib.TOMLDecodeError:
        raise ConfigError(f"{path}: not valid TOML", hint=_ACCOUNT_EXAMPLE) from None
    if not tables:
        raise ConfigError(f"{path} contains no account", hint=_ACCOUNT_EXAMPLE)
    secrets, rights = {}, {}
    for number, (name, table) in enumerate(tables.items(), start=1):
        values = table if isinstance(table, dict) else {}
        secret, allowed = values.get("secret_key"), values.get("rights", {"*": "All"})
        if (
            not isinstance(secret, str)
            or not isinstance(allowed, dict)
            or not all(isinstance(each, str) for each in allowed.values())
            or values.keys() - {"secret_key", "rights"}
        ):
            raise ConfigError(
                f"{path}: account {number} is not a table of secret_key and rights",
                hint=_ACCOUNT_EXAMPLE,
            )
        secrets[name], rights[name] = secret, allowed
    return secrets, rights


def _show(common: Common, cluster: EmbeddedCluster, options: ClusterOptions) -> None:
    store = None if options.store is None else str(options.store)
    servers: list[tuple[str, str, str | None]] = [("namesrv", cluster.namesrv, None)]
    servers += [(each.name, each.address, store) for each in cluster.brokers]
    if options.proxy:
        servers.append(("proxy", cluster.endpoints, None))
        if cluster.proxy.options.remoting_port is not None:
            address = cluster.proxy.remoting_address
            servers.append(("proxy-remoting", address, None))
    rows = [
        {"server": name, "address": address, "version": options.like, "store": folder}
        for name, address, folder in servers
    ]
    common.write_rows(rows, COLUMNS)
    sys.stdout.flush()
    messages = common.messages
    messages.info(f"ready: export NAMESRV_ADDR={cluster.namesrv}")
    if options.proxy:
        messages.info(f"gRPC clients: endpoints {cluster.endpoints}")
    kept = "in memory only" if store is None else f"in {store}"
    messages.info(f"messages are kept {kept}; press Ctrl-C to stop")
    messages.info("for development and tests, not for production")


def _allow_many_connections() -> None:
    """Raise the soft limit of open files, because each connection needs one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES_WANTED
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
