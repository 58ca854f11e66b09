"""A store directory and a cluster can be asked the same."""

import pytest

from rocketlens.client.mq_admin import MQAdmin
from rocketlens.model.answer import SourceKind
from rocketlens.query.source import Source
from rocketlens.query.store_reader import StoreReader
from rocketlens.query.store_source import StoreSource
from rocketlens.query.threaded_source import ThreadedSource


def test_a_store_and_a_cluster_are_sources(made):
    reader = StoreReader(made.path)
    store, cluster = ThreadedSource(StoreSource(reader)), MQAdmin("127.0.0.1:9876").source
    for source, kind, name in (
        (store, SourceKind.COMMIT_LOG, str(made.path)),
        (cluster, SourceKind.BROKER, "127.0.0.1:9876"),
    ):
        assert isinstance(source, Source)
        assert (source.kind, source.name) == (kind, name)
    reader.close()


@pytest.mark.parametrize("other", [object(), "store", None])
def test_what_cannot_find_is_not_a_source(other):
    assert not isinstance(other, Source)
