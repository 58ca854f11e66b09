"""The API: answers with their coverage, errors of one shape, pages by a cursor, events."""

import json
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest

from rocketlens import limits
from rocketlens.console.message.look_up import MessageAddress
from rocketlens.console.pages import MAX_FORM_FIELDS, failure_of, pairs_in
from rocketlens.console.sources.sources import message_path
from rocketlens.errors import AnswerIncomplete, BadInput, MessageNotFound, WrongUse
from rocketlens.model.answer import Answer, Coverage, SourceKind, SourceState
from tests.support.console_client import answer, answers, cluster_at, store_at
from tests.support.made_stores import NOW_MS, Sent, make_store


@pytest.fixture
def orders(tmp_path):
    sent = [
        Sent(keys=f"all ORDER-{n}", body=b'{"n":%d}' % n, store_timestamp_ms=NOW_MS + n // 3)
        for n in range(50)
    ]
    return make_store(tmp_path / "orders", sent)


def events_of(text):
    """Yield the name and the value of each event."""
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        content = "\n".join(line.removeprefix("data: ") for line in lines[1:])
        yield lines[0].removeprefix("event: "), json.loads(content)


def test_a_key_is_found_and_the_answer_says_what_was_searched(orders):
    found = answer("/api/search?q=ORDER-7", store_at(orders.path, "orders"))
    assert found.status_code == 200
    value = found.json()
    assert (value["complete"], value["truncated"], value["next_cursor"]) == (True, False, None)
    (row,) = value["messages"]
    assert (row["keys"], row["source"]) == (["all", "ORDER-7"], "orders")
    assert row["path"].startswith("/m/orders/Orders/")
    assert value["coverage"]
    assert not any(each["is_failure"] for each in value["coverage"])


@pytest.mark.parametrize("asked", ["q=all", "topic=Orders", "q=all&kind=key&until=now"])
def test_pages_by_cursor_have_every_message_once_the_newest_first(orders, asked):
    seen, cursor = [], ""
    for _ in range(9):
        path = f"/api/search?{asked}&max=7&cursor={cursor}"
        value = answer(path, store_at(orders.path)).json()
        assert value["complete"]
        seen += [json.loads(row["preview"])["n"] for row in value["messages"]]
        cursor = value["next_cursor"] or ""
        if not cursor:
            break
    assert seen == list(reversed(range(50)))


def test_a_source_that_fails_makes_the_answer_incomplete_and_is_named(orders):
    # Port 1 has no name server.
    value = answer(
        "/api/search?q=ORDER-7", store_at(orders.path), cluster_at("127.0.0.1:1", "gone")
    ).json()
    assert not value["complete"]
    assert len(value["messages"]) == 1
    (failed,) = [each for each in value["coverage"] if each["is_failure"]]
    assert "127.0.0.1:1" in failed["source"]
    assert failed["error"]


def test_nothing_found_where_a_source_failed_is_no_proof(orders):
    found = answer("/api/search?q=NOPE", store_at(orders.path), cluster_at("127.0.0.1:1"))
    assert found.json()["complete"] is False


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/search", 400, "bad_input"),
        ("/api/search?q=x&kind=nonsense", 400, "bad_input"),
        ("/api/search?q=x&max=0", 400, "bad_input"),
        ("/api/search?q=x&max=9999999999999999999999", 400, "bad_input"),
        ("/api/search?q=x&cursor=nonsense", 400, "bad_input"),
        ("/api/search?q=x&since=nonsense", 400, "bad_input"),
        ("/api/search?q=x&zone=Mars", 400, "bad_input"),
        ("/api/search?q=x&source=nonsense", 400, "bad_input"),
        ("/api/search?q=nonsense&kind=offset-id", 400, "bad_input"),
        ("/api/search?topic=Ordrs", 404, "no_topic"),
        ("/api/message/orders/Orders/-/0/999", 404, "not_found"),
        ("/api/message/orders/Orders/other-broker/0/1", 404, "not_found"),
        ("/api/message/orders/Orders/-/x/1", 400, "bad_input"),
        ("/api/message/orders/Orders/-/0/-1", 400, "bad_input"),
        ("/api/message/nonsense/Orders/-/0/1", 400, "bad_input"),
        ("/api/message/orders/Orders/-/0/1?form=nonsense", 400, "bad_input"),
        ("/api/message/orders/..%2F..%2Fetc/-/0/1", 404, "no_page"),
        ("/api/story/orders/Orders/-/0/999", 404, "not_found"),
        ("/api/topics?source=nonsense", 400, "bad_input"),
        ("/api/nonsense", 404, "no_page"),
    ],
)
def test_errors_have_one_shape_and_a_status(orders, path, status, code):
    found = answer(path, store_at(orders.path))
    assert (found.status_code, found.json()["error"]["code"]) == (status, code)
    assert found.json()["error"]["message"]


