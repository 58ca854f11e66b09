"""Runs one phase of a job on Spark: a list of independent tasks, with progress.

Tasks and results are small and picklable; large data goes through files of a work directory that
driver and executors both see.
"""

import logging
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING, Final, TypeVar

from rocketlens.errors import StoreError

if TYPE_CHECKING:
    from pyspark import SparkContext

Task = TypeVar("Task")
Result = TypeVar("Result")
Progress = Callable[[str, int, int], None]
"""Called with the name of a phase, the number of its finished tasks, and of all its tasks."""

_POLL_S: Final = 0.1
_PYTHON_ERROR: Final = re.compile(
    r"^(?:[\w.]+\.)?((?<=rocketlens\.errors\.)\w+|\w+(?:Error|Exception|Changed)): (.*)$",
    re.MULTILINE,
)


def no_progress(_phase: str, _done: int, _total: int) -> None:
    """Show nothing."""


def run(
    context: "SparkContext",
    phase: str,
    tasks: Sequence[Task],
    function: Callable[[Task], Result],
    progress: Progress = no_progress,
) -> list[Result]:
    """Return ``function(task)`` for every task, in the order of the tasks.

    Each task is a Spark task. An interrupt (Ctrl-C) cancels the Spark job.

    :raises StoreError: if a task failed after Spark's retries, with the last line of its traceback.
    """
    if not tasks:
        return []
    progress(phase, 0, len(tasks))
    group = f"rocketlens {phase} {uuid.uuid4()}"
    results: list[Result] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            context.setJobGroup(group, f"rocketlens: {phase}")
            distributed = context.parallelize(tasks, len(tasks))
            results.extend(distributed.map(function).collect())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            failures.append(error)

    # Job groups belong to threads, and the caller's thread must stay free for Ctrl-C.
    thread = Thread(target=work, name=group, daemon=True)
    thread.start()
    try:
        shown = 0
        while thread.is_alive():
            thread.join(_POLL_S)
            done = _tasks_done(context, group)
            if shown < done < len(tasks):
                shown = done
                progress(phase, done, len(tasks))
    except BaseException:
        # Ctrl-C may have ended the JVM, too: py4j would log a traceback for each call.
        logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
        with suppress(Exception):
            context.cancelJobGroup(group)
        raise
    if failures:
        raise StoreError(f"{phase} failed: {reason_of(failures[0])}") from failures[0]
    progress(phase, len(tasks), len(tasks))
    return results


def reason_of(error: BaseException) -> str:
    """Return the line of a Spark failure with its cause: the worker's error, if it has one."""
    errors = _PYTHON_ERROR.findall(str(error))
    if errors:
        kind, text = errors[-1]
        return f"{kind}: {text}"
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


@contextmanager
def shorten_errors() -> Iterator[None]:
    """Convert errors of Spark, which contain those of our sources as text, to a `StoreError`."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise StoreError(f"Spark failed: {reason_of(error)}") from error


def _tasks_done(context: "SparkContext", group: str) -> int:
    tracker = context.statusTracker()
    done = 0
    for job in tracker.getJobIdsForGroup(group):
        job_info = tracker.getJobInfo(job)
        for stage in job_info.stageIds if job_info else ():
            stage_info = tracker.getStageInfo(stage)
            done += stage_info.numCompletedTasks if stage_info else 0
    return done
