"""A reader as a process of its own: follows the ledger, asks, reports, ends with it.

``python -m tests.oracle.reader_process JSON`` with the fields of `Orders`; for the kind ``spark``
it is `tests.oracle.spark_reader`. What it has to say goes
to two files: ``report``, JSON lines of failures, of settled rounds and of figures in the end, and
``progress``, how many acknowledged messages it has asked after.
"""

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from rocketlens.errors import NotAStore
from tests.oracle.asking import Asker, Failure
from tests.oracle.judge import ERROR, FALSE_COMPLETE, INCOMPLETE, Judge, Verdict, min_offset_of
from tests.oracle.ledger import LedgerView
from tests.oracle.questions import Question
from tests.oracle.readers import CommandReader, FreshReader, HandleReader, OpenScan, WireReader

IDLE_S = 0.04
HOT_COUNT = 300
"""So often it looks at once after the last message: a broker may be writing the next."""
COMMAND_EVERY_S = 1.0
SETTLE_S = 20.0
PRUNE_EVERY = 500
WIDE_EVERY = 40
SCAN_STEP = 5


class Orders(NamedTuple):
    """What a reader process is told. ``kind``: ``handle``, ``scans``, ``command`` or ``wire``."""

    kind: str
    ledger: str
    store: str
    report: str
    progress: str
    seed: int
    ways_a_message: int = 2


