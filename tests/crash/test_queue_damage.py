"""C-4: consume queues, checkpoint and abort, in any state, change no answer."""

import itertools
import random
import shutil
import struct

import pytest

import rocketlens
from rocketlens.errors import MessageNotFound
from tests.crash.asking import assert_right
from tests.support import made_stores
from tests.support.made_stores import flip, make_store, overwrite, some_messages

CHECKPOINTS = {
    "missing": None,
    "zero": bytes(4096),
    "year-2050": struct.pack(">qqq", *[2_524_608_000_000] * 3).ljust(4096, b"\0"),
    "garbage": random.Random(3).randbytes(4096),
}
every_index = pytest.mark.parametrize("with_index", [True, False], ids=["index", "no-index"])


def queue_files(made):
    return sorted((made.path / "consumequeue").rglob("0*0"))


def lose_entries(made):
    shutil.rmtree(made.path / "consumequeue")


def flip_entries(made):
    chance = random.Random(1)
    for path in queue_files(made):
        for _ in range(30):
            flip(path, chance.randrange(path.stat().st_size // 3), 1 << chance.randrange(8))


def punch_holes(made):
    for path in queue_files(made):
        overwrite(path, 200, bytes(600))


def keep_as_they_are(made):
    assert queue_files(made)


@pytest.mark.parametrize("with_abort", [True, False], ids=["abort", "closed"])
@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
@pytest.mark.parametrize("damage", [keep_as_they_are, lose_entries, flip_entries, punch_holes])
def test_queues_checkpoint_and_abort_in_any_state_change_no_answer(
    tmp_path, damage, checkpoint, with_abort
):
    made = make_store(tmp_path / "store", some_messages(120), segment_bytes=1 << 14)
    damage(made)
    if CHECKPOINTS[checkpoint] is not None:
        (made.path / "checkpoint").write_bytes(CHECKPOINTS[checkpoint])
    if with_abort:
        (made.path / "abort").write_text("4711")
    assert_right(made, step=3, topics=(None,), damaged=False)


@every_index
@pytest.mark.parametrize("seed", range(3))
def test_every_flipped_bit_of_a_queue_changes_no_answer(tmp_path, seed, with_index):
    made = make_store(tmp_path / "store", some_messages(80), index=(500, 1000))
    if not with_index:
        shutil.rmtree(made.path / "index")
    chance = random.Random(seed)
    for path in queue_files(made):
        sound = path.read_bytes()
        for _ in range(12):
            position = chance.randrange(30 * 20)
            flip(path, position, 1 << chance.randrange(8))
            topic, queue_id = path.parent.parent.name, int(path.parent.name)
            with rocketlens.open_store(made.path) as store:
                for record in made.records:
                    if (record.topic, record.queue_id) != (topic, queue_id):
                        continue
                    if abs(record.queue_offset - position // 20) > 1:
                        continue
                    message = store.query_by_queue_offset(topic, queue_id, record.queue_offset)
                    assert message.physical_offset == record.physical_offset
                    assert store.view_message(record.offset_msg_id) == message
                with pytest.raises(MessageNotFound):
                    store.query_by_queue_offset(topic, queue_id, 70)
            path.write_bytes(sound)


@pytest.mark.parametrize("size", [0, 1, 19, 20, 21, 399, 1000])
def test_queue_files_cut_anywhere_change_no_answer(tmp_path, size):
    made = make_store(tmp_path / "store", some_messages(150))
    for path in queue_files(made):
        with path.open("r+b") as file:
            file.truncate(size)
    assert_right(made, step=9)


def test_a_missing_queue_file_between_others_changes_no_answer(tmp_path):
    made = make_store(tmp_path / "store", some_messages(400), index=None)
    shutil.rmtree(made.path / "consumequeue")
    made.queue_entries = 20
    made_stores.write_queues(made, made.records)
    files = queue_files(made)
    assert len(files) > 20
    for path in files[1::3]:
        path.unlink()
    (files[0].parent / "notes").write_text("?")
    (files[0].parent / "00000000000000000007").write_bytes(bytes(400))
    assert_right(made, step=11)


def test_a_queue_flipped_below_the_logs_begin_is_not_taken_for_deleted(tmp_path):
    made = make_store(tmp_path / "store", some_messages(200), segment_bytes=1 << 13)
    made.segment_path(0).unlink()
    kept = [r for r in made.records if r.physical_offset >= 1 << 13]
    expected = made_stores.Made(made.path, kept, made.segment_bytes)
    for record, bit in itertools.product(kept[:8:2], (13, 14, 15)):
        path = made.path / "consumequeue" / record.topic / str(record.queue_id)
        (path,) = path.iterdir()
        sound = path.read_bytes()
        flip(path, 20 * record.queue_offset + 7 - bit // 8, 1 << bit % 8)
        with rocketlens.open_store(made.path) as store:
            place = (record.topic, record.queue_id, record.queue_offset)
            message = store.query_by_queue_offset(*place)
            assert message.physical_offset == record.physical_offset
        path.write_bytes(sound)
    assert_right(expected, step=9)


def test_rolled_back_records_are_not_at_their_claimed_queue_offset(tmp_path):
    messages = [
        made_stores.replace(sent, sys_flag=(0, 0x4, 0x8, 0xC)[n % 4])
        for n, sent in enumerate(some_messages(40, topics=1))
    ]
    made = make_store(tmp_path / "store", messages, with_queues=False)
    with rocketlens.open_store(made.path) as store:
        for record in made.records:
            place = record.topic, record.queue_id, record.queue_offset
            if record.sys_flag in (0x4, 0xC):
                with pytest.raises(MessageNotFound):
                    store.query_by_queue_offset(*place)
            else:
                assert store.query_by_queue_offset(*place).body == record.body


def test_a_lite_queue_gives_the_messages_that_were_dispatched_to_it(tmp_path):
    lite = "%LMQ%client-7"
    messages = [
        made_stores.replace(sent, named=(("INNER_MULTI_DISPATCH", f"%LMQ%x,{lite}"),))
        if n % 4 == 1
        else sent
        for n, sent in enumerate(some_messages(20))
    ]
    made = make_store(tmp_path / "store", messages)
    chosen = made.records[1::4]
    directory = made.path / "consumequeue" / lite / "0"
    directory.mkdir(parents=True)
    entries = [made_stores.QUEUE_ENTRY.pack(r.physical_offset, r.total_size, 0) for r in chosen]
    wrong = made_stores.QUEUE_ENTRY.pack(0, made.records[0].total_size, 0)
    (directory / f"{0:020d}").write_bytes(b"".join([*entries, wrong]).ljust(2000, b"\0"))
    with rocketlens.open_store(made.path) as store:
        for n, record in enumerate(chosen):
            message = store.query_by_queue_offset(lite, 0, n)
            assert message.physical_offset == record.physical_offset
            assert store.find(f"{lite}/0/{n}").messages == (message,)
        with pytest.raises(MessageNotFound):
            store.query_by_queue_offset(lite, 0, len(chosen))


def test_without_its_queue_a_lite_message_is_found_by_the_offset_it_claims(tmp_path):
    lite = "%LMQ%client-7"
    messages = [
        made_stores.replace(
            sent, named=(("INNER_MULTI_DISPATCH", lite), ("INNER_MULTI_QUEUE_OFFSET", str(n)))
        )
        for n, sent in enumerate(some_messages(9))
    ]
    made = make_store(tmp_path / "store", messages)
    with rocketlens.open_store(made.path) as store:
        for n, record in enumerate(made.records):
            assert store.query_by_queue_offset(lite, 0, n).body == record.body
