"""``rocketlens sql``, and what is read for a query: never less than it needs."""

import csv
import importlib
import io
import json
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from rocketlens import Message, open_store
from rocketlens.cli.sql import sql
from rocketlens.cli.sql.sql_plan import SqlLimit, SqlPlan, plan_of
from rocketlens.client.connect import queue_puller
from rocketlens.client.connect.queue_puller import Pulled
from rocketlens.errors import BadInput
from rocketlens.model import arrow
from rocketlens.model.fields import COLUMNS
from rocketlens.model.installation import install_command
from rocketlens.testing import cluster


@pytest.fixture
def store(golden):
    return golden("5.5.0").store


def rows(run, store, query, *options, code=0):
    done = run("sql", query, "--store", store, "-o", "json", *options)
    assert done.code == code, done.err
    return json.loads(done.out)


def test_a_store_is_a_table(run, store):
    with open_store(store) as opened:
        messages = list(opened.scan(all_topics=True))
    counted = rows(run, store, "SELECT topic, count(*) n FROM messages GROUP BY 1 ORDER BY 1")
    topics = [each.topic for each in messages]
    assert counted == [{"topic": one, "n": topics.count(one)} for one in sorted({*topics})]


QUERIES = [
    "SELECT physical_offset FROM messages WHERE topic = 'PayTopic' AND octet_length(body) > 100",
    "SELECT physical_offset FROM messages WHERE 'order-42' = ANY(keys)",
    "SELECT physical_offset FROM messages WHERE list_contains(keys, 'order-42') AND queue_id = 3",
    "SELECT physical_offset FROM messages WHERE store_time >= '2026-11-21 02:40:40+00'",
    "SELECT physical_offset FROM messages WHERE topic IN ('PayTopic', 'OrderTopic') AND tags = 'A'",
    "SELECT physical_offset FROM messages a SEMI JOIN messages b USING (msg_id) WHERE tags < 'B'",
]


@pytest.mark.parametrize("query", QUERIES)
def test_what_is_left_out_of_reading_changes_no_answer(run, store, query):
    import duckdb

    with open_store(store) as opened, duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'").fetchall()
        connection.register("messages", opened.scan(all_topics=True).to_arrow())
        expected = sorted(connection.execute(query).fetchall())
    assert expected
    found = [(each["physical_offset"],) for each in rows(run, store, query)]
    assert sorted(found) == expected


def test_options_narrow_what_is_read_by_its_content(run, write_store):
    found = write_store(
        *({"body": b'{"a": %d}' % number, "properties": {"KEYS": "k"}} for number in range(4))
    )
    query = "SELECT queue_offset FROM messages ORDER BY 1"
    expected = [{"queue_offset": 2}, {"queue_offset": 3}]
    assert rows(run, found, query, "--where", "body.$.a > 1") == expected
    assert rows(run, found, query, "--where", "key = 'k' AND body.$.a > 1") == expected
    assert rows(run, found, query, "--grep", "a.: [23]", "-k", "k") == expected


def test_options_narrow_what_is_read(run, store):
    query = "SELECT DISTINCT topic FROM messages ORDER BY 1"
    assert rows(run, store, query, "-t", "PayTopic,OrderTopic") == [
        {"topic": "OrderTopic"},
        {"topic": "PayTopic"},
    ]
    assert rows(run, store, query, "--until", "2000-01-01", code=1) == []


def test_a_query_of_other_times_than_the_options_has_no_rows(run, store):
    query = "SELECT count(*) n FROM messages WHERE store_time >= '2001-01-01'"
    assert rows(run, store, query, "--until", "2000-01-01") == [{"n": 0}]


def test_values_are_shown_as_what_they_are(run, write_store):
    store = write_store(
        {"properties": {"KEYS": "a b", "city": "=1"}, "body": b"=cmd()"}, {"body": b"\xff"}
    )
    query = "SELECT body, keys, properties['city'] city, store_time FROM messages"
    first, second = rows(run, store, query)
    assert (first["body"], first["keys"], first["city"]) == ("=cmd()", ["a", "b"], "=1")
    assert first["store_time"].endswith("+00:00")
    assert second["body"] == {"base64": "/w=="}
    done = run("sql", "SELECT body FROM messages", "--store", store, "-o", "csv")
    assert list(csv.reader(io.StringIO(done.out))) == [["body"], ["'=cmd()"], ["0xff"]]
    done = run("sql", "SELECT body, 1 n FROM messages", "--store", store)
    assert done.out == "body\tn\n=cmd()\t1\n0xff\t1\n"
    done = run("sql", "SELECT properties FROM messages", "--store", store, "-o", "jsonl")
    assert json.loads(done.out.splitlines()[0]) == {"properties": {"KEYS": "a b", "city": "=1"}}


