"""Jobs can be paused, resumed and stopped, and survive the console that runs them."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from rocketlens import limits
from rocketlens.client.consume.push import PushConsumer
from rocketlens.client.resend.resend_job import MARKER, Target, plan_message
from rocketlens.client.resend.resend_journal import (
    JobHeader,
    PlannedMessage,
    ResendJournal,
    read_job,
)
from rocketlens.client.send.message import Message
from rocketlens.console.act.act_values import JobValue, Order
from rocketlens.console.act.actions import Actions
from rocketlens.console.act.jobs import MAX_CONSOLE_JOBS, MAX_USER_JOBS, Jobs, is_name, new_name
from rocketlens.console.act.permission import ActRefused
from rocketlens.console.act.plans import ResendPlan
from rocketlens.console.login.viewer import LOCAL, Grant, Role, Viewer, seen_by
from rocketlens.console.message.look_up import LookUps
from rocketlens.console.room import ConsoleBusy
from rocketlens.console.search.search import Searches
from rocketlens.console.sources.sources import Sources, open_sources
from rocketlens.decode.rules import BodyRules
from rocketlens.errors import BadInput, MessageNotFound, StoreLocked
from rocketlens.terminal.cluster_access import jobs_directory
from rocketlens.testing import cluster
from tests.support.console_client import answers, cluster_at, store_at
from tests.support.made_stores import Sent, make_store

COUNT = 5


@pytest.fixture(scope="module")
def rocketmq():
    """A broker."""
    with cluster() as running:
        yield running


@pytest.fixture
def topic(rocketmq, request):
    """A topic of the test's own with some messages."""
    name = request.node.name[:100]
    with rocketmq.producer() as producer:
        for number in range(COUNT):
            producer.send(Message(name, f"{number}"))
    return name


class Gate:
    """Replaces sleeping between messages: each waits until it is let through."""

    def __init__(self):
        self.waiting, self.through = asyncio.Event(), asyncio.Event()

    async def sleep(self, _):
        self.waiting.set()
        await self.through.wait()


@asynccontextmanager
async def console(rocketmq, directory, **options):
    """Give the jobs of a console, and its cluster."""
    async with AsyncExitStack() as opened:
        sources = await open_sources([cluster_at(rocketmq.name_server, "live")], opened)
        jobs = Jobs(LookUps(Searches(sources, BodyRules())), directory, **options)
        opened.push_async_callback(jobs.close)
        yield jobs, sources.named("live")


async def plan_of(live, topic):
    found = await live.admin.find(None, topic)
    originals = [each for each in found.messages if MARKER not in each.properties]
    return ResendPlan(
        origin=live,
        cluster=live,
        selection="all",
        target=Target(),
        messages=[plan_message(each, Target(), str) for each in originals],
    )


async def start(jobs, live, topic, *, name=None):
    name = name or new_name()
    plan = await plan_of(live, topic)
    await jobs.start(name, plan, reason="lost", rate=1)
    return name


def copies(rocketmq, topic):
    with rocketmq.admin() as admin:
        found = admin.find(None, topic)
    return sorted(each.body for each in found if MARKER in each.properties)


ALL = [b"%d" % number for number in range(COUNT)]


def test_a_job_is_paused_after_a_message_and_resumed(rocketmq, topic, tmp_path):
    async def scenario():
        gate = Gate()
        async with console(rocketmq, tmp_path, sleep=gate.sleep) as (jobs, live):
            name = await start(jobs, live, topic)
            await gate.waiting.wait()
            assert (await jobs.state(name)).word == "running"
            jobs.end(name, "paused by me")
            assert (await jobs.state(name)).word == "ending"
            gate.through.set()
            await jobs.settled(name, None)
            paused = await jobs.state(name)
            assert paused.word == "open"
            assert paused.contents.audits[-1][0] == "paused by me"
            left = paused.contents.counts()["left"]
            await jobs.resume(name, live, rate=1)
            await jobs.settled(name, None)
            return left, (await jobs.state(name)).word

    left, word = asyncio.run(scenario())
    assert 0 < left < COUNT
    assert word == "done"
    assert copies(rocketmq, topic) == ALL


