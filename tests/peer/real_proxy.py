"""The real proxy of RocketMQ 5: between a cluster and its clients."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.peer.rocketmq_peer import (
    BROKER_NAME,
    START_SECONDS,
    RocketMQPeer,
    accepts_connections,
    explained,
    fetched_jars,
    free_ports,
    properties,
    reap,
    registered_brokers,
    wait_until,
)

VERSION = "5.5.0"
PROXY_MAIN = "org.apache.rocketmq.proxy.ProxyStartup"


@dataclass(frozen=True, slots=True)
class RunningProxy:
    """A proxy: where clients by remoting and by gRPC reach it, and its name server."""

    remoting_address: str
    grpc_address: str
    namesrv_address: str


@contextmanager
def cluster_proxy(
    peer: RocketMQPeer, directory: Path, namesrv_address: str
) -> Iterator[RunningProxy]:
    """Run a proxy before a cluster of brokers that run already."""
    with _running(peer, directory, namesrv_address, ["-pm", "cluster"]) as proxy:
        yield proxy


@contextmanager
def local_proxy(peer: RocketMQPeer, directory: Path) -> Iterator[RunningProxy]:
    """Run a proxy that has its broker in its own process, and a name server."""
    with peer.start_namesrv(VERSION, directory) as (namesrv_port, _):
        _, conf = peer.broker_conf(directory, namesrv_port)
        conf_file = directory / "broker.conf"
        conf_file.write_text(properties(peer.broker_settings | conf))
        arguments = ["-pm", "local", "-bc", str(conf_file)]
        with _running(peer, directory, f"127.0.0.1:{namesrv_port}", arguments) as proxy:
            yield proxy


@contextmanager
def _running(
    peer: RocketMQPeer, directory: Path, namesrv_address: str, arguments: list[str]
) -> Iterator[RunningProxy]:
    directory.mkdir(parents=True, exist_ok=True)
    pom = Path(__file__).with_name("proxy_pom.xml")
    jars = fetched_jars(f"proxy-{VERSION}", pom, "RocketMQ's proxy", f"-Drocketmq={VERSION}")
    remoting_port, grpc_port = free_ports(), free_ports()
    conf = {
        "rocketMQClusterName": "DefaultCluster",
        "localServeAddr": "127.0.0.1",
        "remotingAccessAddr": "127.0.0.1",
        "remotingListenPort": remoting_port,
        "grpcServerPort": grpc_port,
        "namesrvAddr": namesrv_address,
        # It is a producer at brokers after that: they ask it how transactions ended.
        "transactionHeartbeatPeriodSecond": 1,
    }
    conf_file = directory / "proxy.json"
    conf_file.write_text(json.dumps(conf))
    home = directory / "proxy-home"
    command = peer.command(VERSION, home, PROXY_MAIN, "-pc", str(conf_file), *arguments)
    (home / "conf" / "rmq-proxy.json").write_text(json.dumps(conf))
    (home / "conf" / "rmq.proxy.logback.xml").write_text("<configuration/>")
    class_path = command.index("-cp") + 1
    command[class_path] = ":".join(str(jar) for jar in sorted(jars.glob("*.jar")))
    # The archive of classes is of the broker's jars.
    command = [part for part in command if not part.startswith("-XX:SharedArchiveFile")]
    log_file = directory / "proxy.log"
    with log_file.open("wb") as log, explained("the proxy", log_file):
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory
        )
        try:
            for port in (grpc_port, remoting_port):
                wait_until(lambda port=port: accepts_connections(port), process, START_SECONDS)
            namesrv_port = int(namesrv_address.rpartition(":")[2])
            wait_until(
                lambda: BROKER_NAME in registered_brokers(namesrv_port), process, START_SECONDS
            )
            yield RunningProxy(
                f"127.0.0.1:{remoting_port}", f"127.0.0.1:{grpc_port}", namesrv_address
            )
        finally:
            reap(process)
