from rocketlens.bulk import index_plan
from rocketlens.formats.index_file import Geometry
from rocketlens.store.disk import Disk


def test_each_index_file_is_written_by_one_task_and_small_ones_share_it(tmp_path):
    header = index_plan.IndexHeader(0, 0, 0, 0, 0, 1)
    plans = [index_plan.IndexPlan(str(number), (), header, 0) for number in range(10)]
    tasks = index_plan.tasks_of(plans, tmp_path, Geometry(100, 10), 1, Disk())
    assert [plan for task in tasks for plan in task.plans] == plans
    assert [len(task.plans) for task in tasks] == [3, 3, 3, 1]
    assert index_plan.tasks_of([], tmp_path, Geometry(100, 10), 1, Disk()) == []
