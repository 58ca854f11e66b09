"""Our name server and broker, as the peer's clients meet them; run as a program it is a broker."""

import subprocess
import sys
from pathlib import Path

from rocketlens.broker.config import parse_settings
from rocketlens.broker.life.service import run as run_broker
from rocketlens.namesrv.config import NameServerConfig
from rocketlens.namesrv.service import NameServer
from rocketlens.net.event_loop import run
from rocketlens.net.sync import LoopThread
from tests.peer.rocketmq_peer import PeerFailed, end, free_ports, properties, reap, tail_of

REPOSITORY = Path(__file__).parents[2]
BROKER_NAME = "broker-a"
CLUSTER = "DefaultCluster"


class OurNameServer:
    """A name server in a thread of this process."""

    def __init__(self):
        self.thread = LoopThread()

        async def start():
            server = NameServer(NameServerConfig(listenPort=0))
            return server, server.start()

        self.server, self.address = self.thread.run(start())

    def close(self):
        self.thread.run(self.server.stop())
        self.thread.close()


class OurBroker:
    """A broker in a process of its own; serves when this is made."""

    def __init__(self, directory, namesrv_address, **settings):
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.port = settings.get("listenPort") or free_ports(-2, 1)
        self.address = f"127.0.0.1:{self.port}"
        self.store = directory / "store"
        self.conf = broker_conf(directory, self.port, namesrv_address) | settings
        self.log = directory / "broker.log"
        file = directory / "ours.conf"
        file.write_text(properties(self.conf))
        command = [sys.executable, "-m", "tests.peer.our_servers", str(file)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, cwd=REPOSITORY, text=True
            )
        if not self.process.stdout.readline():
            reap(self.process)
            raise PeerFailed(f"our broker did not start:\n{tail_of(self.log)}")

    def stop(self):
        """Stop it cleanly."""
        end(self.process)
        self.process.stdout.close()
        assert self.process.returncode == 0, tail_of(self.log)

    def kill(self):
        """End it as a crash does."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def broker_conf(directory, port, namesrv_address):
    """What either broker is started with."""
    return {
        "brokerClusterName": CLUSTER,
        "brokerName": BROKER_NAME,
        "brokerId": 0,
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "namesrvAddr": namesrv_address,
        "storePathRootDir": directory / "store",
        "storePathCommitLog": directory / "store" / "commitlog",
        "diskMaxUsedSpaceRatio": 95,
        # What the tests send is a handful; smaller files spare the disk.
        "mappedFileSizeCommitLog": 16 * 1024 * 1024,
        "maxHashSlotNum": 50_000,
        "maxIndexNum": 200_000,
    }


def main():
    settings = parse_settings(Path(sys.argv[1]).read_text(encoding="utf-8"))
    run(run_broker(settings, ready=lambda address: print(address, flush=True)))  # noqa: T201


if __name__ == "__main__":
    main()