class Reporter:
    """What all reader processes have: a view, a judge, and the two files they write."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.store = Path(orders.store)
        self.view = LedgerView(Path(orders.ledger))
        self.view.read()
        self.judge = Judge(self.view, lambda: min_offset_of(self.store))
        self.done = 0
        self.settled = 0
        self._parent = os.getppid()
        self._progress_file = os.open(orders.progress, os.O_WRONLY | os.O_CREAT)
        self._report_file = os.open(orders.report, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @property
    def goes_on(self) -> bool:
        """Whether the ledger goes on, and the process that writes it is there."""
        return not self.view.has_ended and os.getppid() == self._parent

    def tell(self, what: str, **fields: object) -> None:
        """Write a line of the report."""
        line = json.dumps({"what": what, **fields}, default=str)
        os.write(self._report_file, line.encode() + b"\n")

    def report(self, failure: Failure) -> None:
        """Report a failure with what can be said about it."""
        after = self.view.read_count
        self.tell("failure", reader=self.orders.kind, after=after, **failure._asdict())

    def progress(self, count: int, in_vain: int = 0) -> None:
        """Note how many messages were asked after, and how often while there was no store."""
        self.done = count
        os.pwrite(self._progress_file, f"{count:020} {in_vain:020}".encode(), 0)

    def open_handle(self) -> HandleReader:
        """Open the store as soon as there is one."""
        while True:
            try:
                return HandleReader(self.store)
            except NotAStore:
                if not self.goes_on:
                    raise
            self.view.read()
            time.sleep(IDLE_S)

    def tell_figures(self, asker: Asker, scans: int = 0) -> None:
        """Tell how much one asker asked, and how it went."""
        self.tell(
            "figures",
            reader=self.orders.kind,
            asked=dict(asker.asked),
            verdicts=dict(asker.verdicts),
            scans=scans,
            late=asker.late_count,
            max_late_ms=asker.max_late_ms,
        )

    def close(self) -> None:
        """Close the files."""
        self.view.close()
        os.close(self._progress_file)
        os.close(self._report_file)


class ReaderProcess(Reporter):
    """The loop of a process."""

    def __init__(self, orders: Orders) -> None:
        super().__init__(orders)
        self.scan: OpenScan | None = None
        self.scans = 0
        self.idle_count = 0
        self.in_vain = 0
        reader: Any
        if orders.kind in ("handle", "scans"):
            reader = self.open_handle()
        else:
            reader = (
                CommandReader(self.store) if orders.kind == "command" else WireReader(self.view)
            )
        self.asker = Asker(
            reader, self.judge, self.report, seed=orders.seed, fresh=FreshReader(self.store)
        )
        # Asked for nothing but stretches of the log, it learns of new log by nothing else.
        self.wide = self._wide_asker() if orders.kind == "scans" else None
        self.tell("ready")

    def _wide_asker(self) -> Asker:
        reader, fresh = self.open_handle(), FreshReader(self.store)
        return Asker(reader, self.judge, self.report, seed=self.orders.seed + 1, fresh=fresh)

    def run(self) -> None:
        """Ask until the ledger ends."""
        while self.goes_on:
            self.view.read()
            if self.orders.kind == "command":
                self._by_the_second()
            elif self.view.new:
                self._next_message()
            else:
                self._meanwhile()
            for asker in self._askers():
                asker.ask_again()
            if self.view.settle_number > self.settled and not self.view.new:
                self._settle()
        self._figures()

    def _next_message(self) -> None:
        number = self.view.new.popleft()
        self.idle_count = 0
        if getattr(self.asker.reader, "can_ask", True):
            self.asker.ask_about(number, self.orders.ways_a_message)
        self.progress(self.done + 1, self.in_vain)
        if self.done % PRUNE_EVERY == 0:
            self.view.drop_below(min_offset_of(self.store))
        if self.wide is not None:
            if self.done % WIDE_EVERY == 0:
                self.wide.ask_wide()
            self._scan(self.wide)

    def _meanwhile(self) -> None:
        """Nothing new was acknowledged: look at the end of the log all the same."""
        self.idle_count += 1
        if self.idle_count > HOT_COUNT or self.view.broker is None:
            time.sleep(IDLE_S)
        if not getattr(self.asker.reader, "can_ask", True):
            return
        if self.view.here():
            self.asker.ask_any()
            if self.wide is not None:
                self._scan(self.wide)
        else:
            # The store is being moved, or is new: whatever is said must be no surprise.
            self._ask_in_vain()
            time.sleep(IDLE_S)

    def _ask_in_vain(self) -> None:
        self.asker.ask(Question("key", "nobody's key", "NoTopic"))
        self.in_vain += 1
        self.progress(self.done, self.in_vain)

    def _scan(self, wide: Asker) -> None:
        if self.scan is None:
            topics = sorted({acked.topic for acked in self.view.here().values()})
            if not topics:
                return
            topic = wide.chance.choice((*topics, None))
            self.scan = OpenScan(wide.reader.store, self.judge, topic)
        step = min(max(SCAN_STEP, len(self.view.here()) // 100), 200)
        try:
            goes_on = self.scan.step(step)
        except Exception as error:  # noqa: BLE001 - a scan that raises is a failure to report
            says = "".join(traceback.format_exception(error))
            self.scan.verdicts.append(Verdict(ERROR, says[-1500:]))
            goes_on = False
        if not goes_on:
            self._end_scan(wide, self.scan)
            self.scan = None

    def _end_scan(self, wide: Asker, scan: OpenScan) -> None:
        self.view.read()
        self.scans += 1
        reply = scan.reply()
        missing = self.judge.missing(scan.expected)
        if missing:
            what = FALSE_COMPLETE if reply.complete else INCOMPLETE
            scan.verdicts.append(Verdict(what, f"missing {len(missing)}: {missing[:3]}"))
        is_moved = self.judge.is_moved(scan.expected)
        for verdict in scan.verdicts:
            if verdict.what == INCOMPLETE:
                wide.verdicts["incomplete scan"] += 1
            elif not is_moved:
                wide.note(verdict, scan.question, reply)

    def _scan_all(self, wide: Asker) -> None:
        """Scan each topic to its end, and ask for stretches."""
        for _ in range(4):
            wide.ask_wide()
        for _ in range(2):
            self._scan(wide)
            while self.scan is not None:
                self._scan(wide)

    def _askers(self) -> list[Asker]:
        return [self.asker, *([self.wide] if self.wide is not None else [])]

    def _by_the_second(self) -> None:
        newest = None
        while self.view.new:
            newest = self.view.new.popleft()
        self.progress(self.view.read_count)
        begun_s = time.monotonic()
        if newest is not None:
            self.asker.ask_about(newest)
        elif self.view.here():
            self.asker.ask_any()
        rest_s = COMMAND_EVERY_S - (time.monotonic() - begun_s)
        if self.view.settle_number == self.settled and rest_s > 0:
            time.sleep(rest_s)

    def _settle(self) -> None:
        """Nothing is written now: everything must be found, and what waits with it."""
        if self.orders.kind == "command":
            for _ in range(4):
                self.asker.ask_any()
        elif getattr(self.asker.reader, "can_ask", True):
            self.view.drop_below(min_offset_of(self.store))
            self.asker.ask_everything()
        if self.wide is not None:
            self.scan = None
            self._scan_all(self.wide)
        for asker in self._askers():
            deadline_s = time.monotonic() + SETTLE_S
            while asker.waiting and time.monotonic() < deadline_s:
                asker.ask_again(len(asker.waiting))
            asker.give_up_waiting()
        self.settled = self.view.settle_number
        self.tell("settled", number=self.settled)

    def _figures(self) -> None:
        for asker in self._askers():
            self.tell_figures(asker, self.scans if asker is self.wide else 0)
            asker.reader.close()
        self.close()


def main() -> None:
    """Run, and tell of whatever ends it."""
    orders = Orders(**json.loads(sys.argv[1]))
    try:
        if orders.kind == "spark":
            # It pays for Spark, the others do not.
            from tests.oracle.spark_reader import SparkProcess

            SparkProcess(orders).run()
        else:
            ReaderProcess(orders).run()
    except BaseException:
        with Path(orders.report).open("a", encoding="utf-8") as report:
            report.write(json.dumps({"what": "broken", "says": traceback.format_exc()}) + "\n")
        raise


if __name__ == "__main__":
    main()