def test_a_message_is_shown_in_full(orders):
    (detail, body, story) = answers(
        [
            "/api/message/orders/Orders/-/0/7",
            "/api/message/orders/Orders/-/0/7/body",
            "/api/story/orders/Orders/-/0/7",
        ],
        store_at(orders.path),
    )
    value = detail.json()
    assert value["body"]["content"] == '{"n":7}'
    assert value["body"]["format"] == "json"
    assert [each["name"] for each in value["ids"]] == ["offset_msg_id"]
    assert body.content == b'{"n":7}'
    assert body.headers["content-type"] == "application/octet-stream"
    assert body.headers["content-disposition"].startswith("attachment")
    assert story.json()["found"]
    assert "stored" in [each["kind"] for each in story.json()["events"]]


def test_results_stream_and_end_with_the_answer(orders):
    found = answer("/api/search/stream?q=all&max=5", store_at(orders.path))
    assert found.headers["content-type"].startswith("text/event-stream")
    events = list(events_of(found.text))
    name, value = events[-1]
    assert name == "answer"
    assert [json.loads(row["preview"])["n"] for row in value["messages"]] == [49, 48, 47, 46, 45]
    assert {name for name, _ in events[:-1]} <= {"found"}
    streamed = [row for _, each in events[:-1] for row in each["rows"]]
    assert len(streamed) <= 5


def test_an_error_in_a_stream_is_an_event(orders):
    found = answer("/api/search/stream?topic=Ordrs", store_at(orders.path))
    *_, (name, value) = events_of(found.text)
    assert (name, value["error"]["code"]) == ("error", "no_topic")


def test_topics_groups_and_sources_are_listed(orders):
    topics, groups, sources = answers(
        ["/api/topics", "/api/groups", "/api/sources"], store_at(orders.path, "orders")
    )
    assert topics.json()["complete"]
    assert [(each["name"], each["messages"]) for each in topics.json()["topics"]] == [
        ("Orders", 50)
    ]
    assert groups.json()["groups"] == []
    (source,) = sources.json()["sources"]
    assert (source["name"], source["kind"]) == ("orders", "store")


def test_a_cluster_that_is_gone_is_a_failure_and_not_an_empty_list():
    topics, groups = answers(["/api/topics", "/api/groups"], cluster_at("127.0.0.1:1"))
    for found in (topics, groups):
        assert found.json()["complete"] is False
        assert found.json()["coverage"][0]["is_failure"]


def test_every_operation_is_in_openapi_with_its_answers(orders):
    described = answer("/api/openapi.json", store_at(orders.path)).json()
    paths = described["paths"]
    assert {"/api/search", "/api/search/stream", "/api/topics", "/api/groups"} <= paths.keys()
    assert all(path.startswith("/api/") for path in paths)
    for operations in paths.values():
        for operation in operations.values():
            assert {"200", "400", "404", "502"} <= operation["responses"].keys()
            assert "422" not in operation["responses"]
            assert operation["description"]
    for name in ("SearchAnswer", "MessageDetail", "ErrorAnswer"):
        assert name in described["components"]["schemas"]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (BadInput("x"), 400, "bad_input"),
        (MessageNotFound("x"), 404, "not_found"),
        (WrongUse("x"), 502, "failed"),
        (OSError(5, "x"), 502, "failed"),
    ],
)
def test_errors_as_answers(error, status, code):
    failure = failure_of(error)
    assert (failure.status, failure.answer.error.code) == (status, code)


def test_an_incomplete_answer_keeps_its_coverage():
    coverage = Coverage("b", SourceKind.BROKER, SourceState.FAILED, None, "timeout")
    failure = failure_of(AnswerIncomplete("x", Answer("", (), (coverage,))))
    assert (failure.status, failure.answer.error.coverage[0].error) == (502, "timeout")


def test_a_mistake_of_the_program_is_no_failure_of_a_source():
    assert failure_of(KeyError("x")) is None


