"""An archive in an object store is written and found as one in a directory.

A store that ignores conditional puts is found out before it loses a commit.
"""

import pickle
import socket
import threading

import pytest
from pyarrow.fs import FileSelector, S3FileSystem

import rocketlens
from rocketlens.archive.journal import ArchiveTables
from rocketlens.archive.location import ArchiveLocation
from rocketlens.archive.maintenance import compact, expire, vacuum, write_merged
from rocketlens.errors import ArchiveError, ArchiveTaken, BadInput
from rocketlens.pipeline.archive import ArchivedStore, archive_next
from tests.support.archives import archive_store, run_here
from tests.support.object_store import (
    ACCESS_KEY,
    BUCKET,
    SECRET_KEY,
    environment_of,
    object_store,
    serving,
)
from tests.support.synthetic import record, write_log


@pytest.fixture(scope="module")
def bucket():
    with object_store() as variables:
        yield variables


@pytest.fixture
def root(bucket, monkeypatch, request):
    """An address in an object store, which the environment names."""
    in_environment(monkeypatch, bucket)
    return f"s3://{BUCKET}/{request.node.name}"


def in_environment(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def written(path, count=30):
    write_log(path, map(record, range(count)), 1 << 14)
    return path


def keys_in(root):
    with rocketlens.open_archive(root) as archive:
        return sorted(int(each.keys[0][4:]) for each in archive.scan())


def test_a_store_in_an_object_store_is_found_by_key_position_and_content(root, tmp_path):
    store = written(tmp_path / "store")
    assert [each.messages for each in archive_store(root, store)] == [30]
    assert archive_store(root, store) == []
    written(store, 45)
    assert [each.number for each in archive_store(root, store)] == [2]
    with rocketlens.open_store(store) as opened, rocketlens.open_archive(root) as archive:
        messages = list(opened.scan(all_topics=True))
        assert sorted(map(repr, archive.scan())) == sorted(map(repr, messages))
        for text in ("key-7", messages[7].offset_msg_id, messages[7].position):
            assert archive.find(text).messages == (messages[7],)
        answer = archive.find(grep="body")
        assert len(answer.messages) == 45
        assert answer.complete
    assert len(rocketlens.find("key-7", sources=[root, store])) == 1


def test_tasks_on_other_machines_need_no_variables(root, tmp_path, monkeypatch, bucket):
    def run_elsewhere(tasks):
        with monkeypatch.context() as there:
            for name in bucket:
                there.delenv(name)
            return run_here(pickle.loads(pickle.dumps(tasks)))

    archive_store(root, written(tmp_path / "store"), run_tasks=run_elsewhere)
    assert keys_in(root) == list(range(30))


def test_two_archivers_of_one_object_store_lose_no_commit(root, tmp_path):
    store = written(tmp_path / "store", 12)
    ArchiveTables(root, create=True)
    brokers = ["broker-a", "broker-b", "broker-c"]
    threads = [threading.Thread(target=archive_store, args=(root, store, b)) for b in brokers]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert keys_in(root) == sorted(list(range(12)) * 3)
    assert {each.source.partition("/")[2] for each in ArchiveTables(root).batches()} == {*brokers}


def test_a_commit_after_another_ones_adds_nothing_to_an_object_store(root, tmp_path):
    store = written(tmp_path / "store")
    slow = ArchiveTables(root, create=True)

    def overtaken(tasks):
        results = run_here(tasks)
        archive_store(root, store)
        return results

    with pytest.raises(ArchiveTaken, match="has added batch 1"):
        archive_next(slow, ArchivedStore(str(store), "broker-a"), overtaken)
    assert keys_in(root) == list(range(30))


def test_what_a_failed_task_wrote_to_an_object_store_is_removed(root, tmp_path):
    def failing(tasks):
        read = tasks[0].scan.read

        def fail(share):
            yield from read(share)
            raise OSError("the task ends here")

        tasks[0].scan.read = fail
        return run_here(tasks)

    with pytest.raises(OSError, match="the task ends here"):
        archive_store(root, written(tmp_path / "store"), run_tasks=failing)
    files = ArchiveTables(root).messages.vacuum(
        0, dry_run=True, full=True, enforce_retention_duration=False
    )
    assert [each for each in files if each.endswith("parquet")] == []
    archive_store(root, tmp_path / "store")
    assert keys_in(root) == list(range(30))


def test_closed_days_are_compacted_in_an_object_store_and_old_files_deleted(root, tmp_path):
    for count in (10, 20, 30):
        archive_store(root, written(tmp_path / "store", count))
    tables = ArchiveTables(root)

    def merge(tasks):
        return list(map(write_merged, pickle.loads(pickle.dumps(tasks))))

    assert compact(tables, merge) == 6
    assert vacuum(tables) == []
    assert keys_in(root) == list(range(30))
    assert len(vacuum(tables, 0)) == 6
    assert vacuum(tables, 0) == []
    assert keys_in(root) == list(range(30))
    expire(tables, 1)
    assert keys_in(root) == []


DAYS = 6


@pytest.fixture
def days(root, tmp_path):
    """An archive with a key that each of several days has, day by day in files of their own."""
    day_ms = 86_400_000
    records = [record(n, store_timestamp_ms=day_ms * (n + 1), KEYS="often") for n in range(DAYS)]
    write_log(tmp_path / "store", records, 1 << 14)
    archive_store(root, tmp_path / "store")
    with rocketlens.open_archive(root) as archive:
        yield archive


def opened_by(monkeypatch, before):
    """Have ``before`` called with the path of each file of keys before it is opened."""
    opened = ArchiveLocation.open

    def open_file(location, path):
        if "/message_keys/" in path:
            before(path)
        return opened(location, path)

    monkeypatch.setattr(ArchiveLocation, "open", open_file)


def test_a_look_up_without_a_day_reads_several_days_at_once(days, monkeypatch):
    all_at_once = threading.Barrier(DAYS)
    opened_by(monkeypatch, lambda _: all_at_once.wait(60))
    assert [each.queue_offset for each in days.find("often")] == list(range(DAYS))


def test_as_many_days_are_read_at_once_as_are_allowed_and_their_order_stays(days, monkeypatch):
    monkeypatch.setattr("rocketlens.archive.reader.MAX_ARCHIVE_READS", 2)
    lock, opening, most = threading.Lock(), set(), []
    second = threading.Event()

    def count(path):
        with lock:
            opening.add(path)
            most.append(len(opening))
            is_first = len(most) == 1
        if is_first:
            assert second.wait(60)
        else:
            second.set()
        with lock:
            opening.remove(path)

    opened_by(monkeypatch, count)
    found = list(days.source.reader.positions("often", {}, []))
    assert [each["queue_offset"] for each in found] == list(reversed(range(DAYS)))
    assert max(most) == 2


def test_a_day_that_cannot_be_read_makes_a_look_up_incomplete_and_the_others_are_found(
    days, monkeypatch
):
    reader = days.source.reader
    lost = reader.path(reader.listing.keys[2])

    def fail(path):
        if path == lost:
            raise OSError("it is broken")

    opened_by(monkeypatch, fail)
    answer = days.find("often")
    assert [each.queue_offset for each in answer] == [0, 1, 3, 4, 5]
    assert [each.error for each in answer.failures] == [f"{lost} cannot be read: it is broken"]


def test_a_look_up_that_ends_early_leaves_no_thread_reading(days):
    reader = days.source.reader
    positions = reader.positions("often", {}, [])
    assert next(positions)["queue_offset"] == DAYS - 1
    positions.close()
    days.close()
    names = {each.name for each in threading.enumerate()}
    assert not any("rocketlens-archive" in each for each in names)


def test_an_object_store_that_is_offline_is_a_line_and_no_empty_answer(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    in_environment(monkeypatch, environment_of(port))
    root = f"s3://{BUCKET}/offline"
    with pytest.raises(ArchiveError, match=f"^{root}: .*onnect") as raised:
        rocketlens.open_archive(root)
    assert "\n" not in str(raised.value)
    store = written(tmp_path / "store")
    with pytest.raises(ArchiveError, match=f"^{root}: .*onnect"):
        archive_store(root, store)
    answer = rocketlens.find("key-7", sources=[root, store])
    assert len(answer.messages) == 1
    assert not answer.complete
    assert root in answer.failures[0].source


def test_an_archive_that_goes_offline_makes_the_answer_incomplete(tmp_path, monkeypatch):
    with object_store() as variables:
        in_environment(monkeypatch, variables)
        root = f"s3://{BUCKET}/archive"
        archive_store(root, written(tmp_path / "store"))
        archive = rocketlens.open_archive(root)
    with archive:
        with pytest.raises(ArchiveError, match=f"^{root}: "):
            archive.find("key-7")
        answer = rocketlens.find("key-7", sources=[archive, tmp_path / "store"])
        assert len(answer.messages) == 1
        assert not answer.complete


def test_no_error_has_a_secret(monkeypatch):
    with serving("refuse") as port:
        in_environment(monkeypatch, environment_of(port))
        location = ArchiveLocation.of(f"s3://{BUCKET}/refused")
        said = [repr(location)]
        for fail in (
            lambda: rocketlens.open_archive(location.root),
            lambda: ArchiveTables(location, create=True),
            lambda: location.parquet(location.path("messages", "x.parquet")),
            lambda: location.finish("", location.create(location.path("messages", "x.parquet"))),
        ):
            with pytest.raises((ArchiveError, OSError)) as raised:
                fail()
            said.append("".join(map(str, (raised.value, raised.getrepr(style="native")))))
    assert "AccessDenied" in said[1]
    for text in said:
        assert "test-secret-key" not in text
        assert "test-access-key" not in text


@pytest.mark.parametrize(
    "root",
    [
        *("s3://", "s3://lake", "s3://lake/", "gs://lake/x", "s3://key:secret@lake/x"),
        *("file:///tmp/x", "s3:/lake/x", "S3://lake/x", "s3a://lake/x", "s3://la ke/x"),
        "https://lake.s3.amazonaws.com/x",
    ],
)
def test_what_is_no_address_of_an_archive_is_refused(root):
    with pytest.raises(BadInput, match=r"is a directory or s3://BUCKET/PREFIX") as raised:
        rocketlens.open_archive(root)
    assert "secret@" not in str(raised.value)


@pytest.mark.parametrize(
    ("root", "said"),
    [
        ("", "is empty: give"),
        ("/lake\0", "a zero character"),
        ("/data/a%20lake", "a % before two digits"),
        ("s3://lake/x?versionId=1", r"has '\?'"),
        ("s3://lake/x#part", "has '#'"),
        ("s3://lake/a%20lake", "has '%'"),
        ("s3://lake/a\\b", "has "),
        ("s3://lake/x\n", "has "),
        ("s3://lake//x", "an empty part"),
        ("s3://lake/x/../y", "of dots only"),
    ],
)
def test_a_path_that_not_all_programs_read_alike_is_refused(root, said):
    with pytest.raises(BadInput, match=said) as raised:
        rocketlens.open_archive(root)
    assert "\n" not in str(raised.value)


def test_a_store_may_have_such_a_path(tmp_path):
    store = written(tmp_path / "a%20store")
    assert len(rocketlens.find("key-7", sources=[str(store)])) == 1


ROOT = f"s3://{BUCKET}/a lake ü+~/x"


def located(monkeypatch, variables, **more):
    for name, value in {**variables, **more}.items():
        monkeypatch.setenv(name, value)
    return ArchiveLocation.of(ROOT)


def objects_in(location):
    store = S3FileSystem(
        access_key=ACCESS_KEY,
        secret_key=SECRET_KEY,
        endpoint_override=location.endpoint.removeprefix("http://"),
        scheme="http",
    )
    return store.get_file_info(FileSelector(BUCKET, recursive=True))


def test_a_store_that_refuses_a_second_put_is_fit_and_the_probe_is_gone(monkeypatch):
    with object_store() as variables:
        location = located(monkeypatch, variables, AWS_SESSION_TOKEN="token")
        assert location.check_conditional_put() is True
        assert objects_in(location) == []


def test_a_store_that_lets_the_second_put_overwrite_is_refused_with_what_to_do(monkeypatch):
    with object_store("overwrite") as variables:
        location = located(monkeypatch, variables)
        with pytest.raises(ArchiveError, match="ignores If-None-Match") as raised:
            location.check_conditional_put()
        assert objects_in(location) == []
    said = str(raised.value)
    assert said.startswith(f"{ROOT}: the object store {location.endpoint} ")
    assert "Use a store that refuses such puts" in said
    assert "\n" not in said


def test_a_store_that_refuses_each_request_is_a_line_without_secrets(monkeypatch):
    with serving("refuse") as port:
        location = located(monkeypatch, environment_of(port))
        with pytest.raises(ArchiveError, match=r"does not take a put .*AccessDenied") as raised:
            location.check_conditional_put()
    for secret in (ACCESS_KEY, SECRET_KEY):
        assert secret not in str(raised.value)


def test_a_store_that_is_offline_is_a_line(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ArchiveError, match="onnection refused"):
        located(monkeypatch, environment_of(port)).check_conditional_put()


def test_what_does_not_speak_http_is_a_line(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        location = located(monkeypatch, environment_of(server.getsockname()[1]))

        def answer():
            for _ in range(2):
                connection, _ = server.accept()
                connection.sendall(b"* OK IMAP4rev1\r\n")
                connection.close()

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(ArchiveError, match=r"^s3://"):
            location.check_conditional_put()


def test_without_keys_in_the_environment_it_is_not_checked(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert located(monkeypatch, {"AWS_ENDPOINT_URL": "http://x"}).check_conditional_put() is False


def test_a_directory_and_amazons_own_store_are_not_asked(monkeypatch, tmp_path):
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    assert ArchiveLocation.of(tmp_path).check_conditional_put() is True
    assert ArchiveLocation.of(ROOT).check_conditional_put() is True
