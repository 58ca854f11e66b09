"""``rocketlens resend``: shows first, sends when told to, never twice, also from an archive."""

import csv
import json
import os
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from rocketlens.client.resend.resend_job import MARKER
from rocketlens.client.send.message import Message
from rocketlens.testing import cluster
from tests.support.archives import archive_store


@pytest.fixture
def sent(rocketmq, request):
    """Five messages of a topic of the test's own, two of them with the key k."""
    topic = request.node.name.split("[")[0]
    with rocketmq.producer() as producer:
        results = [
            producer.send(Message(topic, f"{n}", keys="k" if n < 2 else "other", tags="A"))
            for n in range(5)
        ]
        producer.send(Message("Other", "0"))
    return topic, results


def found(rocketmq, topic):
    with rocketmq.admin() as admin:
        messages = list(admin.find(None, topic))
    return messages, [each for each in messages if MARKER in each.properties]


def rows(done):
    titles, *lines = (line.split("\t") for line in done.out.splitlines())
    assert titles == ["n", "state", "id", "from", "to", "time", "keys", "body"]
    return lines


def test_a_dry_run_sends_nothing_and_makes_no_file(run, rocketmq, sent, tmp_path):
    topic, results = sent
    job = tmp_path / "a.job"
    ids = [each.offset_msg_id for each in results[:3]]
    done = run("resend", *ids, "--namesrv", rocketmq.name_server, "--job", str(job))
    assert done.code == 0
    assert [row[1:3] for row in rows(done)] == [["would send", each.msg_id] for each in results[:3]]
    assert all(row[5].startswith("20") and row[7] for row in rows(done))
    assert "dry run: 3 messages" in done.err
    done = run("resend", *ids, "--namesrv", rocketmq.name_server, "-o", "csv")
    titles, *shown = csv.reader(done.out.splitlines())
    assert titles == ["n", "state", "id", "from", "to", "detail"]
    assert [row[:3] for row in shown] == [
        [str(n), "would send", each.msg_id] for n, each in enumerate(results[:3], 1)
    ]
    assert not list(tmp_path.iterdir())
    assert len(found(rocketmq, topic)[0]) == 5


def test_messages_are_sent_once_however_often_the_job_is_run(run, rocketmq, sent, tmp_path):
    topic, results = sent
    job = tmp_path / "a.job"
    command = ("resend", "--key", "k", "-t", topic, "--namesrv", rocketmq.name_server)
    options = ("--job", str(job), "--send", "--rate", "1000")
    done = run(*command, *options)
    assert (done.code, "--reason" in done.err, job.exists()) == (2, True, False)
    done = run(*command, *options, "--reason", "lost", "-o", "json")
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [each["state"] for each in lines] == ["sent", "sent"]
    _, copies = found(rocketmq, topic)
    assert sorted(each.body for each in copies) == [b"0", b"1"]
    assert {each.unique_key for each in copies} == {each.msg_id for each in results[:2]}
    assert {each.offset_msg_id for each in copies} == {each["detail"] for each in lines}
    assert '"reason":"lost"' in job.read_text()
    for again in (command, ("resend", "--namesrv", rocketmq.name_server)):
        done = run(*again, *options)
        assert (done.code, done.out) == (0, "")
        assert "2 sent, 0 failed, 0 unknown, 0 left of 2 messages" in done.err
    assert len(found(rocketmq, topic)[1]) == 2
    done = run("resend", results[0].offset_msg_id, *command[-2:], *options)
    assert (done.code, "another request" in done.err) == (2, True)
    done = run(*command, "--to-topic", "Other", *options)
    assert (done.code, "another request" in done.err) == (2, True)


def test_a_message_is_named_by_its_position_too(run, rocketmq, sent):
    topic, results = sent
    result = results[2]
    queue = result.message_queue
    position = f"{topic}/{queue.queue_id}/{result.queue_offset}"
    for options in ((), ("-t", topic)):
        done = run("resend", position, *options, "--namesrv", rocketmq.name_server)
        assert done.code == 0
        assert [row[2] for row in rows(done)] == [result.msg_id]
    absent = f"{topic}/{queue.queue_id}/999"
    done = run("resend", absent, "--namesrv", rocketmq.name_server)
    assert (done.code, f"there is no message {absent}" in done.err) == (1, True)


def test_another_topic_must_be_there(run, rocketmq, sent):
    topic, results = sent
    command = ("resend", results[0].msg_id, "-t", topic, "--namesrv", rocketmq.name_server)
    options = ("--send", "--reason", "test")
    done = run(*command, *options, "--to-topic", "Otehr")
    assert (done.code, "Otehr" in done.err, "did you mean Other?" in done.err) == (2, True, True)
    done = run(*command, *options, "--to-group", "nobody")
    assert (done.code, "nobody" in done.err) == (2, True)
    with rocketmq.producer() as producer:
        producer.send(Message("%RETRY%somebody", "x"))
    done = run(*command, *options, "--to-group", "somebdy")
    assert (done.code, "did you mean somebody?" in done.err) == (2, True)
    done = run(*command, *options, "--to-topic", "Other")
    assert done.code == 0
    assert [each.body for each in found(rocketmq, "Other")[1]] == [b"0"]
    jobs = Path(os.environ["XDG_STATE_HOME"], "rocketlens", "jobs")
    assert len(list(jobs.glob("*.job"))) == 1


