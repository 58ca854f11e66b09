"""Options of the data source that would be misunderstood are refused, with what was meant."""

import shutil

import pytest

from rocketlens.bulk.options import OPTIONS
from rocketlens.errors import BadInput
from tests.support.synthetic import record, write_log


def batch(store, **options):
    from rocketlens.pipeline.source import RocketMQReader

    return RocketMQReader({"store": str(store), **options})


def stream(store, **options):
    from rocketlens.pipeline.stream import RocketMQStreamReader

    return RocketMQStreamReader({"store": str(store), **options})


@pytest.mark.parametrize("make", [batch, stream])
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("topics", "topic"),
        ("maxPartitionByte", "maxPartitionBytes"),
        ("check_crc", "checkCrc"),
        ("failondatalos", "failOnDataLoss"),
    ],
)
def test_an_option_that_is_none_is_refused_with_the_one_that_was_meant(make, tmp_path, name, meant):
    with pytest.raises(BadInput, match=rf"no option '{name}'; did you mean {meant}\? \(options: "):
        make(tmp_path, **{name: "x"})


@pytest.mark.parametrize("make", [batch, stream])
def test_an_option_like_no_other_is_refused_with_all_there_are(make, tmp_path):
    with pytest.raises(BadInput, match=r"no option 'qwertz' \(options: store, brokerConf, topic, "):
        make(tmp_path, qwertz="x")


def test_options_of_streams_and_of_batches_are_told_apart(tmp_path):
    with pytest.raises(BadInput, match="maxBytesPerTrigger is not for batch reads"):
        batch(tmp_path, maxBytesPerTrigger="5")
    with pytest.raises(BadInput, match=r"maxOffsetsPerTrigger is not for batch reads$"):
        batch(tmp_path, maxOffsetsPerTrigger="5")
    with pytest.raises(BadInput, match=r"not for streams; did you mean maxBytesPerTrigger\?$"):
        stream(tmp_path, maxOffsetsPerTrigger="5")
    with pytest.raises(BadInput, match=r"namesrv is not for streams$"):
        stream(tmp_path, namesrv="a:1")


@pytest.mark.parametrize(("make", "reader"), [(batch, "batch reads"), (stream, "streams")])
def test_every_option_of_the_table_is_taken_with_its_default(make, reader, tmp_path):
    options = [option for option in OPTIONS if reader in option.readers]
    assert len(options) > 10
    make(tmp_path, **{option.name: option.default for option in options if option.default})


@pytest.fixture(scope="module")
def store(golden, tmp_path_factory):
    return shutil.copytree(golden("5.5.0").store, tmp_path_factory.mktemp("store") / "store")


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        ("PayTopc", "has no topic 'PayTopc'; did you mean PayTopic"),
        ("paytopic", "has no topic 'paytopic'; did you mean PayTopic"),
        ("PayTopic,NoSuchThing", r"has no topic 'NoSuchThing' .for messages of a deleted topic"),
        ("Zzz*", r"has no topic that matches 'Zzz\*'"),
        (" , ", "the topic is empty"),
    ],
)
def test_a_topic_that_the_store_does_not_have_is_refused(store, topic, says):
    with pytest.raises(BadInput, match=says):
        batch(store, topic=topic).partitions()
    with pytest.raises(BadInput, match=says):
        stream(store, topic=topic).initialOffset()


def topics_of(reader):
    batches = (one for part in reader.partitions() for one in reader.read(part))
    return {topic for one in batches for topic in one.column("topic").to_pylist()}


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("PayTopic", {"PayTopic"}),
        ("PayTopic, T22", {"PayTopic", "T22"}),
        ("Pay*", {"PayTopic"}),
        ("T2?,PayTopic", {"PayTopic", "T22"}),
    ],
)
def test_several_topics_and_patterns_may_be_asked_for(store, topic, expected):
    assert topics_of(batch(store, topic=topic)) == expected


def test_a_topic_of_the_log_alone_can_be_asked_for(store, tmp_path):
    write_log(tmp_path, [record(0, topic="Alone"), record(1, topic="Other")], 1 << 16)
    assert topics_of(batch(tmp_path, topic="Alone")) == {"Alone"}
    assert topics_of(batch(store, topic="NoSuch", allowUnknownTopic="true")) == set()
