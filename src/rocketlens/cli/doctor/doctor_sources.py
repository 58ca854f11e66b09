"""Checks of ``rocketlens doctor`` for clusters and archives."""

import time
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from rocketlens.cli.doctor.doctor_machine import Check, about, fail, listed, ok, warn
from rocketlens.client.connect.topology import NAME_SERVERS
from rocketlens.errors import PackageMissing, RocketLensError
from rocketlens.model.installation import install_command
from rocketlens.model.status import ArchivedSourceStatus, BrokerStatus, ClusterStatus
from rocketlens.model.text.counted import counted
from rocketlens.model.topic import TopicsAnswer
from rocketlens.query.facts.examination import OffsetFault, offset_faults
from rocketlens.terminal.cluster_access import ClusterAccess, ask_cluster
from rocketlens.terminal.output import moment_text, size_text

if TYPE_CHECKING:
    from rocketlens.archive.files import DataFile
    from rocketlens.archive.source import ArchiveSource

_REFUSED_RATIO: Final = 0.9
"""Disk usage at which RocketMQ refuses messages."""
_CLEANED_RATIO: Final = 0.75
"""Disk usage at which RocketMQ deletes messages before their retention ends."""
_MAX_CLOCK_MS: Final = 5_000
"""Accepted difference of the clocks of two machines."""
SET_CLOCK: Final = "synchronize the clocks of both machines, such as with chronyd"


