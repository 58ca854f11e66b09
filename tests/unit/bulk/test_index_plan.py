from rocketlens.bulk import index_plan
from rocketlens.formats.index_file import Geometry
from rocketlens.store.disk import Disk


def test_one_index_file_is_written_by_several_tasks(tmp_path):
    plan = index_plan.IndexPlan("name", (), index_plan.IndexHeader(0, 0, 0, 0, 0, 1), 0)
    tasks = index_plan.tasks_of([plan], tmp_path, Geometry(100, 10), 8, Disk())
    ranges = [(unit.slot_low, unit.slot_high) for task in tasks for unit in task.units]
    assert len(tasks) == 8
    assert [low for low, _ in ranges] == [0, *(high for _, high in ranges[:-1])]
    assert ranges[-1][1] == 100
