"""``rocketlens dlq redrive``: a group has its dead letters again, and only that group."""

import asyncio

from rocketlens.client.consume.push import PushConsumer
from rocketlens.client.send.message import Message
from tests.support.patience import PATIENCE_S


def consumed(rocketmq, group, count):
    """Return the next messages that a group has of the topic Orders."""
    messages = []

    async def work():
        done = asyncio.Event()

        async def listener(each, context):
            assert context
            messages.extend(each)
            if len(messages) >= count:
                done.set()

        consumer = PushConsumer(rocketmq.name_server, group=group, begin="first")
        consumer.subscribe("Orders")
        consumer.listen(listener)
        async with consumer, asyncio.timeout(PATIENCE_S):
            await done.wait()

    asyncio.run(work())
    assert len(messages) == count
    return messages


def bury(rocketmq, group, messages):
    """Store messages as a broker stores dead letters."""
    with rocketmq.producer() as producer:
        for each in messages:
            dead = Message(f"%DLQ%{group}", each.body, keys=each.keys, tags=each.tags)
            dead.put("UNIQ_KEY", each.unique_key)
            dead.put("RETRY_TOPIC", each.topic)
            dead.put("ORIGIN_MESSAGE_ID", each.offset_msg_id)
            dead.put("WAIT", "false")
            producer.send(dead)


def test_the_group_has_its_dead_letters_again(run, rocketmq):
    with rocketmq.producer() as producer:
        for number in range(3):
            producer.send(Message("Orders", f"{number}", keys=f"K{number}", tags="A"))
    before = consumed(rocketmq, "billing", 3)
    consumed(rocketmq, "audit", 3)
    bury(rocketmq, "billing", before)
    command = ("dlq", "redrive", "billing", "--namesrv", rocketmq.name_server)
    done = run(*command)
    assert (done.code, done.out.count("would send")) == (0, 3), done
    assert "to group billing alone" in done.err
    titles, *rows = (line.split("\t") for line in done.out.splitlines())
    assert titles == ["n", "state", "id", "from", "to", "time", "keys", "body", "last_failure"]
    assert sorted((row[6], row[7]) for row in rows) == [(f"K{n}", f"{n}") for n in range(3)]
    assert all(row[5].startswith("20") for row in rows)
    send = ("--send", "--reason", "mended", "--rate", "1000", "--max", "2")
    done = run(*command, *send)
    assert (done.code, done.out.count("\tsent\t")) == (0, 2), done
    assert "there are more" in done.err
    # What an earlier job has sent is left out.
    done = run(*command, *send)
    assert (done.code, done.out.count("\tsent\t")) == (0, 1), done
    assert "2 were sent by earlier jobs" in done.err
    done = run(*command, *send)
    assert (done.code, "nothing to send" in done.err) == (1, True), done
    after = consumed(rocketmq, "billing", 3)
    for known in ("body", "topic", "keys", "tags", "msg_id"):
        was = sorted(getattr(each, known) for each in before)
        assert sorted(getattr(each, known) for each in after) == was
    assert {each.reconsume_times for each in after} == {0}
    assert {each.properties["ORIGIN_MESSAGE_ID"] for each in after} == {
        each.offset_msg_id for each in before
    }
    # Only now the other group has them, too: three, so none came before.
    options = ("--to", "original", "--again", *send[:-1], "3")
    done = run(*command, *options)
    assert (done.code, done.out.count("\tsent\t")) == (0, 3), done
    others = consumed(rocketmq, "audit", 3)
    assert sorted(each.body for each in others) == [b"0", b"1", b"2"]
    assert "RETRY_TOPIC" not in others[0].properties
    with rocketmq.admin() as admin:
        stored = admin.find(None, "Orders")
    assert len(stored.messages) == 6


def test_a_group_without_dead_letters_is_an_error(run, rocketmq):
    done = run("dlq", "redrive", "nobody", "--namesrv", rocketmq.name_server)
    assert (done.code, done.out) == (1, "")
    assert "group nobody has no dead letters (rocketlens dlq list" in done.err


def test_an_unfinished_job_is_resumed_before_another_is_made(run, rocketmq, tmp_path):
    with rocketmq.producer() as producer:
        for number in range(2):
            dead = Message("%DLQ%late", f"{number}")
            dead.put("RETRY_TOPIC", "Late")
            producer.send(dead)
    with rocketmq.admin() as admin:
        admin.create_topic("Late")
    job = tmp_path / "one.job"
    command = ("dlq", "redrive", "late", "--to", "original", "--namesrv", rocketmq.name_server)
    send = ("--send", "--reason", "mended")
    assert run(*command, *send, "--job", str(job)).code == 0
    # As it was before the second message.
    lines = job.read_bytes().splitlines(keepends=True)
    second = next(n for n, line in enumerate(lines) if b'"n":2,"sending"' in line)
    job.write_bytes(b"".join(lines[:second]))
    other = ("--job", str(tmp_path / "two.job"))
    done = run(*command, *send, *other)
    assert (done.code, "one.job" in done.err) == (2, True), done
    done = run(*command, *other)
    assert (done.code, done.out.count("would send"), "one.job" in done.err) == (0, 1, True), done
    done = run(*command, "--job", str(job))
    assert (done.code, done.out.count("would send")) == (0, 1), done
    assert "1 sent, 0 failed, 0 unknown, 1 left" in done.err
    done = run(*command, *send, "--job", str(job))
    assert (done.code, done.out.count("\tsent\t")) == (0, 1), done
