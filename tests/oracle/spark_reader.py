"""Spark as a reader that stays: a stream with one checkpoint, and batch reads of topics.

A run of the stream begins with what was acknowledged before, and must have given all of it in the
end, over all its runs once each.
"""

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from rocketlens.pipeline.session import start
from rocketlens.pipeline.source import RocketMQDataSource
from tests.oracle.asking import Asker
from tests.oracle.judge import ERROR, FALSE_COMPLETE, Expected, Verdict
from tests.oracle.questions import Found, Question, Reply, reply_of
from tests.oracle.reader_process import Orders, Reporter

REST_S = 0.5
NO_WORKER = "Python worker failed to connect back"
LOG_BYTES_A_PARTITION = 1 << 20


def found_of_row(row: Any) -> Found:
    """Return what matters of a message."""
    values = {name: getattr(row, name) for name in Found._fields}
    fixed = {"keys": tuple(row.keys), "body": bytes(row.body), "properties": dict(row.properties)}
    return Found(**(values | fixed))


class TableReader:
    """A batch read for each question."""

    kinds = (("scan", "own"),)

    def __init__(self, spark: Any, store: Path) -> None:
        self.spark = spark
        self.store = store

    def ask(self, question: Question) -> Reply:
        reply = reply_of(lambda: self._read(question.topic))
        return self.ask(question) if NO_WORKER in reply.says else reply

    def _read(self, topic: str | None) -> Reply:
        reader = self.spark.read.format("rocketmq").option("store", str(self.store))
        reader = reader.option("maxPartitionBytes", str(LOG_BYTES_A_PARTITION))
        rows = (reader.option("topic", topic) if topic else reader).load().collect()
        found = sorted(map(found_of_row, rows), key=lambda one: one.physical_offset)
        return Reply(tuple(found))

    def state(self) -> str:
        return "a table for each question"


class SparkProcess(Reporter):
    """The loop of a process."""

    def __init__(self, orders: Orders) -> None:
        super().__init__(orders)
        self.checkpoint = Path(orders.report).with_suffix(".checkpoint")
        self.spark = start("local[1]", config={"spark.sql.shuffle.partitions": "1"})
        self.spark.dataSource.register(RocketMQDataSource)
        reader = TableReader(self.spark, self.store)
        self.asker = Asker(reader, self.judge, self.report, seed=orders.seed)
        self.given: dict[int, int] = {}
        """How often the stream has given each physical offset of this lineage."""
        self.numbers: set[int] = set()
        self.lineage: int | None = None
        self.runs = 0
        self.tell("ready")

    def run(self) -> None:
        """Read until the ledger ends."""
        while self.goes_on:
            self.view.read()
            read_to = self.view.read_count
            settles = self.view.settle_number
            self.view.new.clear()
            if self.view.here():
                if not self._stream():
                    continue
                topics = sorted({acked.topic for acked in self.view.here().values()})
                if topics:  # the stream may have read on in the ledger, to a store moved away
                    self.asker.ask(Question("scan", topic=self.asker.chance.choice(topics)))
                    self.asker.give_up_waiting()
            self.progress(read_to)
            if settles > self.settled:
                self.settled = settles
                self.tell("settled", number=settles)
            else:
                time.sleep(REST_S)
        self.asker.asked["stream/own"] = self.runs
        self.tell_figures(self.asker)
        self.spark.stop()
        self.close()

    def _stream(self) -> bool:
        """Read what the stream has not given yet; says whether that could be tried."""
        if self.lineage != self.view.lineage:
            # Another log: what the checkpoint knows is of the one before.
            self._begin_again()
        question = Question("scan")
        expected = self.judge.expect(question)
        expected.messages.update(self.view.here())
        expected.seen.update(self.numbers)
        self.runs += 1
        verdicts: list[Verdict] = []
        try:
            self._run_once(expected, verdicts)
        except Exception as error:  # noqa: BLE001 - whatever Spark raises is its answer
            if NO_WORKER in str(error):
                # Spark's own limit, on a machine that is busy with other work.
                return False
            verdicts.append(Verdict(ERROR, str(error)[:1500]))
        self.view.read()
        if self.judge.is_moved(expected):
            self._begin_again()
            return True
        self.numbers |= expected.seen
        missing = self.judge.missing(expected)
        if missing and not verdicts:
            text = f"missing {len(missing)} in the stream: {missing[:3]}"
            verdicts.append(Verdict(FALSE_COMPLETE, text))
            # Said once.
            self.numbers |= {acked.number for acked in missing}
        for verdict in verdicts:
            self.asker.note(verdict, replace(question, text="stream"), Reply())
        if any(verdict.what == ERROR for verdict in verdicts):
            self._begin_again()
        return True

    def _run_once(self, expected: Expected, verdicts: list[Verdict]) -> None:
        def take(batch: Any, _: int) -> None:
            for row in batch.collect():
                found = found_of_row(row)
                self.given[found.physical_offset] = self.given.get(found.physical_offset, 0) + 1
                if self.given[found.physical_offset] > 1:
                    verdicts.append(Verdict("wrong", f"given twice: {found.physical_offset}"))
                verdicts.extend(self.judge.wrong(expected, found))

        # The cleaner may delete what was not read yet, and then that is not this stream's fault.
        options = {"store": str(self.store), "failOnDataLoss": "false"}
        stream = self.spark.readStream.format("rocketmq").options(**options).load()
        query = (
            stream.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def _begin_again(self) -> None:
        self.lineage = self.view.lineage
        self.given.clear()
        self.numbers.clear()
        if self.checkpoint.exists():
            shutil.rmtree(self.checkpoint)