def test_a_value_that_is_too_long_is_refused(orders):
    long = "x" * (limits.MAX_CONSOLE_TEXT + 1)
    assert answer(f"/api/search?q={long}", store_at(orders.path)).status_code == 400


def asked(path="/api/search", **values):
    """Give the path of a search."""
    return f"{path}?{urlencode(values)}"


def test_pages_of_a_filtered_search_have_each_match_once(orders):
    seen, cursor = [], ""
    for _ in range(9):
        path = asked(topic="Orders", where="body.$.n <> 8", grep="8|4", max=3, cursor=cursor)
        value = answer(path, store_at(orders.path)).json()
        seen += [json.loads(row["preview"])["n"] for row in value["messages"]]
        cursor = value["next_cursor"] or ""
        if not cursor:
            break
    expected = [n for n in range(50) if n != 8 and set(str(n)) & {"4", "8"}]
    assert seen == list(reversed(expected))


def test_the_stream_of_a_filtered_search_has_the_matches_only(orders):
    path = asked("/api/search/stream", topic="Orders", where="body.$.n = 7")
    events = list(events_of(answer(path, store_at(orders.path)).text))
    rows = [row for name, value in events if name == "found" for row in value["rows"]]
    (last,) = [value for name, value in events if name == "answer"]
    assert {row["preview"] for row in (*rows, *last["messages"])} == {'{"n":7}'}


@pytest.mark.parametrize("path", ["/api/search", "/api/search/stream"])
def test_a_wrong_filter_is_refused_with_where_it_is_wrong(orders, path):
    where, grep = (
        answer(asked(path, topic="Orders", **wrong), store_at(orders.path))
        for wrong in ({"where": "body.$.n > 1 AND"}, {"grep": "a(b"})
    )
    assert (where.status_code, grep.status_code) == (400, 400)
    assert "character 17" in where.json()["error"]["message"]
    assert "missing )" in grep.json()["error"]["message"]


def test_filters_are_described_in_openapi(orders):
    described = answer("/api/openapi.json", store_at(orders.path)).json()
    for path, method in (
        ("/api/search", "get"),
        ("/api/search/stream", "get"),
        ("/api/resend/search", "post"),
    ):
        known = {each["name"]: each for each in described["paths"][path][method]["parameters"]}
        assert "SQL92" in known["where"]["description"]
        assert "RE2" in known["grep"]["description"]


@pytest.mark.parametrize("topic", ["Orders", "%RETRY%g", "a/b", "a b?c#d", "订单", "..", "%2F"])
def test_the_path_of_a_message_is_read_as_it_was_made(topic):
    message = SimpleNamespace(topic=topic, queue_id=3, queue_offset=limits.MAX_LONG)
    path = message_path("s-1", message, "10.0.0.9:10911")
    expected = MessageAddress(
        source="s-1", topic=topic, broker="10.0.0.9:10911", queue_id=3, queue_offset=limits.MAX_LONG
    )
    assert MessageAddress.of_path(path) == expected


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/m",
        "/m/s/t/b/0",
        "/m/s/t/b/0/0/body",
        "/m/s//b/0/0",
        "/m/s/t/b/-1/0",
        "/m/s/t/b/0/x",
        "/m/s/t/b/0/٣",
        f"/m/s/t/b/{limits.MAX_INT + 1}/0",
        f"/m/s/t/b/0/{limits.MAX_LONG + 1}",
        f"/m/s/{'t' * (limits.MAX_TOPIC_CHARACTERS + 1)}/b/0/0",
        "//evil.example/m/s/t/b/0/0",
        "/m/s/t/b/0/0\n",
    ],
)
def test_another_path_is_no_address_of_a_message(path):
    with pytest.raises(BadInput, match="is not the address of a message's page"):
        MessageAddress.of_path(path)


def test_fields_are_read_in_their_order_and_a_name_can_be_there_several_times():
    found = pairs_in(b"a=1&b=%E4%B8%AD&a=&c&a=%2F1")
    assert found == [("a", "1"), ("b", "中"), ("a", ""), ("c", ""), ("a", "/1")]
    assert pairs_in(b"") == []


@pytest.mark.parametrize(
    "content", [b"a=%ff", b"\xff", b"&".join([b"a=1"] * (MAX_FORM_FIELDS + 1))]
)
def test_what_is_no_form_is_refused(content):
    with pytest.raises(BadInput):
        pairs_in(content)
