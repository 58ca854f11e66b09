"""The story of a key that several messages have, on a page of its own, the failed ones first."""

from tests.support.console_client import answer, store_at
from tests.unit.conftest import NOON_MS

KEY = "order-4711"


def record(topic, unique_key, offset=0, after_ms=0, **more):
    return {
        "topic": topic,
        "queue_offset": offset,
        "store_timestamp_ms": NOON_MS + after_ms,
        "properties": {"KEYS": KEY, "UNIQ_KEY": unique_key, **more},
    }


def store_of(write_store):
    dead = {"RETRY_TOPIC": "payments", "CONSUME_FAILURE": "billing 2 pod-7 OutOfStock: none left"}
    path = write_store(
        record("orders", "U1"),
        record("payments", "U2", after_ms=5),
        {**record("%DLQ%billing", "U2", after_ms=9, **dead), "reconsume_times": 3},
    )
    return store_at(path, "s")


def test_a_search_by_key_links_to_the_story_of_all_its_messages(write_store):
    source = store_of(write_store)
    page = answer(f"/search?q={KEY}", source).text
    assert 'href="/story?q=order-4711&amp;source=s"' in page
    assert "/story?" not in answer("/search?q=U1", source).text
    told = answer(f"/story?q={KEY}&source=s", source)
    assert told.status_code == 200
    assert "payments/0/0 is a dead letter of billing" in told.text
    assert told.text.index("payments 0/0") < told.text.index("orders 0/0")
    assert "OutOfStock: none left" in told.text


def test_programs_get_the_same(write_store):
    source = store_of(write_store)
    value = answer(f"/api/story?q={KEY}&source=s", source).json()
    assert value["summary"].startswith(f"{KEY}: 2 messages; payments/0/0 is a dead letter of")
    assert "OutOfStock: none left" in value["summary"]
    assert [each["message"]["topic"] for each in value["told"]] == ["payments", "orders"]
    assert value["others"] == []
    nothing = answer("/api/story?q=nowhere&source=s", source).json()
    assert (nothing["told"], nothing["summary"]) == ([], "")
    assert answer("/api/story?topic=orders&source=s", source).status_code == 400
