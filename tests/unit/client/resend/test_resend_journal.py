"""The file of a job: what is recorded is read again, and damage is never taken for nothing."""

import errno
import json
import zlib

import pytest
from msgspec.structs import replace

from rocketlens.client.resend.resend_journal import (
    FAILED,
    SENDING,
    SENT,
    UNKNOWN,
    EarlierJobs,
    JobHeader,
    Outcome,
    PlannedMessage,
    ResendJournal,
    earlier_jobs,
    in_words,
    read_job,
)
from rocketlens.errors import BadInput, StoreLocked
from rocketlens.model.life import time_text
from rocketlens.store.disk import Disk
from tests.support.failing_disks import QuickDisk

MESSAGES = [
    PlannedMessage(
        topic="T",
        queue_id=0,
        queue_offset=n,
        offset_msg_id=f"id-{n}",
        unique_key="\u8d27\ud800" if n else None,
        target="%RETRY%g",
    )
    for n in range(4)
]


HEADER = JobHeader(
    job="j1",
    count=len(MESSAGES),
    selection="s",
    target="t",
    cluster="c:9876",
    namespace="",
    reason="why",
    user="me",
    time="2026-01-01",
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs" / "one.job"


def recorded(path):
    with ResendJournal.create(path, HEADER, MESSAGES) as journal:
        journal.audit("begins", "now")
        for number in (1, 2, 3):
            journal.sending(number, f"key-{number}", 1000 + number)
        journal.sent(1, "m", "o")
        journal.failed(2, "refused")
        journal.unknown(3, "timeout")
        journal.sending(4, "key-4", 5)


def test_what_was_recorded_is_read_again(path):
    recorded(path)
    with ResendJournal.resume(path) as journal:
        assert (journal.header, list(journal.messages)) == (HEADER, MESSAGES)
        assert [journal.outcome(n) for n in (1, 2, 3, 4)] == [
            Outcome(SENT, "m", "o", "key-1", 1001),
            Outcome(FAILED, "refused", "", "key-2", 1002),
            Outcome(UNKNOWN, "timeout", "", "key-3", 1003),
            Outcome(SENDING, key="key-4", time_ms=5),
        ]
        assert journal.counts() == {SENT: 1, FAILED: 1, UNKNOWN: 2, "left": 0}
    assert path.stat().st_mode & 0o077 == 0


def test_one_process_at_a_time_has_it(path):
    with ResendJournal.create(path, HEADER, MESSAGES):
        with pytest.raises(StoreLocked, match="another process runs this job"):
            ResendJournal.resume(path)
        with pytest.raises(StoreLocked):
            ResendJournal.create(path, HEADER, MESSAGES)
    with pytest.raises(BadInput, match="exists already"):
        ResendJournal.create(path, HEADER, MESSAGES)
    ResendJournal.resume(path).close()


def test_a_torn_last_line_is_cut_off_and_all_before_it_kept(path):
    recorded(path)
    content = path.read_bytes()
    plan_bytes = len(b"".join(content.splitlines(keepends=True)[: 1 + len(MESSAGES)]))
    for size in range(len(content)):
        path.write_bytes(content[:size])
        if size < plan_bytes:
            with pytest.raises(BadInput, match="not the whole file"):
                ResendJournal.resume(path)
            continue
        with ResendJournal.resume(path, QuickDisk()) as journal:
            whole = content[:size].rfind(b"\n") + 1
            assert path.stat().st_size == whole
            journal.sent(4, "later", "o")
        with ResendJournal.resume(path) as journal:
            assert journal.outcome(4).value == "later"


def test_damage_is_an_error_wherever_it_is(path):
    recorded(path)
    content = path.read_bytes()
    for position in range(0, len(content) - 1, 7):
        damaged = bytearray(content)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match="damaged"):
            ResendJournal.resume(path)
    path.write_bytes(content[: content.rfind(b"\n", 0, -1) + 1] + b"torn" + b"\n" + content[:50])
    with pytest.raises(BadInput, match="damaged"):
        ResendJournal.resume(path)


def test_other_files_are_no_jobs(path, tmp_path):
    with pytest.raises(BadInput, match="not the file of a job"):
        ResendJournal.resume(tmp_path / "missing")
    other = tmp_path / "empty"
    other.touch()
    with pytest.raises(BadInput, match="not the whole file"):
        ResendJournal.resume(other)


def test_a_job_has_a_bounded_number_of_messages(path, monkeypatch):
    monkeypatch.setattr("rocketlens.limits.MAX_RESEND_MESSAGES", 3)
    with pytest.raises(BadInput, match="--max"):
        ResendJournal.create(path, HEADER, MESSAGES)
    assert not path.exists()


def test_no_messages_are_a_whole_file(path):
    ResendJournal.create(path, replace(HEADER, count=0), []).close()
    with ResendJournal.resume(path) as journal:
        assert journal.counts() == {SENT: 0, FAILED: 0, UNKNOWN: 0, "left": 0}


