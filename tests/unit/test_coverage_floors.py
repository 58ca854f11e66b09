"""A room whose tests reach less than its floor is named, and nothing is rounded up."""

import pytest
from coverage import CoverageData

from tests.support.coverage_floors import FLOORS, PACKAGE, measured_files, rooms_of


def measured(ran, total, branches_ran=0, branches=0, *, lines=(), missing_branches=()):
    summary = {"covered_lines": ran, "num_statements": total}
    summary |= {"covered_branches": branches_ran, "num_branches": branches}
    return {
        "summary": summary,
        "missing_lines": list(lines),
        "missing_branches": list(missing_branches),
    }


def test_every_floor_is_of_a_room_that_exists():
    assert [room for room in FLOORS if not (PACKAGE / room).is_dir()] == []


@pytest.mark.parametrize(
    ("room", "ran", "is_low"),
    [
        *[("wire", 10_000, False), ("wire", 9_999, True)],
        *[("query", 9_500, False), ("query", 9_499, True)],
        *[("broker", 8_500, False), ("broker", 8_499, True)],
    ],
)
def test_a_room_is_low_from_one_line_below_its_floor_on(room, ran, is_low):
    [found] = rooms_of([(f"{room}/one.py", measured(ran, 10_000))])
    assert (found.name, found.is_low) == (room, is_low)
    assert ("below its floor" in str(found)) == is_low


def test_lines_and_branches_of_all_files_of_a_room_count_and_what_is_left_is_listed():
    rooms = rooms_of(
        [
            ("limits.py", measured(7, 7)),
            (
                "store/read/log.py",
                measured(8, 10, 3, 4, lines=(5, 6), missing_branches=[(5, 6), (8, 9)]),
            ),
            ("store/lock.py", measured(10, 10, 6, 6)),
        ]
    )
    assert [(room.name, room.ran, room.total) for room in rooms] == [
        (".", 7, 7),
        ("store", 27, 30),
    ]
    assert rooms[1].left == {"store/read/log.py": "5, 6, 8->9"}
    assert not rooms[0].is_low
    assert rooms[1].is_low


def test_a_copy_of_the_package_that_a_test_ran_is_left_out_though_it_is_gone(tmp_path):
    configuration = tmp_path / "pyproject.toml"
    run = f'branch = true\nparallel = true\ndata_file = "{tmp_path}/data"\n'
    configuration.write_text(f"[tool.coverage.run]\n{run}")
    ran = CoverageData(str(tmp_path / "data.one"))
    copy = tmp_path / "copy" / "rocketlens" / "limits.py"
    ran.add_arcs({str(copy): [(-1, 1)], str(PACKAGE / "limits.py"): [(-1, 1)]})
    ran.write()
    [(path, _)] = measured_files(configuration)
    assert path == "limits.py"
