"""What is read for a query: never less than it needs."""

import duckdb
import pytest

from rocketlens.cli.sql.sql_plan import SqlPlan, plan_of
from rocketlens.errors import BadInput


@pytest.fixture(scope="module")
def planned():
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'").fetchall()

        def milliseconds(text):
            query = "SELECT epoch_ms(TRY_CAST(? AS TIMESTAMPTZ))"
            return connection.execute(query, [text]).fetchall()[0][0]

        def planned(query):
            found = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()[0][0]
            return plan_of(found, milliseconds)

        yield planned


ALL = SqlPlan(is_streamed=True, with_body=False)


@pytest.mark.parametrize(
    ("where", "narrowed"),
    [
        ("topic = 'A'", {"topics": {"A"}}),
        ("'A' = m.topic", {"topics": {"A"}}),
        ("topic IN ('A', 'B') AND topic <> 'B'", {"topics": {"A", "B"}}),
        ("topic = 'A' AND (topic = 'B' OR queue_id = 1)", {"topics": {"A"}}),
        ("store_timestamp_ms >= 5 AND store_timestamp_ms < 9", {"begin": 5, "end": 9}),
        ("3 <= store_timestamp_ms", {"begin": 3}),
        ("store_timestamp_ms BETWEEN 3 AND 9 AND store_timestamp_ms > 4", {"begin": 4, "end": 9}),
        ("store_timestamp_ms = 7", {"begin": 7, "end": 7}),
        ("store_time >= '2026-11-20'", {"begin": 1_795_132_800_000}),
        ("store_time < TIMESTAMP '2026-11-20 00:00:01'", {"end": 1_795_132_801_000}),
        ("store_time > TIMESTAMPTZ '2026-11-20 08:00+08'", {"begin": 1_795_132_800_000}),
        ("list_contains(keys, 'K')", {"key": "K"}),
        ("'K' = ANY(keys) AND topic = 'A'", {"key": "K", "topics": {"A"}}),
    ],
)
def test_conditions_narrow_what_is_read(planned, where, narrowed):
    plan = planned(f"SELECT count(*), queue_id FROM messages m WHERE {where} GROUP BY ALL")
    assert plan == ALL._replace(**narrowed)


@pytest.mark.parametrize(
    "where",
    [
        "topic = 'A' OR queue_id = 1",
        "NOT topic = 'A'",
        "topic <> 'A'",
        "topic LIKE 'A%'",
        "topic = 'A*'",
        "topic = tags",
        "lower(topic) = 'a'",
        "topic IN ('A', tags)",
        "store_timestamp_ms >= -5",
        "store_timestamp_ms >= 5.5",
        "store_timestamp_ms + 1 >= 5",
        "born_timestamp_ms >= 5",
        "store_time >= 'no time'",
        "list_contains(keys, tags)",
        "list_contains(['K'], tags)",
        "'K' <> ANY(keys)",
        "'K' = ALL(keys)",
    ],
)
def test_what_is_not_understood_narrows_nothing(planned, where):
    plan = planned(f"SELECT count(*) FROM messages WHERE {where}")
    assert plan._replace(is_streamed=True) in {ALL, SqlPlan(is_streamed=True)}


def test_a_name_of_the_result_is_no_column(planned):
    plan = planned("SELECT tags AS topic FROM messages WHERE topic = 'A'")
    assert plan == ALL


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM messages a JOIN messages b USING (topic) WHERE a.topic = 'A'",
        "SELECT * FROM (SELECT topic FROM messages) WHERE topic = 'A'",
        "WITH messages AS (SELECT 'A' AS topic) SELECT * FROM messages WHERE topic = 'A'",
        "SELECT 1 FROM messages WHERE topic = 'A' UNION ALL SELECT 2 FROM messages",
        "SELECT (SELECT count(*) FROM messages) FROM messages WHERE topic = 'A'",
    ],
)
def test_a_table_that_may_be_read_twice_is_kept_whole(planned, query):
    assert planned(query) == SqlPlan()


@pytest.mark.parametrize(
    ("columns", "with_body"),
    [
        ("topic, keys", False),
        ("count(*)", False),
        ("*", True),
        ("m.*", True),
        ("decode(BODY)", True),
        ("length(m.body)", True),
        ("m", True),
        ("COLUMNS('b.*')", True),
    ],
)
def test_bodies_are_read_where_they_are_used(planned, columns, with_body):
    assert planned(f"SELECT {columns} FROM messages m").with_body is with_body


def test_a_query_without_the_table_reads_nothing(planned):
    assert not planned("SELECT 1").uses_table


@pytest.mark.parametrize(
    "query", ["", "DROP TABLE x", "SELECT 1; SELECT 2", "SELEC", "COPY x TO 'y'"]
)
def test_only_one_select_is_run(planned, query):
    with pytest.raises(BadInput, match="one SELECT"):
        planned(query)