def test_a_read_only_context_refuses(run, rocketmq, sent, tmp_path, monkeypatch):
    topic, results = sent
    config = tmp_path / "config.toml"
    config.write_text(f'[contexts.p]\nnamesrv = "{rocketmq.name_server}"\nread_only = true\n')
    config.chmod(0o600)
    monkeypatch.setenv("ROCKETLENS_CONFIG", str(config))
    resend = ("resend", results[0].offset_msg_id, "--context", "p")
    assert run(*resend).code == 0
    for command in (
        (*resend, "--send", "--reason", "test"),
        ("send", topic, "x", "--context", "p"),
        ("dlq", "redrive", "g", "--context", "p", "--send", "--reason", "test"),
        ("mqadmin", "--context", "p", "deleteTopic", "-t", topic, "-c", "DefaultCluster"),
        *(
            ("mqadmin", "--context", "p", "queryMsgById", "-i", each, "-t", topic, "-s", "true")
            for each in [results[0].offset_msg_id]
        ),
    ):
        done = run(*command)
        assert (done.code, "read_only" in done.err) == (2, True), done
    assert run("mqadmin", "--context", "p", "topicList").code == 0
    messages, copies = found(rocketmq, topic)
    assert (len(messages), copies) == (5, [])


@pytest.mark.parametrize(
    ("options", "code_and_text"),
    [
        ((), (2, "no messages are chosen")),
        (("--key", "k"), (2, "--topic")),
        (("--job", "/nowhere/a.job", "--send"), (2, "no such file")),
        (("x", "--to-topic", "A", "--to-group", "B"), (2, "only one")),
        (("--key", "nothing", "-t", "Other"), (1, "nothing to send")),
        (("no-such-id", "-t", "Other"), (1, "no-such-id")),
    ],
)
def test_what_cannot_be_meant_is_refused(run, rocketmq, sent, options, code_and_text):
    assert sent
    done = run("resend", *options, "--namesrv", rocketmq.name_server)
    code, text = code_and_text
    assert (done.code, done.out) == (code, "")
    assert text in done.err


def test_a_broker_that_is_gone_makes_it_incomplete(run, tmp_path):
    with cluster(tmp_path / "store") as rocketmq:
        with rocketmq.producer() as producer:
            result = producer.send(Message("T", "1", keys="k"))
        rocketmq.kill_broker()
        for selection in ((result.offset_msg_id,), ("--key", "k")):
            done = run("resend", *selection, "-t", "T", "--namesrv", rocketmq.name_server)
            assert (done.code, done.out) == (3, ""), done


def test_a_killed_job_goes_on_where_it_was(run, rocketmq, sent, tmp_path):
    topic, results = sent
    job = tmp_path / "a.job"
    command = ["resend", *(each.offset_msg_id for each in results)]
    command += ["--namesrv", rocketmq.name_server, "--job", str(job), "--send"]
    command += ["--reason", "test", "-o", "json"]
    with subprocess.Popen(
        [sys.executable, "-m", "rocketlens.main", *command, "--rate", "1"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
    ) as killed:
        first = json.loads(killed.stdout.readline())
        os.kill(killed.pid, signal.SIGKILL)
    assert first["state"] == "sent"
    done = run(*command, "--rate", "1000")
    assert done.code == 0, done.err
    _, copies = found(rocketmq, topic)
    assert sorted(each.body for each in copies) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_job_that_reads_from_a_store_is_left_to_the_console(run, rocketmq, sent, tmp_path):
    topic, _ = sent
    job = tmp_path / "a.job"
    command = ("resend", "--key", "k", "-t", topic, "--namesrv", rocketmq.name_server)
    options = ("--job", str(job), "--send", "--rate", "1000", "--reason", "lost")
    assert run(*command, *options).code == 0
    first, *others = job.read_bytes().splitlines(keepends=True)
    text = json.dumps(json.loads(first[9:]) | {"origin": "/backup/store"}).encode()
    job.write_bytes(b"%08x %b\n" % (zlib.crc32(text), text) + b"".join(others))
    done = run(*command, *options)
    assert (done.code, "reads its messages from /backup/store" in done.err) == (2, True)


def test_what_the_cluster_has_no_more_is_sent_again_from_an_archive(run, golden, tmp_path):
    archive_store(tmp_path / "lake", golden("5.5.0").store)
    archived = ("--archive", tmp_path / "lake")
    sent = next(e for e in golden("5.5.0").sent if (e["keys"] or "").startswith("batch-"))
    topic, key = sent["topic"], sent["keys"]
    with cluster() as rocketmq:
        with rocketmq.producer() as producer:
            producer.send(Message(topic, b"the topic is there"))
        where = ("-t", topic, "--namesrv", rocketmq.name_server)
        assert run("resend", "--key", key, *where).code == 1
        shown = run("resend", "--key", key, *where, *archived)
        assert (shown.code, "would send" in shown.out) == (0, True), shown.err
        assert key in shown.out
        job = ("--job", tmp_path / "a.job")
        what = ("resend", "--key", key, *where, *job, "--send", "--reason", "r")
        done = run(*what, *archived, "-o", "json")
        assert done.code == 0, done.err
        assert json.loads(done.out)["state"] == "sent"
        other = run(*what)
        assert other.code == 2
        assert "give --archive" in other.err
        assert run(*what, *archived).code == 0
        position = f"{topic}/{sent['queue_id']}/{sent['queue_offset']}"
        assert run("resend", position, *where, *archived).code == 0
        assert run("resend", sent["offset_msg_id"], *where, *archived).code == 0
        assert run("resend", f"{topic}/0/999999", *where, *archived).code == 1
        with rocketmq.admin() as admin:
            (message,) = admin.find(key, topic, kind="key")
    assert message.properties[MARKER].endswith("/1")
    assert message.unique_key == sent["msg_id"]
