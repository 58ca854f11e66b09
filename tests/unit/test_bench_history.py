"""What ``make bench`` keeps of a run, and which rows it calls worse."""

from pathlib import Path

from bench import history
from bench.history import Row

CPU, RATIO = "sends, cpu us", "broker sync /s, x"


def recorded(*rows: Row, is_quick: bool = False) -> dict[str, object]:
    """Return the record of a run of this machine."""
    return history.record(rows, is_quick=is_quick, load=0.0)


def test_a_row_that_became_worse_by_more_than_its_noise_is_named() -> None:
    past = [recorded(Row(CPU, [3.0, 3.1, 3.2]), Row(RATIO, [2.0, 2.1, 2.2]))]

    def worse(*rows: Row) -> list[str]:
        return [line.partition(":")[0] for line in history.worse(recorded(*rows), past)]

    assert worse(Row(CPU, [4.0, 4.1, 4.2]), Row(RATIO, [1.4, 1.5, 1.6])) == [CPU, RATIO]
    assert worse(Row(CPU, [2.0, 2.1, 2.2]), Row(RATIO, [3.4, 3.5, 3.6])) == []
    assert worse(Row(CPU, [2.0, 4.1, 9.0]), Row(RATIO, [1.0, 1.5, 9.0])) == []
    assert worse(Row(CPU, [3.1, 3.15, 3.2])) == []


def test_a_row_is_compared_with_the_last_record_that_has_it_of_such_a_machine() -> None:
    others = recorded(Row(CPU, [1.0, 1.0, 1.0])) | {"machine": {"processor": "another"}}
    quick = recorded(Row(CPU, [1.0, 1.0, 1.0]), is_quick=True)
    past = [
        recorded(Row(CPU, [1.0, 1.0, 1.0])),
        recorded(Row(CPU, [2.0, 2.0, 2.0])),
        recorded(Row(RATIO, [1.0, 1.0, 1.0])),
        others,
        quick,
    ]
    (line,) = history.worse(recorded(Row(CPU, [3.0, 3.0, 3.0])), past)
    assert line.startswith(f"{CPU}: 2 -> 3,")
    assert list(history.worse(recorded(Row(CPU, [2.0, 2.0, 2.0])), past)) == []


def test_a_record_names_no_host_and_no_path(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history.append(recorded(Row(CPU, [1.0, 2.0, 9.0]), Row("a single round", [1.0])), path)
    (one,) = history.read(path)
    assert one["rows"] == {CPU: {"median": 2.0, "spread": 4.0}}
    assert set(one["machine"]) == {"processor", "cores", "memory GiB"}
    assert set(one) == {"commit", "machine", "quick", "load", "rows"}


def test_every_record_that_is_kept_can_be_read() -> None:
    for one in history.read():
        assert set(one) == {"commit", "machine", "quick", "load", "rows"}
