"""A store read as Arrow batches, without a session."""

import pytest

from rocketlens import read_batches
from rocketlens.errors import BadInput
from tests.support.synthetic import write_busy_log


@pytest.fixture
def busy_store(tmp_path):
    return tmp_path, write_busy_log(tmp_path)


def test_read_batches_takes_values_of_python_and_names_in_any_case(busy_store):
    store, written = busy_store
    asked = read_batches(
        store, TOPIC="Topic1", startingOffset=written[50].physical_offset, body=False
    )
    rows = [row for batch in asked for row in batch.to_pylist()]
    assert {(row["topic"], row["body"]) for row in rows} == {("Topic1", None)}
    assert len(rows) == 90


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topics": "A"}, "no option 'topics'; did you mean topic"),
        ({"path": "x"}, "no option 'path'"),
        ({"filterPushdown": True}, "option filterPushdown is not for read_batches"),
        ({"table": "index_entries"}, "option table is one of messages, damage"),
        ({"body": "maybe"}, "option body is true or false"),
    ],
)
def test_read_batches_refuses_options_at_once(busy_store, options, says):
    with pytest.raises(BadInput, match=says):
        read_batches(busy_store[0], **options)
