"""Configuration files of brokers and proxies, and of their logging, as text.

The defaults keep a broker small (64 MiB commit log files instead of 1 GiB, no 420 MB
index file) and quick to start; `LARGE_STORE` has RocketMQ's own sizes, for benches.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CLUSTER_NAME = "DefaultCluster"

#: RocketMQ's own file sizes: pass as `conf` to measure speed on a realistic store.
LARGE_STORE = {
    "mappedFileSizeCommitLog": "1073741824",
    "mappedFileSizeConsumeQueue": "6000000",
}

_SMALL_STORE = {
    "mappedFileSizeCommitLog": "67108864",
    "mappedFileSizeConsumeQueue": "600000",
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
    "mappedFileSizeTimerLog": "16777216",
}

_COMMON = {
    "brokerClusterName": CLUSTER_NAME,
    "brokerId": "0",
    "brokerIP1": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "enablePropertyFilter": "true",
    "autoCreateTopicEnable": "true",
    "diskMaxUsedSpaceRatio": "95",
    # A broker on a slow machine must not count as busy.
    "waitTimeMillsInSendQueue": "2000",
    "osPageCacheBusyTimeOutMills": "5000",
    # 5.x records the ends of transactions in batches, and from the first batch on one
    # thread of 5.5.0 uses a whole core (apache/rocketmq, issue 10966). The thread
    # sleeps when each end is recorded separately and batches are a day apart.
    "transactionOpMsgMaxSize": "1",
    "transactionOpBatchInterval": "86400000",
    # For this interval after the start, one thread of 5.3 and 5.5 uses a whole core
    # (TransactionMetricsFlushService); RocketMQ's own interval is 10 s.
    "transactionMetricFlushInterval": "500",
    # At each flush, 5.x compares 38 MB byte by byte; by default it flushes each second.
    "timerFlushIntervalMs": "30000",
}


def broker_name(index: int) -> str:
    """`broker-a`, `broker-b`, ... as RocketMQ's own samples name them."""
    return f"broker-{chr(ord('a') + index)}"


def broker_properties(
    *,
    index: int,
    namesrv: str,
    listen_port: int,
    store: Path,
    conf: Mapping[str, str | int],
) -> str:
    """The text of a broker.conf; `conf` overrides the defaults."""
    values: dict[str, str | int] = {
        **_COMMON,
        **_SMALL_STORE,
        "brokerName": broker_name(index),
        "namesrvAddr": namesrv,
        "listenPort": listen_port,
        "haListenPort": listen_port + 1,
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        **conf,
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())


def slave(broker_id: int) -> dict[str, str | int]:
    """Return the settings of a slave of broker-a."""
    return {
        "brokerName": broker_name(0),
        "brokerId": broker_id,
        "brokerRole": "SLAVE",
    }


def controller(address: str, *, folder: Path) -> dict[str, str]:
    """Return the settings of a namesrv.conf with which it is a controller, too."""
    return {
        "enableControllerInNamesrv": "true",
        "controllerDLegerGroup": "controllers",
        "controllerDLegerPeers": f"n0-{address}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": str(folder),
    }


def replica(controller_address: str) -> dict[str, str | int]:
    """Return the settings of each replica of broker-a, which a controller numbers."""
    return {
        "brokerName": "broker-a",
        "enableControllerMode": "true",
        "controllerAddr": controller_address,
    }


@dataclass(frozen=True, slots=True)
class Account:
    """A user of a cluster with access control (5.3 or later)."""

    name: str
    secret: str


#: Codes of the requests that the kit itself sends, unsigned, with `raw`.
_UNSIGNED_CODES = "17,25,28,200,3001,3006"
_BROKER_PROVIDERS = {
    "authenticationMetadataProvider": "org.apache.rocketmq.auth.authentication"
    ".provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": "org.apache.rocketmq.auth.authorization"
    ".provider.LocalAuthorizationMetadataProvider",
}
_PROXY_PROVIDERS = {
    "authenticationMetadataProvider": "org.apache.rocketmq.proxy.auth"
    ".ProxyAuthenticationMetadataProvider",
    "authorizationMetadataProvider": "org.apache.rocketmq.proxy.auth"
    ".ProxyAuthorizationMetadataProvider",
}


def access_control(superuser: Account, *, folder: Path) -> dict[str, str | int]:
    """Return the settings of a broker.conf that switch access control on.

    Only accounts are served: `superuser` may do everything, the others need rights. The
    broker keeps accounts below `folder`.
    """
    user = {"username": superuser.name, "password": superuser.secret}
    inner = {"accessKey": superuser.name, "secretKey": superuser.secret}
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authConfigPath": str(folder),
        "initAuthenticationUser": json.dumps(user),
        "innerClientAuthenticationCredentials": json.dumps(inner),
        "authenticationWhitelist": _UNSIGNED_CODES,
        "authorizationWhitelist": _UNSIGNED_CODES,
        **_BROKER_PROVIDERS,
    }


_CERTIFICATES = Path(__file__).parents[1] / "transport" / "certs"


def certificate_flags() -> tuple[str, ...]:
    """Return Java's flags that give a server with TLS its certificate.

    Without them a proxy makes up to four certificates, each in a second or more.
    """
    return (
        "-Dtls.test.mode.enable=false",
        f"-Dtls.server.certPath={_CERTIFICATES / 'local.pem'}",
        f"-Dtls.server.keyPath={_CERTIFICATES / 'local.key'}",
    )


def proxy_json(
    *,
    namesrv: str,
    grpc_port: int,
    remoting_port: int,
    superuser: Account | None = None,
) -> str:
    """The text of an rmq-proxy.json for a proxy on 127.0.0.1.

    With `superuser`, access control is on, and the broker has the accounts and rights.
    """
    access: dict[str, str | bool] = {}
    if superuser is not None:
        inner = {"accessKey": superuser.name, "secretKey": superuser.secret}
        access = {
            "authenticationEnabled": True,
            "authorizationEnabled": True,
            "innerClientAuthenticationCredentials": json.dumps(inner),
            **_PROXY_PROVIDERS,
        }
    return json.dumps(
        {
            **access,
            "rocketMQClusterName": CLUSTER_NAME,
            "namesrvAddr": namesrv,
            "localServeAddr": "127.0.0.1",
            "grpcServerPort": grpc_port,
            "remotingListenPort": remoting_port,
            "tlsTestModeEnable": False,
            "tlsCertPath": str(_CERTIFICATES / "local.pem"),
            "tlsKeyPath": str(_CERTIFICATES / "local.key"),
        }
    )


def logback(version: str, *, level: str) -> str:
    """A logback configuration that writes to standard output.

    5.x contains logback under another package name.
    """
    prefix = "" if version.startswith("4.") else "org.apache.rocketmq.logging."
    return f"""<configuration>
  <appender name="out" class="{prefix}ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger{{20}} %msg%n</pattern></encoder>
  </appender>
  <root level="{level}"><appender-ref ref="out"/></root>
</configuration>
"""