def test_a_console_that_ends_leaves_a_job_that_the_next_one_goes_on_with(rocketmq, topic, tmp_path):
    async def first():
        gate = Gate()
        async with console(rocketmq, tmp_path, sleep=gate.sleep) as (jobs, live):
            name = await start(jobs, live, topic)
            await gate.waiting.wait()
            gate.through.set()
        return name

    async def second(name):
        async with console(rocketmq, tmp_path, sleep=lambda _: asyncio.sleep(0)) as (jobs, live):
            assert jobs.names() == [name]
            word = (await jobs.state(name)).word
            await jobs.resume(name, live, rate=1)
            await jobs.settled(name, None)
            return word, (await jobs.state(name)).word

    name = asyncio.run(first())
    assert asyncio.run(second(name)) == ("open", "done")
    assert copies(rocketmq, topic) == ALL


def test_what_became_of_the_messages_is_followed_and_kept(rocketmq, topic, tmp_path):
    async def scenario():
        # A pause that leaves the processor to the consumer.
        pauses = {"sleep": lambda _: asyncio.sleep(0.01)}
        async with console(rocketmq, tmp_path, **pauses) as (jobs, live):
            consumer = PushConsumer(rocketmq.name_server, group=f"g-{topic}", begin="first")
            consumer.subscribe(topic)
            consumer.listen(_fails_with_the_first)
            async with consumer:
                name = await start(jobs, live, topic)
                await jobs.settled(name, None)
                assert (await jobs.state(name)).is_followed
                await asyncio.gather(*jobs._follows.values())
            return JobValue.of_job(await jobs.state(name))

    job = asyncio.run(scenario())
    assert (job.state, job.is_followed) == ("done", False)
    assert job.came == {f"g-{topic}": {"consumed": COUNT - 1, "dead_letter": 1}}
    assert sum(each.came == {f"g-{topic}": "dead_letter"} for each in job.messages) == 1


async def _fails_with_the_first(messages, context):
    if messages[0].body == b"0" and MARKER in messages[0].properties:
        context.delay_level = -1
        raise ValueError("no")


def test_what_is_stopped_stays_stopped(rocketmq, topic, tmp_path):
    async def scenario():
        gate = Gate()
        async with console(rocketmq, tmp_path, sleep=gate.sleep) as (jobs, live):
            name = await start(jobs, live, topic)
            await gate.waiting.wait()
            await jobs.stop(name, "li")
            gate.through.set()
            await jobs.settled(name, None)
        async with console(rocketmq, tmp_path) as (jobs, live):
            state = await jobs.state(name)
            assert state.contents.audits[-1][0] == "stopped by li"
            await jobs.stop(name, "wang")
            return state.word, (await jobs.state(name)).word

    assert asyncio.run(scenario()) == ("stopped", "stopped")
    assert len(copies(rocketmq, topic)) < COUNT


def test_a_form_that_is_sent_twice_starts_one_job(rocketmq, topic, tmp_path):
    async def scenario():
        async with console(rocketmq, tmp_path, sleep=lambda _: asyncio.sleep(0)) as (jobs, live):
            name = new_name()
            plan = await plan_of(live, topic)
            options = {"reason": "lost", "rate": 1}
            await asyncio.gather(*(jobs.start(name, plan, **options) for _ in range(3)))
            await jobs.settled(name, None)
            await jobs.start(name, plan, **options)

    asyncio.run(scenario())
    assert copies(rocketmq, topic) == ALL