class FullDisk(Disk):
    """A disk on which a line is written by half, and then there is no more room."""

    def append_durably(self, path, content):
        """Write a part, and fail."""
        super().append_durably(path, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    def write_durably(self, path, content):
        """Fail."""
        assert content
        raise OSError(errno.ENOSPC, "No space left on device", str(path))


def test_a_line_that_cannot_be_written_records_nothing(path):
    with pytest.raises(OSError, match="No space"):
        ResendJournal.create(path, HEADER, MESSAGES, FullDisk())
    assert not path.exists()
    ResendJournal.create(path, HEADER, MESSAGES).close()
    with ResendJournal.resume(path, FullDisk()) as journal:
        with pytest.raises(OSError, match="No space"):
            journal.sending(1, "k", 0)
        assert journal.outcome(1) is None
    with ResendJournal.resume(path) as journal:
        assert journal.outcome(1) is None


def test_what_jobs_have_sent_of_a_topic_is_known_by_unique_key_whatever_selected_it(path):
    keyed = [replace(each, unique_key=f"U{n}") for n, each in enumerate(MESSAGES)]
    keyed[0] = replace(keyed[0], unique_key=None)
    with ResendJournal.create(path, HEADER, keyed) as journal:
        for number in (1, 2, 3, 4):
            journal.sending(number, f"U{number - 1}", 1000 + number)
        journal.sent(1, "m", "o")
        journal.failed(2, "refused")
        journal.unknown(3, "timeout")
        known = earlier_jobs(path.parent, "T", "c:9876")
        assert {key: each.marker for key, each in known.sent.items()} == {
            "id-0": "j1/1",
            "U2": "j1/3",
            "U3": "j1/4",
        }
        assert known.unfinished == [path]
        journal.sent(3, "m", "o")
        journal.failed(4, "refused")
    known = earlier_jobs(path.parent, "T", "b:9876;c:9876")
    assert (set(known.sent), known.unfinished) == ({"id-0", "U2"}, [])
    later = replace(HEADER, job="j2", selection="one by hand", reason="INC-4711", count=1)
    with ResendJournal.create(path.with_name("two.job"), later, [keyed[2]]) as journal:
        journal.sending(1, "U2", 2000)
    known = earlier_jobs(path.parent, "T", "c:9876")
    assert known.sent["U2"].marker == "j2/1"
    assert in_words(list(known.sent.values())) == (
        f"j2 of me, {time_text(2000)}, INC-4711; j1 of me, {time_text(1000)}, why"
    )
    for other in (("other", "c:9876"), ("T", "other:9876")):
        assert earlier_jobs(path.parent, *other) == EarlierJobs({}, [])
    assert earlier_jobs(path.parent / "missing", "T", "c:9876") == EarlierJobs({}, [])
    (path.parent / "bad.job").write_bytes(b"no job at all\n")
    with pytest.raises(BadInput, match="damaged"):
        earlier_jobs(path.parent, "T", "c:9876")


def test_a_name_that_later_jobs_would_not_see_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"ends in \.job"):
        ResendJournal.create(tmp_path / "one.txt", HEADER, MESSAGES)
    ResendJournal.create(tmp_path / "one.job", HEADER, MESSAGES).close()
    assert earlier_jobs(tmp_path, "T", "c:9876").unfinished == [tmp_path / "one.job"]


def test_a_stopped_job_is_no_unfinished_one_until_it_is_run_again(path):
    recorded(path)
    selection = (path.parent, "T", HEADER.cluster)
    assert earlier_jobs(*selection).unfinished == [path]
    with ResendJournal.resume(path) as journal:
        journal.stop("by me", "2026-01-02")
    contents = read_job(path)
    assert (contents.is_stopped, contents.audits[-1]) == (True, ("stopped by me", "2026-01-02"))
    assert contents.counts()[UNKNOWN] == 2
    assert earlier_jobs(*selection).unfinished == []
    with ResendJournal.resume(path) as journal:
        journal.audit("begins", "2026-01-03")
        assert not journal.contents.is_stopped
    assert not read_job(path).is_stopped


def test_a_file_of_an_earlier_version_has_no_origin(path):
    recorded(path)
    first, *others = path.read_bytes().splitlines(keepends=True)
    header = json.loads(first[9:])
    assert (header.pop("origin"), header.pop("login")) == ("", "")
    text = json.dumps(header).encode()
    path.write_bytes(b"%08x %b\n" % (zlib.crc32(text), text) + b"".join(others))
    assert read_job(path).header == HEADER


def test_a_line_of_a_newer_version_is_refused_and_nothing_is_sent(path):
    recorded(path)
    line = b'{"n": 1, "withdrawn": "2030-01-01"}'
    path.write_bytes(path.read_bytes() + b"%08x %b\n" % (zlib.crc32(line), line))
    with pytest.raises(BadInput, match="a newer version wrote it"):
        ResendJournal.resume(path)
