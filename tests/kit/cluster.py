"""A real name server and real brokers of one version, on 127.0.0.1 only.

`RealCluster` starts them, waits until the name server knows every broker, and can
stop, kill, suspend and restart a broker. Its servers never outlive the process that
started them. `RunningCluster` is one that another process started (see shared.py).
"""

from __future__ import annotations

import json
import signal
import time
import uuid
from typing import TYPE_CHECKING, Self

from tests.kit import configuration, raw
from tests.kit.artefacts import class_path
from tests.kit.ports import BLOCK_PORTS, PortBlock
from tests.kit.process import ServerProcess, java_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from tests.kit.configuration import Account

_NAMESRV_MAIN = "org.apache.rocketmq.namesrv.NamesrvStartup"
_BROKER_MAIN = "org.apache.rocketmq.broker.BrokerStartup"
_PROXY_MAIN = "org.apache.rocketmq.proxy.ProxyStartup"

_START_TIMEOUT_MS = 180_000
#: How long a broker is given to register by itself.
_REGISTERED_AFTER_S = 3
#: Broker i listens on block + 4 i + 2; -2 is its fast port and +1 its HA port.
_PORTS_PER_BROKER = 4
BROKERS_MAX = BLOCK_PORTS // _PORTS_PER_BROKER
#: The ports that brokers leave free, from the block's first port: of the name server,
#: of its controller, and of a proxy for gRPC and for remoting.
_NAMESRV_PORT, _CONTROLLER_PORT, _PROXY_GRPC_PORT, _PROXY_REMOTING_PORT = 1, 5, 9, 13


