"""Every text is there in every language, and nowhere else."""

import ast
import copy
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from string import Formatter

import pytest
from msgspec.structs import replace

from rocketlens import limits
from rocketlens.console import pages
from rocketlens.console.preferences import LANGUAGES, Preferences, Reader, language_of, table_of
from rocketlens.formats import trace_body
from rocketlens.formats.commitlog_record import message_of
from rocketlens.model.answer import SourceKind
from rocketlens.model.life import due_text
from rocketlens.model.text.sentences import SENTENCES, Sentence, TimeText
from rocketlens.query.facts.group_state import GroupState
from rocketlens.query.filters.pattern import MAX_PATTERN_CHARACTERS
from rocketlens.query.story.story_events import EventKind
from tests.support.console_client import answers, store_at
from tests.support.made_stores import NOW_MS, Sent, make_store, record_of, some_messages
from tests.support.story_world import KEY, consumed, pub

TEMPLATES = sorted((Path(pages.__file__).parent / "templates").glob("*.html"))
TAG = re.compile(r"<[^>]*>")
SHOWN_ATTRIBUTE = re.compile(r'\b(?:alt|aria-label|placeholder|title)="([^"]*)"')
EXPRESSION = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
LETTERS = re.compile(r"[^\W\d_]{2,}")
UNITS = {"ms"}
"""Units of measurement, the same in every language."""
ENGLISH = re.compile(r"[A-Za-z]{2,} [a-z]{2,}")
"""Two words, the second of which is no name."""
UNIQUE = {"UNIQ_KEY": KEY, "PGROUP": "p"}
CALLS = [
    *consumed(50),
    *consumed(60, 1, success=False, code=2),
    *consumed(70, 2),
    *consumed(80, 2, client="10.0.0.7"),
    *consumed(90, group="begun")[:1],
]
TRACE = b"".join(
    trace_body.encode(each)
    for each in (
        replace(pub().record, message_type="Normal_Msg", body_length=5),
        *(each.record for each in CALLS),
    )
)
MESSAGES = [
    {"properties": UNIQUE},
    {"properties": UNIQUE, "sys_flag": 8},
    {"properties": {**UNIQUE, "RESENT_BY_ROCKETLENS": "j/1"}},
    {"topic": "RMQ_SYS_TRANS_HALF_TOPIC", "properties": {**UNIQUE, "REAL_TOPIC": "T"}},
    {"topic": "TRANS_CHECK_MAX_TIME_TOPIC", "properties": UNIQUE},
    {"topic": "SCHEDULE_TOPIC_XXXX", "properties": {**UNIQUE, "REAL_TOPIC": "T", "DELAY": "3"}},
    {"topic": "rmq_sys_wheel_timer", "properties": {**UNIQUE, "REAL_TOPIC": "T"}},
    {
        "topic": "SCHEDULE_TOPIC_XXXX",
        "reconsume_times": 1,
        "properties": {**UNIQUE, "REAL_TOPIC": "%RETRY%waits", "DELAY": "3"},
    },
    {"topic": "%RETRY%g", "reconsume_times": 1, "properties": UNIQUE},
    {"topic": "%DLQ%dead", "reconsume_times": 3, "properties": UNIQUE},
    {"topic": "RMQ_SYS_TRACE_TOPIC", "body": TRACE, "properties": {"KEYS": KEY}},
    {"topic": "U", "properties": {"KEYS": "no-unique-key"}},
]
OFFSETS = {"T@past": {"0": 1}, "T@late": {"0": 0}, "T@reset": {"0": 9_000}, "T@other": {"1": 5}}


