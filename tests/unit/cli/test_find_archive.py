"""``rocketlens find --archive``: an archive alone, and together with a store."""

import json

import pytest

from rocketlens.terminal.progress import SearchProgress
from tests.support.archives import archive_of_days, archive_store


@pytest.fixture(scope="module")
def lake(golden, tmp_path_factory):
    directory = tmp_path_factory.mktemp("lake")
    archive_store(directory, golden("4.9.7").store)
    return directory


@pytest.fixture(scope="module")
def sent(golden):
    return next(each for each in golden("4.9.7").sent if (each["keys"] or "").startswith("batch-"))


def test_what_an_archive_holds_is_said(run, lake):
    done = run("find", "no such key", "--archive", lake)
    assert done.code == 1
    assert "nothing found, COMPLETE: searched DefaultCluster/broker-a, 20" in done.err


def test_ctrl_c_ends_a_search_and_what_was_found_is_not_said_to_be_all(run, tmp_path, monkeypatch):
    lake = archive_of_days(tmp_path)
    report = SearchProgress.report

    def press(progress, *arguments):
        progress.interrupt()
        return report(progress, *arguments)

    monkeypatch.setattr(SearchProgress, "report", press)
    done = run("find", "-t", "Topic", "--archive", lake, "-o", "json")
    answer = json.loads(done.out)
    assert (done.code, answer["complete"]) == (130, False)
    assert 0 < len(answer["messages"]) < 120
    assert "the search was interrupted" in done.out


def test_messages_of_a_topic_come_as_they_are_read(run, lake, sent):
    done = run("find", "-t", sent["topic"], "--archive", lake, "-o", "jsonl")
    assert done.code == 0, done.err
    assert sent["offset_msg_id"] in done.out
    cut = run("find", "-t", sent["topic"], "--max", "3", "--archive", lake, "-o", "jsonl")
    assert len(cut.out.splitlines()) == 3


def test_an_archive_and_a_store_are_one_answer(run, golden, lake, sent):
    store = golden("4.9.7").store
    what = ("find", "-t", sent["topic"], "-o", "jsonl", "--store", store)
    alone = run(*what)
    both = run(*what, "--archive", lake)
    assert both.code == 0, both.err
    messages = [json.loads(line) for line in both.out.splitlines()]
    assert {each.pop("sources") for each in messages} == {f"{lake}, {store}"}
    expected = [json.loads(line) for line in alone.out.splitlines()]
    # Only an archive knows whose its messages are.
    for each in (*messages, *expected):
        del each["cluster"], each["broker"]
    assert sorted(map(str, messages)) == sorted(map(str, expected))


def test_a_store_answers_where_the_archive_beside_it_cannot_be_opened(run, golden, tmp_path, sent):
    beside = ("--archive", tmp_path / "gone", "--store", golden("4.9.7").store)
    found = run("find", sent["keys"], *beside, "-o", "json")
    assert found.code == 3, found.err
    (message,) = json.loads(found.out)["messages"]
    assert message["offset_msg_id"] == sent["offset_msg_id"]
    failed = [each["error"] for each in json.loads(found.out)["coverage"] if each["error"]]
    assert any("gone is not an archive" in each for each in failed)
    told = run("story", sent["offset_msg_id"], *beside)
    assert told.code == 3, told.err
    assert sent["topic"] in told.out
    assert "gone is not an archive" in told.out + told.err
    alone = run("find", sent["keys"], "--archive", tmp_path / "gone")
    assert (alone.code, alone.out) == (2, "")


def test_sources_that_are_searched_together_say_from_when_to_when_they_hold_messages(
    run, golden, lake, sent
):
    store = golden("4.9.7").store
    both = run("find", sent["keys"], "--archive", lake, "--store", store, "-o", "json")
    dated = {
        each["kind"]: each["held_from_ms"]
        for each in json.loads(both.out)["coverage"]
        if each["held_from_ms"] is not None
    }
    assert set(dated) == {"archive", "commit_log"}
    assert dated["archive"] == dated["commit_log"]
    printed = run("find", sent["keys"], "--archive", lake, "--store", store).err
    assert f"{store}: the log: from 20" in printed or f"{store}: " in printed
    assert " on\n" in printed
    assert "gap" not in printed


def test_what_is_not_an_archive_is_said(run, tmp_path):
    done = run("find", "K", "--archive", tmp_path)
    assert done.code == 2
    assert "is not an archive" in done.err


def test_pages_go_on_behind_the_last_message(run, lake, sent):
    what = ("find", "-t", sent["topic"], "--archive", lake, "-o", "jsonl")
    whole = run(*what).out.splitlines()
    printed, cursor = [], "begin"
    while cursor:
        done = run(*what, "--max", "29", "--cursor", cursor)
        assert done.code == 0 or not done.out, done.err
        printed += done.out.splitlines()
        _, _, cursor = done.err.strip().partition("to go on: --cursor ")
    assert printed == whole
    page = json.loads(run(*what[:-1], "json", "--max", "3", "--cursor", "begin").out)
    assert (len(page["messages"]), page["complete"]) == (3, True)
    following = run(*what, "--max", "2", "--cursor", page["cursor"])
    assert following.out.splitlines() == whole[3:5]


def test_a_key_is_looked_up_in_parts(run, lake, sent):
    what = ("find", sent["keys"], "--archive", lake, "-o", "jsonl")
    whole = run(*what).out.splitlines()
    first = run(*what, "--max", "1", "--cursor", "begin")
    assert first.out.splitlines() == whole[:1]
    _, _, cursor = first.err.strip().partition("to go on: --cursor ")
    rest = run(*what, "--cursor", cursor) if cursor else run(*what, "--max", "1")
    assert rest.out.splitlines() == (whole[1:] if cursor else whole)
    assert "to go on" not in rest.err


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("-t", "T", "--store", "x"), "--cursor is for one archive"),
        (("ORDER-1", "-o", "json"), "needs --max N"),
        (("-t", "T", "-o", "json"), "needs --max N"),
    ],
)
def test_a_cursor_is_refused_where_there_are_no_pages(run, lake, more, why):
    done = run("find", *more, "--archive", lake, "--cursor", "begin")
    assert done.code == 2
    assert why in done.err
