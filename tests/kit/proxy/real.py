"""A real proxy in cluster mode, in front of a real cluster, on 127.0.0.1 only."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Self

from tests.kit import configuration, raw
from tests.kit.ports import PortBlock
from tests.kit.process import ServerProcess, java_command

if TYPE_CHECKING:
    from tests.kit.cluster import RunningCluster

_PROXY_MAIN = "org.apache.rocketmq.proxy.ProxyStartup"
_START_TIMEOUT_MS = 180_000


class RunningProxy:
    """A proxy that runs, whoever started it; its ports begin at `first_port`."""

    def __init__(self, first_port: int) -> None:
        self.first_port = first_port

    @property
    def endpoints(self) -> str:
        """`127.0.0.1:port` at which the proxy serves gRPC."""
        return f"127.0.0.1:{self.first_port}"

    @property
    def remoting_address(self) -> str:
        """`127.0.0.1:port` at which the proxy serves remoting clients."""
        return f"127.0.0.1:{self.first_port + 1}"


class RealProxy(RunningProxy):
    """A proxy of the cluster's version (5.x only), which serves gRPC at `endpoints`."""

    def __init__(self, cluster: RunningCluster, *, heap_mb: int = 256) -> None:
        self._ports = PortBlock()
        super().__init__(self._ports.first)
        home = cluster.tools_home()
        conf = home / "conf" / f"rmq-proxy-{self.first_port}.json"
        conf.write_text(
            configuration.proxy_json(
                namesrv=cluster.namesrv,
                grpc_port=self.first_port,
                remoting_port=self.first_port + 1,
            )
        )
        flags = [
            f"-Xmx{heap_mb}m",
            *configuration.certificate_flags(),
            f"-Duser.home={home}",
            f"-Djava.io.tmpdir={cluster.directory}",
            f"-Drmq.logback.configurationFile={home}/conf/logback_broker.xml",
        ]
        self._process = ServerProcess(
            java_command(
                cluster.class_path(),
                _PROXY_MAIN,
                flags=flags,
                arguments=["-pm", "cluster", "-pc", str(conf)],
                is_brief=cluster.is_brief,
            ),
            log=cluster.directory / f"proxy-{self.first_port}.log",
            home=home,
        )
        try:
            raw.wait_until(
                self._accepts,
                timeout_ms=_START_TIMEOUT_MS,
                what=lambda: f"start of the proxy:\n{self._process.last_lines()}",
            )
        except BaseException:
            self.close()
            raise

    def _accepts(self) -> bool:
        code = self._process.exit_code()
        if code is not None:
            raise RuntimeError(f"the proxy exited {code}\n{self._process.last_lines()}")
        with socket.create_connection(("127.0.0.1", self.first_port), 1):
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the proxy. Idempotent."""
        self._process.kill()
        self._ports.close()
