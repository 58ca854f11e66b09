"""What ``rocketlens doctor`` checks of a running cluster."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rocketlens.cli.doctor.doctor_check import Check, about, fail, listed, ok, warn
from rocketlens.errors import RocketLensError
from rocketlens.model.text.counted import counted
from rocketlens.query.facts.examination import OffsetFault, offset_faults

if TYPE_CHECKING:
    from rocketlens.model.status import BrokerStatus, ClusterStatus
    from rocketlens.model.topic import TopicsAnswer
    from rocketlens.terminal.cluster_access import ClusterAccess

_REFUSED_RATIO: Final = 0.9
_CLEANED_RATIO: Final = 0.75
"""Where RocketMQ refuses messages, and where it deletes old ones before their time."""
_MAX_CLOCK_MS: Final = 5_000
"""What clocks of two machines may differ, in milliseconds."""
SET_CLOCK: Final = "synchronize the clocks of both machines, such as with chronyd"


def cluster_checks(access: "ClusterAccess") -> Iterator[Check]:
    """Check name servers, brokers, disks, versions, clocks and groups; changes nothing."""
    from rocketlens.terminal.cluster_access import ask_cluster

    try:
        status = ask_cluster(access, lambda admin: admin.status())
        topics = ask_cluster(access, lambda admin: admin.topics())
    except (RocketLensError, OSError) as error:
        mend = f"start it, or name another: rocketlens status -n {access.name_servers}"
        yield fail("name servers", str(error), mend)
        return
    yield from checks_of(status, topics, time.time_ns() // 1_000_000)


def checks_of(status: "ClusterStatus", topics: "TopicsAnswer", now_ms: int) -> Iterator[Check]:
    """Return the checks of what a cluster said of itself."""
    yield from _unreachable(status)
    servers = "; ".join(status.name_servers)
    yield ok(
        "name servers",
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


def _unreachable(status: "ClusterStatus") -> Iterator[Check]:
    sources = {f"{each.name} ({each.address})" for each in status.brokers}
    for each in status.coverage:
        if each.error is None or each.source in sources:
            continue
        # Name servers are known by their addresses.
        if ":" not in each.source:
            yield fail("broker", f"{each.source}: {each.error}", f"start {each.source}")
        else:
            mend = "start it, or take it out of the list of name servers"
            yield warn("name servers", f"{each.source}: {each.error}", mend)


def _broker(broker: "BrokerStatus") -> Iterator[Check]:
    where = f"{broker.name} ({broker.address})"
    if broker.error is not None:
        mend = "start it; if it is gone for good: rocketlens find --forget-broker "
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


def _version(broker: "BrokerStatus") -> str:
    return (broker.version or "?").removeprefix("V").replace("_", ".")


def _masters(status: "ClusterStatus") -> Iterator[Check]:
    names = {each.name for each in status.brokers}
    for name in sorted(names - {each.name for each in status.brokers if each.is_master}):
        detail = f"{name} has no master that is registered: nothing can be sent to it"
        yield warn("broker", detail, f"start the master of {name}")


def _versions(status: "ClusterStatus") -> Iterator[Check]:
    versions = sorted({_version(each) for each in status.brokers if each.version is not None})
    if len(versions) > 1:
        mend = "update the older brokers, if this is no update that is under way"
        yield warn("versions", f"brokers of different versions: {', '.join(versions)}", mend)


def clock_check(newest_ms: int, now_ms: int) -> Check:
    """Check the clock against the store time of the newest message."""
    from rocketlens.terminal.times import iso_text

    if newest_ms - now_ms <= _MAX_CLOCK_MS:
        return ok("clock", "no message was stored later than this machine's clock shows")
    detail = (
        f"the newest message was stored at {iso_text(newest_ms)}, {(newest_ms - now_ms) // 1000} s "
        "after now by this machine's clock: searches by time may miss it"
    )
    return warn("clock", detail, SET_CLOCK)


def offset_check(fault: OffsetFault) -> Check:
    """Return the check of a consumer offset that its queue does not have."""
    queue, group = fault.queue, fault.group
    where = "/".join(
        str(each) for each in (queue.topic, queue.broker_name, queue.queue_id) if each is not None
    )
    if fault.is_beyond:
        detail = (
            f"group {group} goes on at offset {queue.consumer_offset} of {where}, which ends at "
            f"{queue.max_offset}: it skips what arrives before that"
        )
    else:
        detail = (
            f"group {group} goes on at offset {queue.consumer_offset} of {where}, which begins at "
            f"{queue.min_offset}: what is between was deleted before the group consumed it"
        )
    mend = f"rocketlens mqadmin resetOffsetByTime -g {group} -t {queue.topic} -s TIME -n ADDR"
    return warn("consumer offset", detail, mend)