def test_a_result_can_be_a_parquet_file(run, store, tmp_path):
    path = tmp_path / "r.parquet"
    done = run("sql", "SELECT 1 a FROM messages", "--store", store, "-o", "parquet", "--to", path)
    assert done.code == 0, done.err
    assert pq.read_table(path).column_names == ["a"]
    assert [each.name for each in tmp_path.iterdir()] == ["r.parquet"]


def test_damage_makes_the_answer_incomplete_and_a_limit_does_not(run, damaged, store):
    assert rows(run, damaged, "SELECT count(*) n FROM messages", code=3) == [{"n": 2}]
    assert len(rows(run, store, "SELECT topic FROM messages LIMIT 3")) == 3


def test_a_cluster_is_a_table(run):
    with cluster() as running:
        with running.producer() as producer:
            for number in range(20):
                producer.send(Message("Orders", f"{number}", keys=f"K{number}"))
        options = ("-n", running.name_server, "-o", "json")
        counted = run("sql", "SELECT count(*) n FROM messages WHERE topic = 'Orders'", *options)
        keyed = run("sql", "SELECT decode(body) b FROM messages WHERE 'K7' = ANY(keys)", *options)
        absent = run("sql", "SELECT * FROM messages WHERE topic = 'Ordrs'", *options)
    assert json.loads(counted.out) == [{"n": 20}]
    assert json.loads(keyed.out) == [{"b": "7"}]
    assert (absent.code, absent.out) == (2, "")
    assert absent.err == "rocketlens: the cluster has no topic 'Ordrs'; did you mean Orders?\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("SELECT nosuch FROM messages",), "nosuch"),
        (("DROP TABLE messages",), "only SELECT, DESCRIBE and SHOW TABLES can be run"),
        (("SELEC 1",), "one SELECT is needed: syntax error"),
        (("SELECT body.$.a FROM messages",), "in a body is body_json->>'$.NAME' in SQL"),
        (("SELECT tag FROM messages",), "no column or table 'tag'; did you mean tags?"),
        (("SELECT prop.a FROM messages",), "table 'prop'; did you mean properties?"),
        (("SELECT 1 FROM mesages",), "there is no table 'mesages'; did you mean messages?"),
        (("SELECT 1 FROM orders",), "there is no table 'orders': the table is messages"),
        (("SELECT 1", "-o", "parquet"), "--to FILE"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(run, store, arguments, said):
    done = run("sql", *arguments, "--store", store)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert said in done.err


@pytest.mark.parametrize(
    "query",
    [
        "select content from read_text('{path}')",
        "select * from read_csv('{path}'), messages limit 1",
        "select * from glob('{path}*')",
        "select a.topic from messages a join messages b using (msg_id), '{path}' limit 1",
    ],
)
def test_a_query_reads_no_file_of_its_own(run, store, tmp_path, query):
    path = tmp_path / "secret.csv"
    path.write_text("secret\n")
    done = run("sql", query.format(path=path), "--store", store)
    assert done.code == 2
    assert f"a query reads the table messages, not files: {path}" in done.err
    assert "\n" not in done.err.strip()
    assert done.out == ""


def test_a_topic_that_the_store_does_not_have_is_an_error(run, store, tmp_path):
    done = run("sql", "SELECT topic FROM messages WHERE topic = 'PayTopc'", "--store", store)
    assert (done.code, done.out) == (2, "")
    assert "did you mean PayTopic" in done.err
    count = "SELECT count(*) FROM messages WHERE topic = 'PayTopc'"
    for output in ("csv", "table", "jsonl"):
        done = run("sql", count, "--store", store, "-o", output)
        assert (done.code, done.out, "did you mean PayTopic" in done.err) == (2, "", True)
    # Of several topics one has messages.
    count = "SELECT count(*) FROM messages WHERE topic IN ('PayTopc', 'PayTopic')"
    done = run("sql", count, "--store", store)
    assert (done.code, "no topic 'PayTopc'; did you mean PayTopic?" in done.err) == (0, True)
    done = run("export", tmp_path / "a.csv", "-t", "PayTopc", "--store", store)
    assert done.code == 2
    assert "did you mean PayTopic" in done.err
    assert list(tmp_path.iterdir()) == []


def test_without_duckdb_its_extra_is_named(run, store, monkeypatch):
    def missing(name):
        if name == "duckdb":
            raise ModuleNotFoundError("No module named 'duckdb'", name=name)
        return importlib.import_module(name)

    monkeypatch.setattr(arrow, "import_module", missing)
    done = run("sql", "SELECT 1", "--store", store)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert install_command("sql") in done.err


def test_texts_and_json_of_bodies_are_columns_that_binary_bodies_do_not_fail(run, write_store):
    found = write_store({"body": b'{"city": "Paris"}'}, {"body": b"\xff\x00"}, {"body": b"plain"})
    query = "SELECT body_text t, body_json->>'city' c FROM messages ORDER BY queue_offset"
    assert rows(run, found, query) == [
        {"t": '{"city": "Paris"}', "c": "Paris"},
        {"t": None, "c": None},
        {"t": "plain", "c": None},
    ]
    spooled = "SELECT a.body_json FROM messages a JOIN messages b USING (physical_offset)"
    assert len(rows(run, found, spooled)) == 3
    assert rows(run, found, "SELECT count(body_text) n FROM messages WHERE body_json IS NULL") == [
        {"n": 1}
    ]


def test_the_columns_are_those_of_all_doors(run, store):
    types = {
        "string": "VARCHAR",
        "array<string>": "VARCHAR[]",
        "map<string,string>": "MAP(VARCHAR, VARCHAR)",
        "int": "INTEGER",
        "bigint": "BIGINT",
        "binary": "BLOB",
        "timestamp": "TIMESTAMP WITH TIME ZONE",
    }
    described = rows(run, store, "DESCRIBE messages")
    expected = {name: types[kind] for name, kind in COLUMNS.items()} | {"body_json": "JSON"}
    assert {each["column_name"]: each["column_type"] for each in described} == expected
    (row,) = rows(run, store, "SELECT * FROM messages LIMIT 1")
    assert list(row) == list(COLUMNS)


def test_the_footer_counts_rows(run, store):
    done = run("sql", "SELECT count(*) FROM messages", "--store", store)
    assert done.err.startswith("1 row, COMPLETE")


def test_null_is_shown_as_null(run, write_store):
    found = write_store({"body": b"\xff"})
    done = run("sql", "SELECT tags, body_text, 1 n FROM messages", "--store", found)
    assert done.out == "tags\tbody_text\tn\nNULL\tNULL\t1\n"
    done = run("sql", "SELECT tags FROM messages", "--store", found, "-o", "csv")
    assert done.out.splitlines() == ["tags", ""] or done.out.splitlines() == ["tags", '""']


def test_without_a_query_it_is_read_from_standard_input(run, store, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 7 AS n"))
    done = run("sql", "--store", store, "-o", "json")
    assert json.loads(done.out) == [{"n": 7}]


def test_on_a_terminal_there_is_a_prompt(run, store, monkeypatch):
    typed = iter(["", "select count(*) n from mesages;", "select", "7 as n;", ".quit"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    done = run("sql", "--store", store, "-o", "json")
    assert done.code == 0
    assert json.loads(done.out) == [{"n": 7}]
    assert "did you mean messages?" in done.err


@pytest.fixture
def typed(monkeypatch):
    """Type lines at a prompt; give the prompts that were shown."""

    def type_lines(*lines):
        left, shown = list(lines), []

        def read(prompt):
            shown.append(prompt)
            line = left.pop(0) if left else EOFError()
            if isinstance(line, BaseException):
                raise line
            return line

        monkeypatch.setattr("builtins.input", read)
        return shown

    return type_lines


def test_a_query_ends_with_a_semicolon_and_may_have_several_lines(typed):
    shown = typed("select 1", "from messages;", "select 2;")
    queries = []
    assert sql.run_prompt(queries.append) == 0
    assert queries == ["select 1\nfrom messages", "select 2"]
    assert [each.strip() for each in shown] == ["messages>", "...>", "messages>", "messages>"]


@pytest.mark.parametrize("word", [".quit", "quit", "EXIT;", ".exit"])
def test_a_word_ends_it(typed, word):
    typed(word, "select 1;")
    queries = []
    assert sql.run_prompt(queries.append) == 0
    assert queries == []


def test_an_error_is_printed_and_the_next_query_runs(typed, capsys):
    typed("wrong;", ";", "right;")
    queries = []

    def run(query):
        queries.append(query)
        if query == "wrong":
            raise BadInput("no such thing")

    sql.run_prompt(run)
    assert queries == ["wrong", "right"]
    assert "no such thing" in capsys.readouterr().err


def test_ctrl_c_discards_what_was_typed(typed):
    typed("select", KeyboardInterrupt(), "select 2;")
    queries = []
    sql.run_prompt(queries.append)
    assert queries == ["select 2"]


def test_csv_on_a_terminal_obeys_nothing_that_a_message_says(run, write_store, monkeypatch):
    store = write_store({"topic": "T", "body": b"\x1b[31m", "properties": {"TAGS": "a\u202eb\x07"}})
    query = 'SELECT tags, body_text AS "x\x1b[2J" FROM messages'
    piped = run("sql", query, "--store", store, "-o", "csv")
    assert "\x1b" in piped.out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    shown = run("sql", query, "--store", store, "-o", "csv")
    assert shown.code == 0
    assert not {"\x1b", "\u202e", "\x07"} & set(shown.out)


def test_a_query_has_a_quarter_of_the_memory_and_is_told_how_to_have_more(run, store):
    query = "SELECT list(range) FROM range(50000000)"
    done = run("sql", query, "--store", store, "--memory", "100MB")
    assert (done.code, done.out) == (2, "")
    assert "more memory than --memory 100MB: give more" in done.err
    shown = rows(run, store, "SELECT current_setting('memory_limit') a", "--memory", "1GiB")
    assert shown == [{"a": "1.0 GiB"}]
    for wrong in ("-1", "much", "0x8", "101%"):
        assert run("sql", "SELECT 1", "--store", store, f"--memory={wrong}").code == 2
    default, whole = (
        rows(run, store, "SELECT current_setting('memory_limit') a", *options)[0]["a"].split()
        for options in ((), ("--memory", "100%"))
    )
    assert default[1] == whole[1]
    assert float(default[0]) == pytest.approx(float(whole[0]) / 4, abs=0.1)


def test_temporary_files_of_a_query_are_in_a_directory_of_its_own(
    run, store, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    query = "SELECT current_setting('allowed_directories') a"
    ((shown,),) = (each.values() for each in rows(run, store, query))
    assert len(shown) == 1
    assert Path(shown[0]).parent == tmp_path
    assert Path(shown[0]).name.startswith("rocketlens-sql-")
    assert list(tmp_path.iterdir()) == []


def test_a_result_replaces_no_file_unasked_and_an_incomplete_one_has_another_name(
    run, store, damaged, tmp_path
):
    path = tmp_path / "r.parquet"
    path.write_text("mine")
    asked = ("sql", "SELECT topic FROM messages", "-o", "parquet", "--to", path, "--store")
    done = run(*asked, store)
    assert (done.code, path.read_text()) == (2, "mine")
    assert "--overwrite replaces it" in done.err
    done = run(*asked, damaged, "--overwrite")
    assert (done.code, path.read_text()) == (3, "mine")
    assert pq.read_table(tmp_path / "r.parquet.incomplete").num_rows == 2
    done = run(*asked, store, "--overwrite")
    assert done.code == 0
    assert pq.read_table(path).num_rows > 1000
    assert not list(tmp_path.glob("*.part"))


@pytest.fixture(scope="module")
def planned():
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'").fetchall()

        def value(query, argument):
            return connection.execute(query, [argument]).fetchall()[0][0]

        def planned(query):
            return plan_of(
                value("SELECT json_serialize_sql(?)", query),
                lambda text: value(sql._MICROSECONDS, text),
                lambda names: value(sql._SCALAR, [*names]) == len(names),
            )

        yield planned


ALL = SqlPlan(is_streamed=True, with_body=False)


@pytest.mark.parametrize(
    ("where", "narrowed"),
    [
        ("topic = 'A'", {"topics": {"A"}}),
        ("'A' = m.topic", {"topics": {"A"}}),
        ("topic IN ('A', 'B') AND topic <> 'B'", {"topics": {"A", "B"}}),
        ("topic = 'A' AND (topic = 'B' OR queue_id = 1)", {"topics": {"A"}}),
        ("store_timestamp_ms >= 5 AND store_timestamp_ms < 9", {"begin": 5, "end": 8}),
        ("3 <= store_timestamp_ms", {"begin": 3}),
        ("store_timestamp_ms BETWEEN 3 AND 9 AND store_timestamp_ms > 4", {"begin": 5, "end": 9}),
        ("store_timestamp_ms = 7", {"begin": 7, "end": 7}),
        ("store_time >= '2026-11-20'", {"begin": 1_795_132_800_000}),
        ("store_time < TIMESTAMP '2026-11-20 00:00:01'", {"end": 1_795_132_800_999}),
        ("store_time <= '2026-11-20 00:00:00.0005'", {"end": 1_795_132_800_000}),
        ("store_time < '2026-11-20 00:00:00.0005'", {"end": 1_795_132_800_000}),
        ("store_time >= '2026-11-20 00:00:00.0005'", {"begin": 1_795_132_800_001}),
        ("store_time > TIMESTAMPTZ '2026-11-20 08:00+08'", {"begin": 1_795_132_800_001}),
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
    with pytest.raises(BadInput, match="SELECT"):
        planned(query)


NEWEST = "messages ORDER BY store_time DESC"


@pytest.mark.parametrize(
    ("query", "limit"),
    [
        ("topic FROM messages LIMIT 5", SqlLimit(5)),
        (f"topic, body_json->>'a' FROM {NEWEST} LIMIT 5 OFFSET 2", SqlLimit(7, "store_time")),
        (f"* FROM {NEWEST}, queue_id LIMIT 5", SqlLimit(5, "store_time", is_only=False)),
        (
            "* FROM messages m WHERE topic = 'A' ORDER BY m.physical_offset LIMIT 1",
            SqlLimit(1, "physical_offset", oldest=True),
        ),
        ("* FROM messages WHERE store_timestamp_ms BETWEEN 2 AND 3 LIMIT 1", SqlLimit(1)),
        (f"* FROM {NEWEST} LIMIT 10001", None),
        (f"* FROM {NEWEST} LIMIT 10%", None),
        (f"* FROM {NEWEST} LIMIT 5 OFFSET 1 + 1", None),
        (f"DISTINCT topic FROM {NEWEST} LIMIT 5", None),
        (f"unnest(keys) FROM {NEWEST} LIMIT 5", None),
        (f"row_number() OVER () FROM {NEWEST} LIMIT 5", None),
        (f"lower(tags) AS store_time FROM {NEWEST} LIMIT 5", None),
        ("* FROM messages ORDER BY queue_offset LIMIT 5", None),
        ("* FROM messages WHERE tags = 'A' AND 'B' = tags LIMIT 5", SqlLimit(5)),
        ("* FROM messages WHERE tags IN ('A', 'B') LIMIT 5", SqlLimit(5)),
        ("* FROM messages WHERE tags = 'A || B' LIMIT 5", None),
        ("* FROM messages WHERE tags = ' A' LIMIT 5", None),
        ("* FROM messages WHERE tags > 'A' LIMIT 5", None),
        ("* FROM messages WHERE store_time BETWEEN '2026-11-20' AND now() LIMIT 5", None),
        ("* FROM messages WHERE topic IN ('A', tags) LIMIT 5", None),
        ("count(*) FROM messages LIMIT 5", None),
        ("topic FROM messages GROUP BY 1 LIMIT 5", None),
        ("topic FROM messages QUALIFY max(queue_id) OVER () = queue_id LIMIT 5", None),
        ("* FROM messages USING SAMPLE 3 LIMIT 5", None),
        ("* FROM messages, messages m LIMIT 5", None),
    ],
)
def test_a_limit_needs_the_first_or_newest_messages_if_each_is_a_row(planned, query, limit):
    assert planned(f"SELECT {query}").limit == limit


ORDERS = ["store_time DESC, physical_offset", "store_timestamp_ms, queue_id, physical_offset DESC"]


@pytest.mark.parametrize(
    "where", ["", "WHERE topic = 'T' AND store_timestamp_ms < 180", "WHERE tags = 'T'"]
)
@pytest.mark.parametrize("order", [*ORDERS, "physical_offset", "physical_offset DESC"])
def test_a_limit_has_the_rows_of_the_whole_order_also_after_a_clock_was_set_back(
    run, write_store, where, order
):
    times = [100, 200, 150, 150, 170, 170, 170, 120, 190, 180, 160, 160]
    found = write_store(
        *(
            {"store_timestamp_ms": ms, "topic": topic, "properties": {"TAGS": topic}}
            for ms, topic in zip(times, "TTTU" * 3, strict=True)
        )
    )
    query = f"SELECT physical_offset FROM messages {where} ORDER BY {order}"
    expected = rows(run, found, query)
    for limit in range(1, len(times) + 2):
        assert rows(run, found, f"{query} LIMIT {limit}") == expected[:limit]
    assert rows(run, found, f"{query} LIMIT 3 OFFSET 2") == expected[2:5]


@pytest.fixture
def read(monkeypatch):
    """The numbers of rows that queries were given to read."""
    counts = []
    batches_in = sql.batches_in

    def counted(found, **what):
        for batch in batches_in(found, **what):
            counts.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(sql, "batches_in", counted)
    return counts


@pytest.mark.parametrize(
    ("rest", "most"),
    [
        ("LIMIT 3", 16),
        ("WHERE topic = 'PayTopic' LIMIT 3", 32),
        ("ORDER BY store_time LIMIT 3", 3),
        ("ORDER BY store_time DESC LIMIT 3", 16),
        ("ORDER BY physical_offset DESC LIMIT 3", 3),
        ("WHERE topic = 'PayTopic' ORDER BY store_time DESC LIMIT 3", 3),
        ("WHERE body_text LIKE '%a%' LIMIT 3", 128),
    ],
)
def test_a_limit_reads_few_records_of_a_store(run, store, read, rest, most):
    assert len(rows(run, store, f"SELECT topic FROM messages {rest}")) == 3
    assert sum(read) <= most


def test_a_limit_pulls_few_bytes_of_a_cluster(run, monkeypatch):
    pulled = []

    def counted(*values, **named):
        made = Pulled(*values, **named)
        pulled.append(len(made.body))
        return made

    monkeypatch.setattr(queue_puller, "Pulled", counted)
    with cluster() as running:
        with running.producer() as producer:
            for _ in range(200):
                producer.send_batch([Message("Orders", b"x" * 100)] * 100)

        def bytes_of(rest):
            pulled.clear()
            query = f"SELECT queue_id FROM messages WHERE topic = 'Orders' {rest}"
            assert run("sql", query, "-n", running.name_server).code == 0
            return sum(pulled)

        everything = bytes_of("")
        assert everything > 20_000 * 100
        for order in ("", "ORDER BY store_time", "ORDER BY store_time DESC"):
            assert bytes_of(f"{order} LIMIT 3") < everything / 2, order


def test_a_limit_reads_no_more_of_a_cluster_than_it_needs(run, read):
    with cluster() as running:
        with running.producer() as producer:
            for number in range(50):
                tags = "A" if number % 2 else "B"
                producer.send(Message("Orders", f"{number}", tags=tags))

        def asked(rest):
            read.clear()
            query = f"SELECT decode(body) b FROM messages WHERE topic = 'Orders' {rest}"
            done = run("sql", query, "-n", running.name_server, "-o", "json")
            assert done.code == 0, done.err
            return json.loads(done.out)

        order = "ORDER BY store_time DESC, queue_id, queue_offset"
        newest = asked(order)
        assert (len(newest), sum(read)) == (50, 50)
        assert asked(f"{order} LIMIT 3") == newest[:3]
        assert 3 <= sum(read) < 50
        for rest in ("ORDER BY store_time LIMIT 3", "LIMIT 3", "AND tags = 'A' LIMIT 3"):
            assert (len(asked(rest)), sum(read)) == (3, 3)
        of_tag = asked(f"AND tags IN ('B', 'C') {order}")
        assert (len(of_tag), sum(read)) == (25, 25)
        assert asked(f"AND tags IN ('B', 'C') {order} LIMIT 3") == of_tag[:3]
        assert 3 <= sum(read) < 25


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("DESCRIBE messages", "\nbody_json\tJSON\t"),
        ("SHOW messages", "\nstore_time\tTIMESTAMP WITH TIME ZONE\t"),
        ("SHOW TABLES", "name\nmessages\n"),
        ("DESCRIBE SELECT topic AS What FROM messages", "\nWhat\tVARCHAR\t"),
    ],
)
def test_columns_and_tables_are_listed_without_a_source(run, query, shown):
    done = run("sql", query)
    assert (done.code, done.err) == (0, "")
    assert shown in done.out


def test_columns_have_the_names_that_a_query_gives_them(run, store, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    done = run("sql", "SELECT 1 AS OneRow, '' AS empty, 2 two", "--store", store)
    assert done.out.splitlines()[0].split() == ["OneRow", "empty", "two"]