async def test_no_more_jobs_run_than_are_allowed_of_one_user_and_in_total(
    rocketmq, topic, tmp_path
):
    gate = Gate()
    async with console(rocketmq, tmp_path, sleep=gate.sleep) as (jobs, live):
        for name in ("li", "wu"):
            with seen_by(Viewer(name, LOCAL.grants)):
                for _ in range(MAX_USER_JOBS):
                    await start(jobs, live, topic)
                with pytest.raises(ConsoleBusy, match=f"{MAX_USER_JOBS} of your jobs"):
                    await start(jobs, live, topic)
        assert 2 * MAX_USER_JOBS == MAX_CONSOLE_JOBS
        with pytest.raises(ConsoleBusy, match=f"^{MAX_CONSOLE_JOBS} jobs run already"):
            await start(jobs, live, topic)
        gate.through.set()


async def test_a_job_of_another_process_cluster_or_store_is_not_run(rocketmq, topic, tmp_path):
    async with console(rocketmq, tmp_path, sleep=lambda _: asyncio.sleep(0)) as (jobs, live):
        name = await start(jobs, live, topic)
        await jobs.settled(name, None)
        header = (await jobs.state(name)).contents.header
        with ResendJournal.resume(jobs.path(name)), pytest.raises(StoreLocked):
            await jobs.resume(name, live, rate=1)
        for field in ("cluster", "origin"):
            fields = {each: getattr(header, each) for each in header.__slots__}
            other = type(header)(**{**fields, field: "elsewhere"})
            with pytest.raises(BadInput, match="elsewhere"):
                jobs.origin_of(other)
        with pytest.raises(MessageNotFound):
            await jobs.resume(new_name(), live, rate=1)
        with pytest.raises(MessageNotFound):
            await jobs.state("../x")


