"""One flipped bit anywhere in an archive: an error of one line, or an answer that is right or says
that it is incomplete. Never another message, never one too few without saying so.
"""

import shutil
from random import Random

import pytest

import rocketlens
from rocketlens.archive.journal import ArchiveTables
from rocketlens.cli.doctor.doctor_sources import archive_checks
from rocketlens.errors import ArchiveError
from tests.support.archives import DAY_MS, archive_store
from tests.support.effort import sized
from tests.support.synthetic import START_MS, record, write_log

COUNT, DAYS = 90, 3
KINDS = {
    "messages": "messages/day=*/*.parquet",
    "keys": "message_keys/day=*/*.parquet",
    "journal": "journal/*.parquet",
    "commits": "*/_delta_log/*.json",
    "checkpoints": "*/_delta_log/*.checkpoint.parquet",
    "last checkpoint": "*/_delta_log/_last_checkpoint",
}


def sent(number):
    day_ms = DAY_MS * (number % DAYS)
    return record(
        number,
        store_timestamp_ms=START_MS + day_ms,
        body=b"body %d" % number,
        TAGS=f"T{number % 3}",
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """An archive of some batches, a part of whose commits is in checkpoints."""
    root = tmp_path_factory.mktemp("damage")
    for count in (COUNT // 3, 2 * COUNT // 3, COUNT):
        write_log(root / "store", map(sent, range(count)), 1 << 16)
        archive_store(root / "lake", root / "store")
        if count == 2 * COUNT // 3:
            tables = ArchiveTables(str(root / "lake"))
            for each in (tables.journal, tables.messages, tables.keys):
                each.create_checkpoint()
    return root / "lake"


def answers_of(lake):
    """Return what is found in several ways, each with whether it is complete."""
    with rocketlens.open_archive(lake) as archive:
        scans = [archive.scan(all_topics=True), archive.scan(tag="T1"), archive.scan(grep="[05]$")]
        answers = [(sorted(map(repr, each)), each.complete) for each in scans]
        found = [
            *(archive.find(f"key-{number}") for number in range(0, COUNT, 7)),
            *(archive.find(f"Topic/0/{number}") for number in range(0, COUNT, 17)),
            *(
                archive.find(topic="Topic", begin=START_MS + DAY_MS * day, end=at)
                for day in range(DAYS)
                for at in [START_MS + DAY_MS * day + 1000]
            ),
        ]
        return answers + [(sorted(map(repr, each)), each.complete) for each in found]


@pytest.mark.parametrize("kind", KINDS)
def test_one_flipped_bit_never_gives_another_message_or_one_less_without_saying_so(lake, kind):
    expected = answers_of(lake)
    assert all(is_complete and messages for messages, is_complete in expected)
    files = sorted(lake.glob(KINDS[kind]))
    noticed, errors = 0, list[str]()
    for seed in range(sized(5, 200)):
        chance = Random(f"{kind} {seed}")
        path = chance.choice(files)
        content = path.read_bytes()
        damaged = bytearray(content)
        damaged[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            answers = answers_of(lake)
        except ArchiveError as error:
            errors.append(str(error))
            continue
        finally:
            path.write_bytes(content)
        for (messages, is_complete), (all_messages, _) in zip(answers, expected, strict=True):
            assert set(messages) <= set(all_messages), seed
            assert messages == all_messages or not is_complete, seed
        noticed += answers != expected
    # A pointer to the newest checkpoint may be wrong: commits are listed.
    assert noticed or errors or kind == "last checkpoint"
    assert not any("\n" in each for each in errors)


@pytest.fixture
def own_lake(lake, tmp_path):
    return shutil.copytree(lake, tmp_path / "lake")


def newest_commit(lake, table):
    return max((lake / table / "_delta_log").glob("*.json"))


def test_bounds_in_a_delta_log_that_are_not_those_of_the_journal_are_an_error(own_lake):
    commit = newest_commit(own_lake, "messages")
    text = commit.read_text()
    begin = text.index("maxValues")
    at = text.index("queue_offset", begin) + len('queue_offset\\": ')
    assert text[at] in "678"
    commit.write_text(text[:at] + "6" + text[at + 1 :])
    with pytest.raises(ArchiveError, match=r"is damaged: it has another day, size or bounds of"):
        rocketlens.open_archive(own_lake)


def test_a_file_without_bounds_in_a_delta_log_is_an_error(own_lake):
    commit = newest_commit(own_lake, "message_keys")
    commit.write_text(commit.read_text().replace("minValues", "minValuez"))
    with pytest.raises(ArchiveError, match=r"is damaged: it has no min.key_hash of the file"):
        rocketlens.open_archive(own_lake)


@pytest.mark.parametrize("table", ["messages", "message_keys"])
def test_a_file_that_is_missing_from_a_delta_log_makes_answers_incomplete(own_lake, table):
    commit = newest_commit(own_lake, table)
    lines = commit.read_text().splitlines()
    added = next(each for each in lines if '"add"' in each)
    commit.write_text("\n".join(each for each in lines if each != added) + "\n")
    with rocketlens.open_archive(own_lake) as archive:
        answer = archive.find("no such key")
        assert not answer.complete
        assert f"{table} has " in answer.failures[0].error
        assert "its Delta log is damaged" in answer.failures[0].error
    problems = [each for each in archive_checks(str(own_lake)) if each.name == "table"]
    assert all("its Delta log is damaged" in each.text for each in problems)
    assert problems


def test_a_row_of_the_journal_that_was_changed_is_an_error(own_lake):
    tables = ArchiveTables(str(own_lake))
    tables.journal.update({"messages": "messages + 1"}, predicate="number = 2")
    with pytest.raises(ArchiveError, match="a row is damaged"):
        rocketlens.open_archive(own_lake)


def test_a_batch_that_is_missing_from_the_journal_is_an_error(own_lake):
    ArchiveTables(str(own_lake)).journal.delete("number = 2")
    with pytest.raises(
        ArchiveError, match="it does not have each batch of DefaultCluster/broker-a"
    ):
        rocketlens.open_archive(own_lake)


def test_a_journal_of_an_earlier_version_has_no_checksums_and_is_read(own_lake):
    tables = ArchiveTables(str(own_lake))
    tables.journal.update({"checksum": "NULL"})
    with rocketlens.open_archive(own_lake) as archive:
        assert len(list(archive.scan())) == COUNT
