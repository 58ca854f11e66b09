"""Messages that a cluster has deleted are sent to it again from an archive."""

import json

from rocketlens.client.resend.resend_job import MARKER
from rocketlens.client.send.message import Message
from rocketlens.testing import cluster
from tests.support.archives import archive_store


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
