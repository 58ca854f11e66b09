"""What may have been meant, when nothing was found."""


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