class ShownText(HTMLParser):
    """The text of a part of a page."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.feed(html)
        self.close()

    def handle_data(self, data):
        self.text += data


def fields_of(text):
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def test_every_language_has_the_same_texts_with_the_same_values():
    english = table_of("en")
    for language in LANGUAGES:
        table = table_of(language)
        assert table.keys() == english.keys()
        assert all(table.values())
        assert {n: fields_of(t) for n, t in table.items()} == {
            n: fields_of(t) for n, t in english.items()
        }


def test_every_sentence_of_stories_has_a_chinese_text_with_the_same_values():
    chinese = table_of("zh")
    for name, english in SENTENCES.items():
        text = chinese[f"sentence.{name}"]
        assert fields_of(text) == fields_of(english)
        assert text != english
    assert {n for n in chinese if n.startswith("sentence.")} == {f"sentence.{n}" for n in SENTENCES}


def test_a_sentence_is_shown_in_the_language_with_the_sentences_in_it():
    failed = Sentence(
        "consume_failed",
        client="10.0.0.8",
        took=Sentence("took", ms=5),
        why=Sentence("because", why=Sentence("exception")),
    )
    text = Sentence("delivery", group="g{x}", outcome=failed, retry="")
    assert Reader(Preferences("zh")).sentence(text) == (
        "消费组 g{x}：客户端 10.0.0.8 消费失败，耗时 5 毫秒：抛出异常"
    )
    assert Reader(Preferences("en")).sentence(text) == text
    assert text == "group g{x}: client 10.0.0.8 failed to consume it in 5 ms: an exception"


def test_times_in_a_sentence_are_those_of_the_readers_zone():
    named = (("REAL_TOPIC", "Orders"), ("DELAY", "18"))
    record, _ = record_of(Sent("SCHEDULE_TOPIC_XXXX", named=named), 0, 0)
    told = due_text(message_of(record), (), NOW_MS)
    texts = {
        name: Reader(Preferences(zone_name=name)).sentence(told)
        for name in ("Asia/Shanghai", "Asia/Kolkata")
    }
    assert "due 2023-11-15 08:13:20+08:00, " in texts["Asia/Shanghai"]
    assert "due 2023-11-15 05:43:20+05:30, " in texts["Asia/Kolkata"]


def test_a_time_beyond_the_calendar_is_a_number():
    far = Sentence("due_ago", time=TimeText("9 ms", 10**17), span="1 h", level="")
    assert Reader(Preferences("en")).sentence(far) == "due 9 ms, 1 h ago"
    assert copy.deepcopy(far).values["time"].epoch_ms == 10**17


def test_text_that_is_no_sentence_is_shown_as_it_is():
    for language in LANGUAGES:
        assert Reader(Preferences(language)).sentence("CODE:1 {x}") == "CODE:1 {x}"


def test_every_word_of_sources_has_a_text():
    for group, words in (("kind", SourceKind), ("event", EventKind), ("state", GroupState)):
        for word in words:
            assert f"{group}.{word}" in table_of("en")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_has_words_of_its_own(path):
    source = EXPRESSION.sub("", path.read_text("utf-8"))
    shown = [TAG.sub(" ", source), *SHOWN_ATTRIBUTE.findall(source)]
    assert set(LETTERS.findall(" ".join(shown))) <= UNITS


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_text_that_a_template_names_exists(path):
    names = re.findall(r"""\bt\(["']([a-z_0-9]+\.[a-z_0-9]+)["']\s*[,)]""", path.read_text("utf-8"))
    assert set(names) <= table_of("en").keys()


def test_no_template_turns_escaping_off_or_has_code():
    for path in TEMPLATES:
        source = path.read_text("utf-8")
        assert not re.search(r"\|\s*safe\b|autoescape|<style|\bstyle=|\bon[a-z]+=", source)
        assert all(' src="/static/' in tag for tag in re.findall(r"<script[^>]*>", source))


@pytest.mark.parametrize(
    ("chosen", "accepted", "language"),
    [
        (None, "", "en"),
        (None, "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        (None, "fr, de;q=0.5", "en"),
        ("en", "zh", "en"),
        ("xx", "zh", "zh"),
    ],
)
def test_the_language_is_the_chosen_one_or_the_browsers(chosen, accepted, language):
    assert language_of(chosen, accepted) == language


def test_a_word_without_a_text_is_shown_as_it_is():
    assert Reader(Preferences("zh")).of_word("state", "consumed") == "已消费"
    assert Reader(Preferences("zh")).of_word("state", "brand_new") == "brand_new"


def story_in(page):
    """Return the part of a page that is the story."""
    html = page.text.partition('<ol class="timeline">')[2].partition('<ul class="coverage">')[0]
    return ShownText(html).text


@pytest.fixture
def store(write_store):
    path = write_store(*MESSAGES)
    (path / "config").mkdir()
    tables = {"offsetTable": OFFSETS, "pullOffsetTable": {"T@reset": {"0": 0}}}
    (path / "config" / "consumerOffset.json").write_text(json.dumps(tables))
    return path


@pytest.mark.parametrize("position", ["T/-/0/0", "U/-/0/11"])
def test_a_chinese_story_has_no_english_sentence(store, position):
    path = f"/m/s/{position}?tab=story"
    (english,) = answers([path], store_at(store, "s"))
    (chinese,) = answers([path], store_at(store, "s"), cookies={"rl_language": "zh"})
    assert ENGLISH.findall(story_in(english))
    assert ENGLISH.findall(story_in(chinese)) == []
    assert "从 10.0.0.9:5555 " in story_in(chinese)
    assert "哪些客户端在线" in story_in(chinese)


@pytest.mark.parametrize(
    ("language", "why"),
    [
        (
            "en",
            (
                "retry 2 was handed out 2 times, to 10.0.0.9: its acknowledgement failed, or the "
                "client began anew before it had committed"
            ),
        ),
        ("zh", "第 2 次重试投递了 2 次，客户端为 10.0.0.9：消费确认失败，或客户端在提交位点之前"),
    ],
)
def test_why_a_group_had_one_offset_twice_is_on_the_page(store, language, why):
    cookies = {"rl_language": language}
    (page,) = answers(["/m/s/T/-/0/0?tab=story"], store_at(store, "s"), cookies=cookies)
    assert why in story_in(page)


def test_the_api_has_stories_in_english_and_names_no_sentences(store):
    path = "/api/story/s/T/-/0/0"
    (english,) = answers([path], store_at(store, "s"))
    (chinese,) = answers([path], store_at(store, "s"), cookies={"rl_language": "zh"})
    assert english.json() == chinese.json()
    [sent, *_] = english.json()["events"]
    assert sent["text"] == (
        "sent from 10.0.0.9:5555 by producer group p; its unique key was made on 127.0.0.1"
    )


@pytest.mark.parametrize(
    ("asked", "english", "chinese"),
    [
        (
            "where=n+%3E",
            "filter, character 4: a value is expected",
            "过滤条件第 4 个字符：此处应为值",
        ),
        (
            "where=n+%3D%3D+1",
            "filter, character 4: a value is expected, not '='; write = for equal",
            "过滤条件第 4 个字符：此处应为值，而不是 '='；等于写作 =",
        ),
        (
            f"grep={'x' * (MAX_PATTERN_CHARACTERS + 1)}",
            f"the pattern has {MAX_PATTERN_CHARACTERS + 1} characters",
            f"正则表达式有 {MAX_PATTERN_CHARACTERS + 1} 个字符",
        ),
        ("since=x", "since 'x' is not a time: expected 2h", "since 的值 'x' 不是时间：可以是 2h"),
        (
            "since=2026-13-01",
            "since '2026-13-01' is not a time of the calendar",
            "since 的值 '2026-13-01' 不是日历上的时间",
        ),
        ("since=2026-11-21&until=2026-11-20", "since is after until", "开始时间晚于结束时间"),
    ],
)
def test_what_is_wrong_with_a_question_is_shown_in_the_language(
    write_store, asked, english, chinese
):
    store = store_at(write_store({"body": b"x"}), "s")
    paths = [f"/search?topic=T&{asked}", f"/search/rows?topic=T&{asked}"]
    for page in answers(paths, store):
        assert english[0].upper() + english[1:] in ShownText(page.text).text
    for page in answers(paths, store, cookies={"rl_language": "zh"}):
        assert chinese in ShownText(page.text).text
        assert english[1:] not in ShownText(page.text).text
    for language in LANGUAGES:
        (found,) = answers(
            [f"/api/search?topic=T&{asked}"], store, cookies={"rl_language": language}
        )
        assert found.status_code == 400
        assert found.json()["error"]["message"].startswith(english)


CONSOLE = Path(pages.__file__).parent
AT_START = {
    *("run.py", "mcp_server.py", "server.py", "masks.py", "viewer.py", "users.py"),
    *("oidc_settings.py", "oidc_logins.py", "oidc_provider.py", "logins.py", "audit.py"),
}
"""Say what is wrong with options and files, or have texts of the page of logins."""
REFUSALS = {
    *("BadInput", "ActRefused", "PlanChanged", "MessageNotFound", "TopicNotFound", "ConsoleBusy"),
    "AnswerIncomplete",
}


def english_refusals(path):
    """Give the errors that a module makes of text of its own."""
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id in REFUSALS and node.args
        if isinstance(node.args[0], ast.Constant | ast.JoinedStr)
        # For programs: forms have no such mistakes. And options of a command line.
        if not ast.unparse(node.args[0]).startswith(
            ("f'expected a form", "f'not all messages", "'which sources", "f'{len(contexts)}")
        )
    ]


@pytest.mark.parametrize("path", sorted(CONSOLE.rglob("*.py")), ids=lambda path: path.stem)
def test_what_the_console_refuses_has_a_text_in_every_language(path):
    assert path.name in AT_START or english_refusals(path) == []


@pytest.mark.parametrize(
    ("address", "english", "chinese"),
    [
        ("/search?topic=T&max=0", "max: at least 1 is expected", "max：至少应为 1"),
        ("/search?topic=T&max=x", "max: a whole number is expected", "max：应为整数"),
        ("/search?topic=T&kind=x", "kind: one of 'auto'", "kind：应为 'auto'"),
        ("/search?topic=T&zone=x", "there is no time zone 'x'", "没有时区 'x'"),
        ("/search?topic=,", "the topic is empty", "主题为空"),
        ("/search?q=x&kind=queue-offset", "'x' is not a queue position", "'x' 不是队列位点"),
        ("/search?q=" + "x" * 40_001, "q: at most 40000 characters", "q：最多 40000 个字符"),
        ("/search?q=x&source=y", "there is no source 'y'", "没有数据源 'y'"),
        ("/search?topic=T&columns=x", "unknown column 'x'", "未知的列 'x'"),
        (
            "/search?topic=T&cursor=x",
            "cursor is not from this console",
            "此游标不是由本控制台生成的",
        ),
        (
            "/compare?chosen=/m/s/T/-/0/0&chosen=/m/s/T/-/0/1&chosen=/m/s/T/-/0/2",
            "choose two to compare",
            "请选择两条进行比较",
        ),
        ("/m/s/T/-/0/7", "there is no message at T/0/7", "T/0/7 处没有消息"),
        ("/story?q=x&source=s&source=y", "there is no source 'y'", "没有数据源 'y'"),
        ("/jobs/none", "there is no job 'none'", "没有任务 'none'"),
        ("/resend?q=x&source=s", "this console has no cluster to send to", "没有可发送的集群"),
    ],
)
def test_typical_mistakes_are_told_in_the_language(write_store, address, english, chinese):
    store = store_at(write_store({"body": b"x"}), "s")
    for language, said in (("en", english), ("zh", chinese)):
        (page,) = answers([address], store, cookies={"rl_language": language})
        assert said.lower() in ShownText(page.text).text.lower()


def test_what_a_filter_could_not_look_at_is_shown_in_the_language(write_store):
    store = store_at(write_store({"body": b"\x00\xff\x9f\x01"}), "s")
    paths = ["/search?topic=T&grep=x", "/search/rows?topic=T&grep=x"]
    for page in answers(paths, store, cookies={"rl_language": "zh"}):
        text = ShownText(page.text).text
        assert "1 条消息，第一条是 T/0/0：" in text
        assert "过滤条件无法读取消息体" in text
        assert "the filter could not read" not in text


def test_what_an_answer_relies_on_is_shown_in_the_language(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MAX_SHORT_SCAN_BYTES", 0)
    monkeypatch.setattr("rocketlens.query.lookup.newest.MAX_NEWEST_SCAN_BYTES", -1)
    made = make_store(tmp_path / "store", some_messages(300), segment_bytes=8192)
    path = f"/search?topic=Topic0&since={NOW_MS + 137 * 290}"
    (english,) = answers([path], store_at(made.path, "s"))
    (chinese,) = answers([path], store_at(made.path, "s"), cookies={"rl_language": "zh"})
    assert "consume queues lack no message from physical offset 0 to" in english.text
    assert "ConsumeQueue 没有缺少物理偏移量 0 到" in chinese.text
    assert "，且其存储时间递增（" in chinese.text
    assert "consume queues lack" not in chinese.text


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"n":1}', "编码是 utf-8，内容是合法的 JSON"),
        (b"plain", "编码是 utf-8"),
        (b"\x00\xff\x9f\x01", "没有一种已知格式能读到最后一个字节"),
    ],
)
def test_why_a_body_is_what_it_is_is_shown_in_the_language(write_store, body, why):
    store = store_at(write_store({"body": body}), "s")
    (page,) = answers(["/m/s/T/-/0/0?tab=body"], store, cookies={"rl_language": "zh"})
    reason = page.text.partition('<details class="why">')[2].partition("</details>")[0]
    assert why in reason
    assert ENGLISH.findall(ShownText(reason).text) == []
