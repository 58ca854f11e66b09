"""What may have been meant, when nothing was found."""

import pytest


def test_the_name_of_a_topic_is_told_to_be_one(run, golden):
    done = run("find", "PayTopic", "--store", golden("5.5.0").store)
    assert done.code == 1
    assert "PayTopic is a topic: rocketlens find --topic PayTopic lists" in done.err


def test_keys_copied_together_are_told_apart(run, golden):
    done = run("find", "u15 order-42", "--store", golden("5.5.0").store)
    assert done.code == 1
    assert "search for one of u15, order-42" in done.err


def test_nothing_is_guessed_where_something_was_found_or_nothing_is_like_it(run, golden):
    store = golden("5.5.0").store
    for text in ("order-42", "no-such-key"):
        done = run("find", text, "--store", store)
        assert "is a topic" not in done.err
        assert "search for one of" not in done.err


@pytest.mark.parametrize("form", ["table", "jsonl", "json"])
def test_a_key_in_another_case_is_looked_up_and_told(run, golden, form):
    done = run("find", "K0", "--store", golden("5.5.0").store, "-o", form)
    assert done.code == 1
    assert "nothing has the key K0; k0 has 3 messages: case matters in keys" in done.err


def test_a_unique_key_in_small_letters_is_told(run, golden):
    sent = golden("5.5.0").sent[0]
    done = run("find", sent["msg_id"].lower(), "--store", golden("5.5.0").store)
    assert f"; {sent['msg_id']} has " in done.err


@pytest.mark.parametrize(
    "arguments",
    [("k0",), ("K0", "-t", "OrderTopic"), ("K0", "--kind", "offset-id"), ("K0 x",), ("12345",)],
)
def test_no_other_case_is_told_where_it_has_nothing_or_is_no_key(run, golden, arguments):
    done = run("find", *arguments, "--store", golden("5.5.0").store)
    assert "case matters" not in done.err


def test_no_other_case_is_looked_up_where_the_answer_is_incomplete(run, copy):
    sorted((copy / "commitlog").iterdir())[1].unlink()
    done = run("find", "K0", "--store", copy)
    assert done.code == 3
    assert "case matters" not in done.err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[:-1], "a digit missing ({} of {})"),
        (lambda text: text + "0", "a digit too many ({}, and not {})"),
        (lambda text: text.replace("0", "O"), "letters for digits (O for 0): search for {2}"),
    ],
    ids=["short", "long", "letters"],
)
@pytest.mark.parametrize("kind", ["msg_id", "offset_msg_id"])
def test_an_id_with_a_small_mistake_is_told_to_look_like_one(run, golden, kind, change, said):
    sent = golden("5.5.0").sent[0]
    text = change(sent[kind])
    done = run("find", text, "--store", golden("5.5.0").store)
    assert done.code == 1
    said = said.format(len(text), len(sent[kind]), sent[kind])
    assert f"this looks like a message id with {said}\n" in done.err


def test_a_key_is_not_told_to_look_like_an_id(run, golden):
    nearly = golden("5.5.0").sent[0]["msg_id"][:-1]
    done = run("find", "--key", nearly, "--store", golden("5.5.0").store)
    assert done.code == 1
    assert "looks like" not in done.err