def cluster_checks(access: ClusterAccess) -> Iterator[Check]:
    """Check name servers, brokers, disks, versions, clocks and groups."""
    try:
        status = ask_cluster(access, lambda admin: admin.status())
        topics = ask_cluster(access, lambda admin: admin.topics())
    except (RocketLensError, OSError) as error:
        mend = f"start it, or name another: rocketlens status -n {access.name_servers}"
        yield fail(NAME_SERVERS, str(error), mend)
        return
    yield from checks_of(status, topics, time.time_ns() // 1_000_000)


def checks_of(status: ClusterStatus, topics: TopicsAnswer, now_ms: int) -> Iterator[Check]:
    yield from _unreachable(status)
    servers = "; ".join(status.name_servers)
    yield ok(
        NAME_SERVERS,
        f"{servers}: {counted(len(status.brokers), 'broker')}, {counted(status.topics, 'topic')}",
    )
    for broker in status.brokers:
        yield from _broker(broker)
    yield from _masters(status)
    yield from _versions(status)
    yield clock_check(max((each.newest_ms or 0 for each in topics.topics), default=0), now_ms)
    yield from listed(
        offset_check(fault) for group in status.groups for fault in offset_faults(group)
    )
    for group in status.groups:
        if group.dead_letters:
            name = group.name
            detail = (
                f"group {name} has {counted(group.dead_letters, 'dead letter')}: "
                "rocketlens dlq list shows them, rocketlens dlq "
                f"redrive {name} has them consumed again"
            )
            yield about("dead letters", detail)


def _unreachable(status: ClusterStatus) -> Iterator[Check]:
    sources = {f"{each.name} ({each.address})" for each in status.brokers}
    for each in status.coverage:
        if each.error is None or each.source in sources:
            continue
        # The source is one name server's address, or this name for all of them.
        if each.source == NAME_SERVERS:
            mend = "start a broker, with these name servers in its namesrvAddr"
            yield fail("broker", f"{each.source}: {each.error}", mend)
        elif ":" not in each.source:
            yield fail("broker", f"{each.source}: {each.error}", f"start {each.source}")
        else:
            mend = "start it, or take it out of the list of name servers"
            yield fail(NAME_SERVERS, f"{each.source}: {each.error}", mend)


def _broker(broker: BrokerStatus) -> Iterator[Check]:
    where = f"{broker.name} ({broker.address})"
    if broker.error is not None:
        mend = "start it; if it has left for good: rocketlens find --forget-broker "
        yield fail("broker", f"{where}: {broker.error}", f"{mend}{broker.name}")
        return
    role = "master" if broker.is_master else f"slave {broker.broker_id}"
    yield ok("broker", f"{where}, {role}, {_version(broker)}")
    ratio = broker.disk_ratio
    if ratio is None or ratio < _CLEANED_RATIO:
        return
    what = "messages are refused" if ratio >= _REFUSED_RATIO else "old messages are deleted early"
    mend = "make room on that disk, or keep messages for less time (fileReservedTime)"
    yield warn("disk", f"{where}: {ratio:.0%} of the disk is used, {what}", mend)


def _version(broker: BrokerStatus) -> str:
    return (broker.version or "?").removeprefix("V").replace("_", ".")


def _masters(status: ClusterStatus) -> Iterator[Check]:
    names = {each.name for each in status.brokers}
    for name in sorted(names - {each.name for each in status.brokers if each.is_master}):
        detail = f"{name} has no registered master: messages cannot be sent to it"
        yield fail("broker", detail, f"start the master of {name}")


def _versions(status: ClusterStatus) -> Iterator[Check]:
    versions = sorted({_version(each) for each in status.brokers if each.version is not None})
    if len(versions) > 1:
        mend = "finish the update, or update the older brokers"
        yield warn("versions", f"brokers of different versions: {', '.join(versions)}", mend)


def clock_check(newest_ms: int, now_ms: int) -> Check:
    """Check the clock against the newest store time."""
    if newest_ms - now_ms <= _MAX_CLOCK_MS:
        return ok("clock", "no message was stored later than this machine's clock shows")
    detail = (
        f"the newest message was stored at {moment_text(newest_ms)}, "
        f"{(newest_ms - now_ms) // 1000} s ahead of this machine's clock: searches by time may "
        "miss it"
    )
    return warn("clock", detail, SET_CLOCK)


def offset_check(fault: OffsetFault) -> Check:
    """Return the check of a consumer offset outside its queue."""
    queue, group = fault.queue, fault.group
    where = "/".join(
        str(each) for each in (queue.topic, queue.broker_name, queue.queue_id) if each is not None
    )
    if fault.is_beyond:
        detail = (
            f"group {group} continues at offset {queue.consumer_offset} of {where}, which ends at "
            f"{queue.max_offset}: it skips the messages up to that offset"
        )
    else:
        detail = (
            f"group {group} continues at offset {queue.consumer_offset} of {where}, which begins "
            f"at {queue.min_offset}: the messages between were deleted before it consumed them"
        )
    mend = f"rocketlens mqadmin resetOffsetByTime -g {group} -t {queue.topic} -s TIME -n ADDR"
    return warn("consumer offset", detail, mend)


_MAX_FILES: Final = 2_000
"""Bound of the files that are opened, 1 ms each."""


def archive_checks(root: str) -> Iterator[Check]:
    """Check tables, sources, gaps and files of an archive."""
    from rocketlens.archive.source import ArchiveSource

    try:
        source = ArchiveSource(root)
    except PackageMissing as error:
        yield fail("archive", f"it needs {error.name}", install_command("archive"))
        return
    except (RocketLensError, OSError) as error:
        yield fail("archive", str(error), "name its directory or address: --archive DIR")
        return
    try:
        status = source.status()
        yield ok(
            "archive",
            f"{root}: {counted(status.topics, 'topic')}, {counted(status.files, 'file')}, "
            f"{size_text(status.size_bytes)}",
        )
        if not status.sources:
            yield warn("source", "nothing was archived yet", "rocketlens archive run")
        yield from listed(map(_source, status.sources))
        yield from listed(_behind(status.sources))
        yield from listed(_gaps(status.sources))
        yield from listed(_tables(source))
        yield from _unfinished(source)
        yield from listed(_files(source))
    except (RocketLensError, OSError) as error:
        yield fail("archive", str(error), "make it readable, and check again")
    finally:
        source.close()


def _source(source: ArchivedSourceStatus) -> Check:
    held = "no messages"
    if source.oldest_ms is not None and source.newest_ms is not None:
        held = (
            f"{counted(source.messages, 'message')} archived, kept from "
            f"{moment_text(source.oldest_ms)} to {moment_text(source.newest_ms)}"
        )
    topics = f" ({', '.join(source.topics)})" if source.topics else ""
    text = (
        f"{source.name}{topics}: {held}; the last batch was added {moment_text(source.archived_ms)}"
    )
    return about("source", text)


def _behind(sources: tuple[ArchivedSourceStatus, ...]) -> Iterator[Check]:
    mend = "run `rocketlens archive run` again, and see that all brokers are registered"
    found = [
        warn("behind", f"{each.name}: {what}", mend) for each in sources for what in each.behind
    ]
    yield from found or [ok("behind", "sources were archived completely when they were last read")]


def _gaps(sources: tuple[ArchivedSourceStatus, ...]) -> Iterator[Check]:
    mend = "archive more often than brokers delete; the deleted messages are lost"
    found = [warn("gap", f"{each.name}: {gap}", mend) for each in sources for gap in each.gaps]
    yield from found or [ok("gaps", "the archived ranges have no gaps")]


def _tables(source: "ArchiveSource") -> Iterator[Check]:
    mend = "restore the archive from a backup: answers are incomplete"
    for problem in source.reader.listing.problems:
        yield fail("table", problem, mend)


def _unfinished(source: "ArchiveSource") -> Iterator[Check]:
    if source.reader.tables.missing_keys(source.reader.listing.batches):
        detail = (
            "a job ended before it added the keys of its last batch; look-ups read its messages"
        )
        yield warn("last batch", detail, "run the same `rocketlens archive run` again")


def _files(source: "ArchiveSource") -> Iterator[Check]:
    """Open files, the newest first; files replaced meanwhile are no problem."""
    files = [*source.reader.listing.messages, *source.reader.listing.keys]
    chosen = sorted(files, key=attrgetter("day"))[: -_MAX_FILES - 1 : -1]
    found = {source.reader.path(file): _problem(source, file) for file in chosen}
    problems = {path: reason for path, reason in found.items() if reason is not None}
    if problems:
        source.refresh()
        listing = source.reader.listing
        there = {source.reader.path(each) for each in (*listing.messages, *listing.keys)}
        problems = {path: reason for path, reason in problems.items() if path in there}
    for path, reason in problems.items():
        mend = "restore it from a backup: answers lack its messages and are incomplete"
        yield fail("file", f"{path}: {reason}", mend)
    if not problems:
        yield ok("files", f"{counted(len(chosen), 'file')} can be opened")


def _problem(source: "ArchiveSource", file: "DataFile") -> str | None:
    from rocketlens.archive.tables import check_file

    location, path = source.reader.tables.location, source.reader.path(file)
    try:
        with location.parquet(path) as opened:
            check_file(opened, file.table, path, file.rows)
    except (OSError, ValueError) as error:
        return location.reason(error)
    return None
