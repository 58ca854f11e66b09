"""Topics by name, several, patterns, and what a wrong name may have meant."""

import pytest

from rocketlens.errors import BadInput, TopicNotFound, WrongType
from rocketlens.model.text.nearest import suggestion
from rocketlens.query.topic_choice import asked_topics, matching_topics, unknown_topic

KNOWN = ("PayTopic", "PayBack", "T22", "OrderTopic")


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (None, ()),
        ("PayTopic", ("PayTopic",)),
        ("PayTopic, T22,", ("PayTopic", "T22")),
        (["PayTopic", "T22,PayTopic"], ("PayTopic", "T22")),
    ],
)
def test_a_topic_can_be_one_or_several(given, names):
    assert asked_topics(given) == names


@pytest.mark.parametrize("given", [5, b"PayTopic", ["PayTopic", 5]])
def test_a_topic_that_is_no_text_is_refused_by_its_type(given):
    with pytest.raises(WrongType, match="topic must be a"):
        asked_topics(given)


@pytest.mark.parametrize("given", ["", " , ", [], [""]])
def test_an_empty_topic_is_refused_and_never_means_every_topic(given):
    with pytest.raises(BadInput, match="the topic is empty"):
        asked_topics(given)


def test_patterns_mean_all_topics_that_match():
    assert matching_topics(["Pay*", "T22"], KNOWN) == (["PayBack", "PayTopic", "T22"], {})
    assert matching_topics(["T2?"], KNOWN) == (["T22"], {})


def test_a_pattern_that_matches_nothing_has_its_error():
    topics, unknown = matching_topics(["Pya*", "T2?"], KNOWN)
    assert topics == ["T22"]
    with pytest.raises(TopicNotFound, match=r"no topic matches 'Pya\*'"):
        raise unknown["Pya*"]


def test_a_wrong_name_gets_the_topics_that_it_resembles():
    assert suggestion("PayTopc", KNOWN).startswith("; did you mean PayTopic")
    assert suggestion("paytopic", KNOWN).startswith("; did you mean PayTopic")
    assert suggestion("something-else", KNOWN) == ""
    assert str(unknown_topic("T23", KNOWN, "this store")) == (
        "this store has no topic 'T23'; did you mean T22?"
    )
