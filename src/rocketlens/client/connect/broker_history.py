"""Remembers the brokers of a cluster, because name servers forget them.

A broker that stopped, or sent no heartbeat for two minutes, is no longer in any route and is not
queried. A client that remembers it reports that its messages are missing.

The file has a line of JSON for each time a broker was seen; the last line counts. Each line is
appended in one write, so several processes can append concurrently; a damaged line is skipped. A
file that has grown is compacted and replaced as a whole.

================  ===============================================================================
member            content
================  ===============================================================================
``nameServers``   the addresses of the name servers that listed it, sorted
``cluster``       the name of its cluster
``broker``        its name
``addresses``     of its master and slaves
``seenMs``        the time, in epoch milliseconds
``forgotten``     true: the user removed it
================  ===============================================================================
"""

import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import msgspec
from msgspec import Struct, field

from rocketlens.client.connect.route import Broker

SEEN_BROKER_DAYS: Final = 30
"""Days for which a broker that is no longer registered makes answers incomplete."""
MIN_SEEN_BROKERS: Final = 1_000
"""Brokers of all clusters that compaction keeps."""
MAX_SEEN_BROKERS_BYTES: Final = 1024 * 1024
"""The largest size of the file that is read; it is compacted at half of it."""
logger: Final = logging.getLogger("rocketlens.client")

_NOTE_AGAIN_MS: Final = 60_000
"""A registered broker is recorded once a minute."""
_MS_OF_DAY: Final = 86_400_000


class SeenBroker(Struct, frozen=True, omit_defaults=True):
    """One broker, as last seen: a line of the file."""

    name_servers: tuple[str, ...] = field(name="nameServers")
    cluster_name: str = field(name="cluster")
    name: str = field(name="broker")
    addresses: tuple[str, ...]
    seen_ms: int = field(name="seenMs")
    is_forgotten: bool = field(name="forgotten", default=False)

    def encode(self) -> bytes:
        return msgspec.json.encode(self) + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Self | None:
        try:
            return msgspec.json.decode(line, type=cls)
        except (ValueError, RecursionError):
            return None


def state_directory() -> Path:
    """Return the user's directory for the state of commands. It may not exist."""
    directory = os.environ.get("XDG_STATE_HOME", "")
    base = Path(directory) if directory.startswith("/") else Path.home() / ".local" / "state"
    return base / "rocketlens"


def seen_brokers_path() -> Path:
    return state_directory() / "seen-brokers.jsonl"


class SeenBrokers:
    """The brokers that name servers listed, in a file.

    An unusable file raises no error: it is logged once, and nothing is remembered. ``clock_ms``
    returns epoch milliseconds.
    """

    def __init__(
        self,
        path: Path,
        name_servers: Iterable[str],
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.path: Final = path
        self._name_servers: Final = tuple(sorted(set(name_servers)))
        self._clock_ms: Final = clock_ms
        self._has_warned = False
        self._names_by_address: dict[str, set[str]] = {}

    def names_at(self, address: str) -> Collection[str]:
        """Return the names of brokers that had an address when the file was last read."""
        return self._names_by_address.get(address, ())

    def missing(self, registered: Mapping[str, Broker]) -> list[SeenBroker]:
        """Record the registered brokers; return those that were registered before and are not now.

        Brokers that were last seen more than 30 days ago, or forgotten, are left out.
        """
        now_ms = self._clock_ms()
        history = self._history()
        seen = [
            SeenBroker(self._name_servers, each.cluster_name, each.name, each.in_order, now_ms)
            for each in registered.values()
        ]
        self._append(each.encode() for each in seen if _is_news(each, history.get(each.name)))
        oldest_ms = now_ms - SEEN_BROKER_DAYS * _MS_OF_DAY
        return [
            broker
            for broker in sorted(history.values(), key=lambda each: each.name)
            if broker.name not in registered
            and not broker.is_forgotten
            and broker.seen_ms >= oldest_ms
        ]

    def names(self, *, forgotten: bool = False) -> frozenset[str]:
        """Return the brokers that are remembered, or those that the user removed."""
        history = self._history()
        return frozenset(name for name, each in history.items() if each.is_forgotten is forgotten)

    def forget(self, name: str) -> bool:
        """Forget a broker until it is seen again; return False if it is not remembered."""
        broker = self._history().get(name)
        if broker is None or broker.is_forgotten:
            return False
        gone = SeenBroker(
            self._name_servers,
            broker.cluster_name,
            name,
            broker.addresses,
            max(self._clock_ms(), broker.seen_ms),
            is_forgotten=True,
        )
        return self._append([gone.encode()])

    def _history(self) -> dict[str, SeenBroker]:
        """Return the last line of each broker of these name servers, by broker name."""
        ours = set(self._name_servers)
        history: dict[str, SeenBroker] = {}
        for broker in self._lines():
            before = history.get(broker.name)
            if not ours.intersection(broker.name_servers):
                continue
            for address in broker.addresses:
                self._names_by_address.setdefault(address, set()).add(broker.name)
            if before is None or broker.seen_ms >= before.seen_ms:
                history[broker.name] = broker
        return history

    def _lines(self) -> list[SeenBroker]:
        try:
            with self.path.open("rb") as file:
                # Read the end of an oversized file; its first line may be cut.
                file.seek(max(file.seek(0, os.SEEK_END) - MAX_SEEN_BROKERS_BYTES, 0))
                content = file.read(MAX_SEEN_BROKERS_BYTES)
        except FileNotFoundError:
            return []
        except OSError as error:
            self._warn_once(error)
            return []
        lines = map(SeenBroker.decode, content.splitlines())
        return [broker for broker in lines if broker is not None]

    def _append(self, lines: Iterable[bytes]) -> bool:
        content = b"".join(lines)
        if not content:
            return True
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            descriptor = os.open(self.path, flags, 0o600)
            try:
                # The first newline ends a line that was cut.
                os.write(descriptor, b"\n" + content)
                is_long = os.fstat(descriptor).st_size > MAX_SEEN_BROKERS_BYTES // 2
            finally:
                os.close(descriptor)
            if is_long:
                self._compact()
        except OSError as error:
            self._warn_once(error)
            return False
        return True

    def _compact(self) -> None:
        """Write a new file with the last line of each broker and its addresses, 1,000 at most."""
        last = {
            (each.name_servers, each.cluster_name, each.name, each.addresses): each
            for each in self._lines()
        }
        kept = sorted(last.values(), key=lambda each: each.seen_ms)[-MIN_SEEN_BROKERS:]
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            new.touch(mode=0o600)
            new.write_bytes(b"".join(each.encode() for each in kept))
            new.replace(self.path)
        except OSError:
            with suppress(OSError):
                new.unlink()
            raise

    def _warn_once(self, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            reason = error.strerror or error
            logger.warning("brokers that were seen are not remembered: %s: %s", self.path, reason)


def _is_news(now: SeenBroker, before: SeenBroker | None) -> bool:
    return (
        before is None
        or before.is_forgotten
        or before.name_servers != now.name_servers
        or before.cluster_name != now.cluster_name
        or before.addresses != now.addresses
        or now.seen_ms - before.seen_ms >= _NOTE_AGAIN_MS
    )