class RunningCluster:
    """A cluster that runs, whoever started it; not safe across threads.

    Its files and logs lie in `directory`, its ports begin at `first_port`. Of its
    `count` brokers the first `masters` are masters, all of them by default.
    """

    def __init__(
        self,
        version: str,
        directory: Path,
        *,
        first_port: int,
        count: int = 1,
        masters: int | None = None,
        proxy: bool = False,
        is_brief: bool = False,
    ) -> None:
        self.version = version
        self.directory = directory
        self.first_port = first_port
        self.is_brief = is_brief
        self._count = count
        self._masters = count if masters is None else masters
        self._is_proxy = proxy
        self._class_path = class_path(version)

    @property
    def namesrv(self) -> str:
        """`127.0.0.1:port` of the name server."""
        return f"127.0.0.1:{self.first_port + _NAMESRV_PORT}"

    @property
    def endpoints(self) -> str:
        """`127.0.0.1:port` at which the proxy serves gRPC."""
        if not self._is_proxy:
            raise ValueError("this cluster has no proxy; start it with proxy=True")
        return f"127.0.0.1:{self.first_port + _PROXY_GRPC_PORT}"

    @property
    def broker_count(self) -> int:
        """Number of masters, running or not."""
        return self._masters

    def broker_address(self, index: int = 0) -> str:
        """`127.0.0.1:port` of a broker, whether it runs or not."""
        return f"127.0.0.1:{self._broker_port(index)}"

    def broker_name(self, index: int = 0) -> str:
        """`broker-a` for 0, and so on."""
        return configuration.broker_name(index)

    def store_directory(self, index: int = 0) -> Path:
        """The broker's storePathRootDir: `config/`, `commitlog/`, `consumequeue/`."""
        return self.directory / f"store-{self.broker_name(index)}"

    def tools_home(self) -> Path:
        """A ROCKETMQ_HOME for mqadmin and clients."""
        return self.directory / "home"

    def class_path(self) -> str:
        """The `-cp` for Java programs of this cluster's version."""
        return self._class_path

    def create_topic(
        self,
        topic: str | None = None,
        *,
        queues: int = 4,
        perm: int = 6,
        brokers: Sequence[int] | None = None,
        attributes: str | None = None,
        order: bool = False,
    ) -> str:
        """Create or change a topic and wait until its route shows it; return its name.

        Without a name, a new one is made up. `queues` counts per broker, for reading
        and writing; `attributes` is 5.x's `+message.type=FIFO` form.
        """
        name = topic if topic is not None else f"T-{uuid.uuid4().hex[:12]}"
        chosen = range(self.broker_count) if brokers is None else brokers
        ext_fields = {
            "topic": name,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": str(perm),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": str(order).lower(),
        }
        if attributes is not None:
            ext_fields["attributes"] = attributes
        for index in chosen:
            self._must(
                self.broker_address(index), raw.UPDATE_AND_CREATE_TOPIC, ext_fields
            )
        names = [f'"{self.broker_name(index)}"'.encode() for index in chosen]
        self._until(lambda: self._route_has(name, names), f"route of topic {name}")
        return name

    def create_account(
        self,
        account: Account,
        rights: Mapping[str, str] | None = None,
        *,
        broker: int = 0,
    ) -> None:
        """Create a user with rights, such as {"Topic:T": "Pub"}.

        The action Deny denies all actions. Only on a broker with access control.
        """
        address = self.broker_address(broker)
        body = {"username": account.name, "password": account.secret}
        self._must(
            address,
            raw.AUTH_CREATE_USER,
            {"username": account.name},
            body=json.dumps({**body, "userType": "Normal"}).encode(),
        )
        if not rights:
            return
        subject = f"User:{account.name}"
        entries = [
            {
                "resource": resource,
                "actions": ["All"] if actions == "Deny" else actions.split(","),
                "decision": "Deny" if actions == "Deny" else "Allow",
            }
            for resource, actions in rights.items()
        ]
        acl = {
            "subject": subject,
            "policies": [{"policyType": "Custom", "entries": entries}],
        }
        self._must(
            address,
            raw.AUTH_CREATE_ACL,
            {"subject": subject},
            body=json.dumps(acl).encode(),
        )

    def ask(
        self,
        code: int,
        ext_fields: dict[str, str] | None = None,
        *,
        body: bytes = b"",
        broker: int = 0,
    ) -> raw.Answer:
        """Send a request to a broker by its code, and return the raw answer."""
        return raw.ask(self.broker_address(broker), code, ext_fields, body=body)

    def _broker_port(self, index: int) -> int:
        if not 0 <= index < self._count:
            raise ValueError(f"broker {index} not in 0 to {self._count - 1}")
        return self.first_port + _PORTS_PER_BROKER * index + 2

    def _until(self, claim: raw.Claim, what: str) -> None:
        raw.wait_until(claim, timeout_ms=60_000, what=lambda: what)

    def _route_has(self, topic: str, names: Sequence[bytes]) -> bool:
        answer = raw.ask(self.namesrv, raw.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        return answer.code == 0 and all(name in answer.body for name in names)

    def _must(
        self, address: str, code: int, ext_fields: dict[str, str], *, body: bytes = b""
    ) -> raw.Answer:
        answer = raw.ask(address, code, ext_fields, body=body)
        if answer.code != 0:
            raise RuntimeError(f"{address} code {code}: {answer.code} {answer.remark}")
        return answer


class RealCluster(RunningCluster):
    """A cluster of this process. Files and logs lie in `directory`.

    `conf` goes into every broker.conf over the kit's defaults. With `proxy` the only
    broker runs inside a proxy (local mode, from 5.0 on), which serves gRPC at
    `endpoints`, TLS and plaintext alike; to stop or kill the broker is then to stop or
    kill the proxy. With `superuser` (5.3 or later) the broker and the proxy serve
    accounts only: this one, which may do everything, and those of `create_account`.
    `is_brief` suits a cluster that is closed after a few tests: Java compiles less
    thoroughly, which costs less CPU at the start and more under load. With `controller`
    (5.0 or later) the brokers are replicas of broker-a, of which a controller in the
    name server elects the master.
    Raises RuntimeError with the end of the log when a server does not start.
    """

    def __init__(
        self,
        version: str,
        directory: Path,
        *,
        brokers: int = 1,
        conf: Mapping[str, str | int] | None = None,
        heap_mb: int = 384,
        log_level: str = "WARN",
        proxy: bool = False,
        superuser: Account | None = None,
        is_brief: bool = False,
        controller: bool = False,
        slaves: Sequence[Mapping[str, str | int]] = (),
    ) -> None:
        count = brokers + len(slaves)
        if not 1 <= brokers <= count <= (1 if proxy else BROKERS_MAX):
            raise ValueError(f"brokers {count} not in 1 to {BROKERS_MAX}")
        class_path(version)  # before any port is held
        self._ports = PortBlock()
        super().__init__(
            version,
            directory,
            first_port=self._ports.first,
            count=count,
            masters=brokers,
            proxy=proxy,
            is_brief=is_brief,
        )
        self._superuser = superuser
        self._conf = dict(conf or {})
        self._heap_mb = heap_mb
        self._namesrv: ServerProcess | None = None
        self._brokers: list[ServerProcess | None] = [None] * count
        self._slaves = slaves
        self._controller: dict[str, str] = {}
        if controller:
            address = f"127.0.0.1:{self.first_port + _CONTROLLER_PORT}"
            self._conf |= configuration.replica(address)
            self._controller = configuration.controller(
                address, folder=directory / "controller"
            )
        self._lay_out(log_level)
        try:
            self.start_namesrv()
            for index in range(count):
                self._launch_broker(index)
            for index in range(count):
                self._await_broker(index)
        except BaseException:
            self.close()
            raise

    def broker_pid(self, index: int = 0) -> int:
        """Process id of a running broker."""
        return self._running(index).pid

    def start_namesrv(self) -> None:
        """Start the name server again after `stop_namesrv`, and wait until it answers.

        It knows no broker until each registers again, up to 30 s later.
        """
        self._namesrv = self._launch(
            _NAMESRV_MAIN,
            name="namesrv",
            heap_mb=128,
            arguments=["-c", str(self.tools_home() / "conf" / "namesrv.conf")],
        )
        self._await(
            self._namesrv,
            lambda: raw.ask(self.namesrv, raw.GET_BROKER_CLUSTER_INFO).code == 0,
        )

    def stop_namesrv(self) -> None:
        """Stop the name server, waiting for its process to end."""
        if self._namesrv is not None:
            self._namesrv.stop()
            self._namesrv = None

    def start_broker(
        self, index: int = 0, *, conf: Mapping[str, str | int] | None = None
    ) -> None:
        """Start a stopped or killed broker on its old store; wait until registered.

        `conf` goes over the settings of the cluster, for this broker and this start.
        """
        self._launch_broker(index, conf)
        self._await_broker(index)

    def stop_broker(self, index: int = 0) -> None:
        """Stop a broker cleanly, waiting for its process to end."""
        self._running(index).stop()
        self._brokers[index] = None

    def kill_broker(self, index: int = 0) -> None:
        """SIGKILL a broker: connections break, nothing is flushed or deregistered."""
        self._running(index).kill()
        self._brokers[index] = None

    def suspend_broker(self, index: int = 0) -> None:
        """SIGSTOP a broker: connections stay open and nothing is answered."""
        self._running(index).send(signal.SIGSTOP)

    def resume_broker(self, index: int = 0) -> None:
        """SIGCONT a suspended broker."""
        self._running(index).send(signal.SIGCONT)

    def close(self) -> None:
        """Stop everything and give the ports back. Idempotent; keeps `directory`."""
        for index, broker in enumerate(self._brokers):
            if broker is not None:
                # This store is not read again: a clean flush is not needed.
                broker.kill()
                self._brokers[index] = None
        if self._namesrv is not None:
            self._namesrv.kill()
            self._namesrv = None
        self._ports.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _lay_out(self, log_level: str) -> None:
        conf = self.tools_home() / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        for name in ("namesrv", "broker", "tools"):
            text = configuration.logback(
                self.version, level="ERROR" if name == "tools" else log_level
            )
            (conf / f"logback_{name}.xml").write_text(text)
        (conf / "namesrv.conf").write_text(
            f"listenPort={self.first_port + _NAMESRV_PORT}\n"
            "bindAddress=127.0.0.1\n"
            + "".join(f"{name}={each}\n" for name, each in self._controller.items())
        )

    def _launch_broker(
        self, index: int, own_conf: Mapping[str, str | int] | None = None
    ) -> None:
        if self._brokers[index] is not None:
            raise RuntimeError(f"{self.broker_name(index)} is already running")
        file = self.tools_home() / "conf" / f"{self.broker_name(index)}.conf"
        conf = {**self._conf, **(own_conf or {})}
        if (slave := index - self.broker_count) >= 0:
            conf |= configuration.slave(slave + 1) | dict(self._slaves[slave])
        if self._superuser is not None:
            folder = self.directory / f"auth-{self.broker_name(index)}"
            conf |= configuration.access_control(self._superuser, folder=folder)
        file.write_text(
            configuration.broker_properties(
                index=index,
                namesrv=self.namesrv,
                listen_port=self._broker_port(index),
                store=self.store_directory(index),
                conf=conf,
            )
        )
        main_class, arguments = _BROKER_MAIN, ["-c", str(file)]
        if self._is_proxy:
            main_class = _PROXY_MAIN
            arguments = ["-pm", "local", "-bc", str(file), "-pc", str(self._proxy())]
        self._brokers[index] = self._launch(
            main_class,
            name=self.broker_name(index),
            heap_mb=self._heap_mb,
            arguments=arguments,
        )

    def _proxy(self) -> Path:
        """Write rmq-proxy.json; return its path."""
        file = self.tools_home() / "conf" / "rmq-proxy.json"
        text = configuration.proxy_json(
            namesrv=self.namesrv,
            grpc_port=self.first_port + _PROXY_GRPC_PORT,
            remoting_port=self.first_port + _PROXY_REMOTING_PORT,
            superuser=self._superuser,
        )
        file.write_text(text)
        return file

    def _launch(
        self, main_class: str, *, name: str, heap_mb: int, arguments: Sequence[str]
    ) -> ServerProcess:
        home = self.tools_home()
        role = "namesrv" if name == "namesrv" else "broker"
        flags = [
            f"-Xmx{heap_mb}m",
            "-XX:MaxDirectMemorySize=512m",
            f"-Duser.home={home}",
            # 5.x unpacks 12 MB of RocksDB there and leaves it behind when killed.
            f"-Djava.io.tmpdir={self.directory}",
            f"-Drmq.logback.configurationFile={home}/conf/logback_{role}.xml",
        ]
        if self._is_proxy:  # with TLS disabled here, gRPC would have none either
            flags += configuration.certificate_flags()
        else:
            flags.append("-Dtls.server.mode=disabled")
        return ServerProcess(
            java_command(
                self._class_path,
                main_class,
                flags=flags,
                arguments=arguments,
                is_brief=self.is_brief,
            ),
            log=self.directory / f"{name}.log",
            home=home,
        )

    def _await_broker(self, index: int) -> None:
        address = self.broker_address(index)
        began = time.monotonic()

        def answers() -> bool:
            known = raw.ask(self.namesrv, raw.GET_BROKER_CLUSTER_INFO).body
            # With access control of 4.x the answer is a refusal. In its first second
            # 5.x has no statistics yet, and answers with an exception.
            runtime = raw.ask(address, raw.GET_BROKER_RUNTIME_INFO)
            has_begun = "NoSuchElementException" not in (runtime.remark or "")
            if f'"{address}"'.encode() not in known:
                if time.monotonic() - began > _REGISTERED_AFTER_S:
                    self._register(index)
                return False
            return has_begun and (not self._is_proxy or raw.accepts(self.endpoints))

        self._await(self._running(index), answers)

    def _register(self, index: int) -> None:
        """Make a broker register at once.

        5.x registers at its start only if it is connected to the name server by then,
        and otherwise tries again 10 s later. When its permission is set, even to the
        same value, a broker registers again.
        """
        setting = f"brokerPermission={self._conf.get('brokerPermission', 6)}"
        address = self.broker_address(index)
        raw.ask(address, raw.UPDATE_BROKER_CONFIG, body=setting.encode())

    def _await(self, process: ServerProcess, claim: raw.Claim) -> None:
        def claim_or_end() -> bool:
            if process.exit_code() is not None:
                raise RuntimeError(
                    f"{process.log.stem} {self.version} exited "
                    f"{process.exit_code()}:\n{process.last_lines()}"
                )
            return claim()

        raw.wait_until(
            claim_or_end,
            timeout_ms=_START_TIMEOUT_MS,
            what=lambda: f"start of {process.log.stem}:\n{process.last_lines()}",
        )

    def _running(self, index: int) -> ServerProcess:
        broker = self._brokers[index]
        if broker is None:
            raise RuntimeError(f"{self.broker_name(index)} is not running")
        return broker
