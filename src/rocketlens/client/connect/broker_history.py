"""Remembers the brokers of a cluster, because name servers forget them.

A broker that was stopped, or that sent no heartbeat for two minutes, is in no route any more, and
is not queried. A client that remembers it can report that its messages are missing.

The file has a line of JSON for each time a broker was seen; the last one counts. Lines are
appended in one write each, so several processes may do it at once, and a line that cannot be read
costs that line. A file that has grown is compacted and replaced as a whole.

================  ===============================================================================
member            content
================  ===============================================================================
``nameServers``   the addresses of the name servers that had it, sorted
``cluster``       the name of its cluster
``broker``        its name
``addresses``     of its master and slaves
``seenMs``        when, in epoch milliseconds
``forgotten``     true: the user said that it is gone for good
================  ===============================================================================
"""

import json
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from msgspec import Struct

from rocketlens.client.connect.route import Broker

SEEN_BROKER_DAYS: Final = 30
"""Days for which a broker that is not registered any more makes answers incomplete."""
MIN_SEEN_BROKERS: Final = 1_000
"""Brokers of all clusters together that are remembered, at least."""
MAX_SEEN_BROKERS_BYTES: Final = 1024 * 1024
"""The file of the brokers that were seen, at most; it is written anew at half of it."""
logger: Final = logging.getLogger("rocketlens.client")

_NOTE_AGAIN_MS: Final = 60_000
"""A registered broker is recorded once a minute."""
_MS_OF_DAY: Final = 86_400_000


class SeenBroker(Struct, frozen=True):
    """One broker, as it was when it was last seen."""

    name_servers: tuple[str, ...]
    cluster_name: str
    name: str
    addresses: tuple[str, ...]
    seen_ms: int
    is_forgotten: bool = False

    def encode(self) -> str:
        """Return the line of a broker."""
        fields: dict[str, Any] = {
            "nameServers": self.name_servers,
            "cluster": self.cluster_name,
            "broker": self.name,
            "addresses": self.addresses,
            "seenMs": self.seen_ms,
        }
        if self.is_forgotten:
            fields["forgotten"] = True
        return json.dumps(fields, separators=(",", ":")) + "\n"

    @classmethod
    def decode(cls, line: str) -> Self | None:
        """Parse a line; return None if it is damaged."""
        try:
            fields: Any = json.loads(line)
            return cls(
                tuple(map(str, fields["nameServers"])),
                str(fields["cluster"]),
                str(fields["broker"]),
                tuple(map(str, fields["addresses"])),
                int(fields["seenMs"]),
                fields.get("forgotten") is True,
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


def state_directory() -> Path:
    """Return the user's directory for what commands remember; it need not exist."""
    directory = os.environ.get("XDG_STATE_HOME", "")
    base = Path(directory) if directory.startswith("/") else Path.home() / ".local" / "state"
    return base / "rocketlens"


def seen_brokers_path() -> Path:
    """Return the path of the user's file of seen brokers."""
    return state_directory() / "seen-brokers.jsonl"


class SeenBrokers:
    """The brokers that name servers had, in a file.

    An unusable file raises no error: less is remembered, and that is logged once. ``clock_ms``
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
        self._has_complained = False
        self._names_at: dict[str, set[str]] = {}

    def were_at(self, address: str) -> Collection[str]:
        """Return the names of the brokers that had an address, as of the last look at the file."""
        return self._names_at.get(address, ())

    def missing(self, registered: Mapping[str, Broker]) -> list[SeenBroker]:
        """Record the brokers registered now; return those that were registered before and are not
        now.

        Without those last seen more than 30 days ago, and those that were forgotten.
        """
        now_ms = self._clock_ms()
        history = self._history()
        seen = [
            SeenBroker(self._name_servers, each.cluster_name, each.name, each.in_order, now_ms)
            for each in registered.values()
        ]
        self._append(each.encode() for each in seen if _says_more(each, history.get(each.name)))
        oldest_ms = now_ms - SEEN_BROKER_DAYS * _MS_OF_DAY
        return [
            broker
            for broker in sorted(history.values(), key=lambda each: each.name)
            if broker.name not in registered
            and not broker.is_forgotten
            and broker.seen_ms >= oldest_ms
        ]

    def names(self, *, forgotten: bool = False) -> frozenset[str]:
        """Return the brokers that are remembered, or those that the user said are gone for good."""
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
        """Return the last line of each broker that one of these name servers had, by its name."""
        ours = set(self._name_servers)
        history: dict[str, SeenBroker] = {}
        for broker in self._lines():
            before = history.get(broker.name)
            if not ours.intersection(broker.name_servers):
                continue
            for address in broker.addresses:
                self._names_at.setdefault(address, set()).add(broker.name)
            if before is None or broker.seen_ms >= before.seen_ms:
                history[broker.name] = broker
        return history

    def _lines(self) -> list[SeenBroker]:
        try:
            with self.path.open("rb") as file:
                # The end of a file that is too long is read: its first line may be cut.
                file.seek(max(file.seek(0, os.SEEK_END) - MAX_SEEN_BROKERS_BYTES, 0))
                content = file.read(MAX_SEEN_BROKERS_BYTES)
        except FileNotFoundError:
            return []
        except OSError as error:
            self._complain(error)
            return []
        lines = content.decode("utf-8", "replace").splitlines()
        return [broker for line in lines if (broker := SeenBroker.decode(line)) is not None]

    def _append(self, lines: Iterable[str]) -> bool:
        content = "".join(lines).encode()
        if not content:
            return True
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            descriptor = os.open(self.path, flags, 0o600)
            try:
                # Starts a new line also behind a line that was cut.
                os.write(descriptor, b"\n" + content)
                is_long = os.fstat(descriptor).st_size > MAX_SEEN_BROKERS_BYTES // 2
            finally:
                os.close(descriptor)
            if is_long:
                self._compact()
        except OSError as error:
            self._complain(error)
            return False
        return True

    def _compact(self) -> None:
        """Write a new file with the last line of each broker and its addresses, the newest 1,000
        of them.
        """
        last = {
            (each.name_servers, each.cluster_name, each.name, each.addresses): each
            for each in self._lines()
        }
        kept = sorted(last.values(), key=lambda each: each.seen_ms)[-MIN_SEEN_BROKERS:]
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            new.touch(mode=0o600)
            new.write_text("".join(each.encode() for each in kept), encoding="utf-8")
            new.replace(self.path)
        except OSError:
            with suppress(OSError):
                new.unlink()
            raise

    def _complain(self, error: OSError) -> None:
        if not self._has_complained:
            self._has_complained = True
            reason = error.strerror or error
            logger.warning("brokers that were seen are not remembered: %s: %s", self.path, reason)


def _says_more(now: SeenBroker, before: SeenBroker | None) -> bool:
    return (
        before is None
        or before.is_forgotten
        or before.name_servers != now.name_servers
        or before.cluster_name != now.cluster_name
        or before.addresses != now.addresses
        or now.seen_ms - before.seen_ms >= _NOTE_AGAIN_MS
    )
