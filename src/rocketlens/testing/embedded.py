"""A name server and a broker in the caller's process.

They run in a thread with its own event loop, so the caller's threads and loops do not delay them.
All clients connect over real sockets.
"""

import asyncio
import shutil
import tempfile
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, Final, Self

from msgspec import Struct

from rocketlens.broker.config import BrokerSettings, settings_of
from rocketlens.broker.life.service import BrokerService
from rocketlens.client.blocking.sync_admin import SyncMQAdmin
from rocketlens.client.blocking.sync_producer import SyncProducer
from rocketlens.errors import BadInput
from rocketlens.model.rocketmq_config_keys import ROCKETMQ_KEYS
from rocketlens.namesrv.config import NameServerConfig
from rocketlens.namesrv.service import NameServer
from rocketlens.net.sync import LoopThread

DEFAULTS: Final = {
    "listenPort": "0",
    # Files are created in their full length, and tests send little.
    "mappedFileSizeCommitLog": str(16 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": str(20_000),
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    # A nearly full disk must not fail the tests.
    "diskMaxUsedSpaceRatio": "98",
    "diskSpaceCleanForciblyRatio": "99",
    "diskSpaceWarningLevelRatio": "100",
}
"""Keys of ``broker.conf`` that differ from the broker's defaults."""

OUR_OWN: Final = frozenset({"namesrvAddr", "storePathRootDir", "storePathCommitLog"})


def cluster(
    directory: str | PathLike[str] | None = None, *, build_index: bool = False, **broker_conf: Any
) -> "Cluster":
    """Return a name server and a broker; start them by ``with`` or ``async with``.

    The store is created in ``directory``, and stays; by default it is in a temporary directory,
    which is deleted at the end. ``broker_conf`` has keys of a ``broker.conf``, such as
    ``autoCreateTopicEnable=False``. Messages are found at once, with or without ``build_index``,
    which writes index files, too, and loads a compiler.

    :raises BadInput: if a key is unknown or selects access control, or a value is invalid.
    """
    values = {key: _text(value) for key, value in broker_conf.items()}
    ours = OUR_OWN & values.keys()
    if ours:
        raise BadInput(f"{', '.join(sorted(ours))}: chosen by cluster() itself")
    settings = settings_of(DEFAULTS | values, "cluster()")
    strange = [key for key in settings.unknown if key not in ROCKETMQ_KEYS]
    if strange:
        raise BadInput(f"cluster(): {', '.join(strange)}: not keys of RocketMQ")
    return Cluster(settings, directory, build_index=build_index)


class _Running(Struct):
    """The parts of a cluster that runs."""

    thread: LoopThread
    directory: Path
    name_server: NameServer
    name_server_address: str
    broker: BrokerService
    broker_address: str


class Cluster:
    """A name server and a broker, created by `cluster`. Can be started once."""

    def __init__(
        self, settings: BrokerSettings, directory: str | PathLike[str] | None, *, build_index: bool
    ) -> None:
        self._settings: Final = settings
        self._directory: Final = None if directory is None else Path(directory)
        self._build_index: Final = build_index
        self._running: _Running | None = None

    @property
    def name_server(self) -> str:
        """The address for clients, such as ``127.0.0.1:40123``."""
        return self._started.name_server_address

    @property
    def broker(self) -> str:
        """The broker's address."""
        return self._started.broker_address

    @property
    def store(self) -> Path:
        """The store directory, which `rocketlens.open_store` can read at any time."""
        return self._started.directory / "store"

    def producer(self, **options: Any) -> SyncProducer:
        """Return a producer for programs without an event loop; the caller closes it."""
        return SyncProducer(self.name_server, **options)

    def admin(self, **options: Any) -> SyncMQAdmin:
        """Return an admin for programs without an event loop; the caller closes it."""
        return SyncMQAdmin(self.name_server, **options)

    def start(self) -> None:
        """Start both; they accept requests when this returns.

        :raises BadInput: if they run already.
        :raises StoreLocked: if another process has the store open.
        :raises OSError: if a port is in use, or the directory cannot be used.
        """
        if self._running is not None:
            raise BadInput("this cluster runs already")
        directory = self._directory or Path(tempfile.mkdtemp(prefix="rocketlens-"))
        thread = LoopThread("rocketlens-cluster")
        try:
            self._running = thread.run(self._start(thread, directory))
        except BaseException:
            thread.close()
            self._delete(directory)
            raise

    def stop(self) -> None:
        """Stop both, and delete a temporary directory. No effect if they do not run."""
        running, self._running = self._running, None
        if running is None:
            return
        try:
            running.thread.run(_stop(running))
        finally:
            running.thread.close()
            self._delete(running.directory)

    def kill_broker(self) -> None:
        """End the broker as a broken network would: the name server still lists it.

        Its store is left as after a crash.
        """
        running = self._started
        running.thread.run(running.broker.close_abruptly())

    async def _start(self, thread: LoopThread, directory: Path) -> _Running:
        name_server = NameServer(NameServerConfig(listenPort=0))
        address = str(name_server.start())
        settings = self._settings.with_broker(
            namesrvAddr=address, storePathRootDir=str(directory / "store")
        )
        broker = BrokerService(settings, build_index=self._build_index)
        try:
            await broker.start()
        except BaseException:
            await name_server.stop()
            raise
        return _Running(thread, directory, name_server, address, broker, broker.address)

    def _delete(self, directory: Path) -> None:
        if self._directory is None:
            with suppress(OSError):
                shutil.rmtree(directory)

    @property
    def _started(self) -> _Running:
        if self._running is None:
            raise BadInput("this cluster is not running: use it inside `with cluster() as ...`")
        return self._running

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)


async def _stop(running: _Running) -> None:
    try:
        await running.broker.stop()
    finally:
        await running.name_server.stop()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