def test_an_error_that_ends_a_job_is_shown(rocketmq, topic, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    async def scenario():
        async with console(rocketmq, tmp_path) as (jobs, live):
            monkeypatch.setattr(ResendJournal, "sending", fail)
            name = await start(jobs, live, topic)
            await jobs.settled(name, None)
            return await jobs.state(name)

    state = asyncio.run(scenario())
    assert state.word == "open"
    assert "No space left" in state.error
    assert copies(rocketmq, topic) == []


@pytest.fixture
def files_read(monkeypatch):
    """Give the names of the files that were read, as they are."""
    names = []

    def read(path):
        names.append(path.stem)
        return read_job(path)

    monkeypatch.setattr("rocketlens.console.act.jobs.read_job", read)
    return names


def job_file(directory, name):
    header = JobHeader(
        **dict.fromkeys(("selection", "target", "cluster", "namespace", "reason", "user"), "x"),
        job=name,
        count=2,
        time="2026-11-20T00:00:00+00:00",
    )
    message = PlannedMessage(
        topic="t", queue_id=0, queue_offset=0, offset_msg_id="A", unique_key=None, target="t"
    )
    return ResendJournal.create(directory / f"{name}.job", header, [message, message])


def test_a_file_of_a_job_is_read_for_lists_only_when_it_changed(tmp_path, files_read):
    async def scenario():
        jobs = Jobs(LookUps(Searches(Sources([]), BodyRules())), tmp_path)
        name = new_name()
        with job_file(tmp_path, name) as journal:
            found = [await jobs.listed(name) for _ in range(3)]
            journal.sent(1, "M", "O")
            found += [await jobs.listed(name) for _ in range(3)]
            journal.sent(2, "M", "O")
            return [*found, await jobs.listed(name)]

    found = asyncio.run(scenario())
    assert len(files_read) == 3
    assert [each.counts["sent"] for each in found] == [0, 0, 0, 1, 1, 1, 2]
    assert [each.word for each in found] == ["open"] * 6 + ["done"]
    assert found[0].header.reason == "x"


def test_what_a_list_remembers_of_files_is_bounded(tmp_path, files_read, monkeypatch):
    monkeypatch.setattr(limits, "MAX_CONSOLE_JOB_FILES", 2)

    async def scenario():
        jobs = Jobs(LookUps(Searches(Sources([]), BodyRules())), tmp_path)
        names = [new_name() for _ in range(3)]
        for name in names:
            job_file(tmp_path, name).close()
        for name in (*names, *reversed(names)):
            await jobs.listed(name)
        return names

    first, second, third = asyncio.run(scenario())
    assert files_read == [first, second, third, first]


async def test_a_job_that_is_not_there_or_damaged_is_an_error_each_time(tmp_path):
    jobs = Jobs(LookUps(Searches(Sources([]), BodyRules())), tmp_path)
    name = new_name()
    with pytest.raises(MessageNotFound):
        await jobs.listed(name)
    (tmp_path / f"{name}.job").write_bytes(b"00000000 {}\n")
    for _ in range(2):
        with pytest.raises(BadInput):
            await jobs.listed(name)


def test_a_job_that_runs_is_listed_as_it_is_now(rocketmq, topic, tmp_path, files_read):
    async def scenario():
        gate = Gate()
        async with console(rocketmq, tmp_path, sleep=gate.sleep) as (jobs, live):
            name = await start(jobs, live, topic)
            await gate.waiting.wait()
            before = await jobs.listed(name)
            gate.through.set()
            await jobs.settled(name, None)
            return before, await jobs.listed(name)

    before, after = asyncio.run(scenario())
    assert (before.word, before.counts["sent"]) == ("running", 1)
    assert (after.word, after.counts["sent"]) == ("done", COUNT)
    # Once for the list, and once to follow what was sent.
    assert len(files_read) <= 2


def test_names_are_new_and_fit_for_files():
    names = {new_name() for _ in range(100)}
    assert len(names) == 100
    assert all(map(is_name, names))


@pytest.mark.parametrize(
    "text", ["", "../x", "20260101T000000-00000000000G", "20260101T000000-000000000000/"]
)
def test_what_was_not_made_here_is_no_name(text):
    with pytest.raises(BadInput):
        Order.of_form({"name": text, "reason": "a reason"})


def test_a_reason_is_one_line_and_bounded():
    def order(reason):
        return Order.of_form({"name": new_name(), "reason": reason})

    assert order(" a\n reason ").reason == "a reason"
    for wrong in ("", " \n", "x" * (limits.MAX_CONSOLE_REASON + 1)):
        with pytest.raises(BadInput):
            order(wrong)


# As a console of an earlier version wrote them.
JOB_FILE = (
    'd605b70f {"job":"20251124T093000-0123456789ab","count":1,"selection":"ids A of topic orders",'
    '"target":"their own topics","cluster":"10.0.0.1:9876","namespace":"","reason":"ticket 7",'
    '"user":"li","time":"2025-11-24T09:30:00+00:00","origin":""}\n'
    '79ef49f5 {"n":1,"topic":"orders","queue_id":0,"queue_offset":7,'
    '"offset_msg_id":"0A00000100002A9F0000000000000001","unique_key":"U-1","target":"orders"}\n'
    '2cdb2d06 {"n":1,"sending":1763976600000,"key":"K-1"}\n'
    'f3004d87 {"n":1,"sent":"U-1","offset_msg_id":"0A00000100002A9F0000000000000002"}\n'
)
ACT_FILE = (
    '{"name": "20251124T093001-0123456789ab", "kind": "send", "cluster": "live", "reason": '
    '"ticket 8", "user": "li", "time": "2025-11-24T09:30:01+00:00", "facts": {"topic": "orders", '
    '"msg_id": "U-2", "size": "3"}, "state": "done", "why": "", "results": {"send_status": '
    '"SEND_OK", "msg_id": "U-2", "offset_msg_id": "0A", "queue": "b 0/8"}}'
)


def test_jobs_and_acts_of_earlier_versions_are_listed_and_shown(tmp_path):
    directory = jobs_directory()
    directory.mkdir(parents=True)
    job, act = "20251124T093000-0123456789ab", "20251124T093001-0123456789ab"
    (directory / f"{job}.job").write_text(JOB_FILE, "ascii")
    (directory / f"{act}.act").write_text(ACT_FILE, "ascii")
    store = store_at(make_store(tmp_path / "s", [Sent(keys="k")]).path, "s")
    paths = ["/api/jobs", f"/api/jobs/{job}", f"/api/acts/{act}", f"/jobs/{job}", f"/jobs/{act}"]
    listed, sent_again, sent, *pages = answers(paths, store)
    assert [
        (each["name"], each["kind"], each["state"], each["what"], each["reason"])
        for each in listed.json()["jobs"]
    ] == [
        (act, "send", "done", "orders U-2", "ticket 8"),
        (job, "resend", "done", "ids A of topic orders → their own topics", "ticket 7"),
    ]
    (message,) = sent_again.json()["messages"]
    assert message["new_offset_msg_id"] == "0A00000100002A9F0000000000000002"
    assert sent.json()["results"]["queue"] == "b 0/8"
    assert "ticket 7" in pages[0].text
    assert "The broker has stored it." in pages[1].text


async def kept_job(jobs, live, *, login="root", topic="%DLQ%g", target="orders"):
    """Give the name of a job that nobody runs."""
    name = new_name()
    header = JobHeader(
        job=name,
        count=1,
        selection="s",
        target="t",
        cluster=live.admin.source.name,
        namespace="",
        reason="r",
        user="op",
        login=login,
        time="2026-01-01T00:00:00+00:00",
    )
    message = PlannedMessage(
        topic=topic, queue_id=0, queue_offset=0, offset_msg_id="id", unique_key="m", target=target
    )
    ResendJournal.create(jobs.path(name), header, [message]).close()
    return name


@pytest.mark.parametrize("verb", ["pause", "resume", "stop"])
@pytest.mark.parametrize(
    ("topics", "job", "refused"),
    [
        (("%DLQ%g",), ("%DLQ%g", "orders"), "orders"),
        (("orders",), ("%RETRY%g", "orders"), "%RETRY%g"),
        (("orders", "%DLQ%g"), ("%DLQ%g", "orders"), None),
        (("%DLQ%g",), ("%DLQ%g", "%RETRY%g"), None),
    ],
)
async def test_who_may_not_act_on_all_topics_of_a_job_may_not_change_it(  # noqa: PLR0917
    rocketmq, tmp_path, verb, topics, job, refused
):
    operator = Viewer("op", (Grant(Role.VIEWER), Grant(Role.OPERATOR, topics=topics)))
    async with console(rocketmq, tmp_path) as (jobs, live):
        topic, target = job
        name = await kept_job(jobs, live, topic=topic, target=target)
        look_up = jobs._look_up
        actions = Actions(look_up, jobs)
        with seen_by(operator):
            if refused:
                with pytest.raises(ActRefused, match=refused):
                    await actions.change(name, verb, rate=1)
            else:
                await actions.change(name, verb, rate=1)


async def test_jobs_of_others_neither_hide_ones_own_nor_are_counted(
    rocketmq, tmp_path, monkeypatch
):
    monkeypatch.setattr(limits, "MAX_CONSOLE_JOB_FILES", 2)
    async with console(rocketmq, tmp_path) as (jobs, live):
        own = [await kept_job(jobs, live, login="op")]
        for _ in range(2):
            await kept_job(jobs, live)
        # Of the command line, by a user of the machine who is named like one of the console.
        await kept_job(jobs, live, login="")
        look_up = jobs._look_up
        actions = Actions(look_up, jobs)
        with seen_by(Viewer("op", (Grant(Role.OPERATOR, topics=("orders",)),))):
            found = await actions.all_jobs()
        assert [each.name for each in found.jobs] == own
        assert found.more == 0
        everything = await actions.all_jobs()
        assert (len(everything.jobs), everything.more) == (2, 2)
