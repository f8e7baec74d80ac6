"""A proxy with a certificate speaks TLS, and nothing else."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.proxy.options import ProxyOptions
from rmqcli.errors import ConfigError
from tests.kit.proxy.raw_client import code_of, message

CERTS = Path(__file__).parents[2] / "transport" / "certs"
OPTIONS = ProxyOptions(tls_cert=CERTS / "local.pem", tls_key=CERTS / "local.key")


def test_a_client_that_trusts_the_authority_gets_through(start, connect):
    cluster = start(proxy=OPTIONS)
    cluster.create_topic("T")
    root = (CERTS / "ca.pem").read_bytes()
    client = connect(cluster, root_certificate=root)
    assert code_of(client.send(message("T"))) == "OK"


def test_a_client_without_tls_does_not(start, connect):
    client = connect(start(proxy=OPTIONS))
    with pytest.raises(grpc.RpcError) as failed:
        client.route("T")
    assert failed.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_certificate_that_is_none_is_refused(tmp_path):
    file = tmp_path / "cert.pem"
    with pytest.raises(ConfigError, match=r"cannot read .*cert\.pem"):
        EmbeddedCluster(proxy=ProxyOptions(tls_cert=file, tls_key=file))
    file.write_text("nothing")
    with pytest.raises(ConfigError, match="cannot serve TLS"):
        EmbeddedCluster(proxy=ProxyOptions(tls_cert=file, tls_key=file))
