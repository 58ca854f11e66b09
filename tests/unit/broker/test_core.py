"""What all processors of a broker share."""

import ast
import asyncio
import inspect
import logging

from rocketlens.broker import core
from tests.support.broker_world import running


async def test_messages_of_an_ipv6_producer_are_stored_with_its_address(tmp_path):
    async with running(tmp_path, brokerIP1="::1") as world:
        await world.send()
        (record,) = world.stored("Orders")
        assert record.born_host.address == "::1"
        assert record.store_host.address == "::1"


def test_damaged_tables_do_not_stop_the_start_and_are_named_and_kept(tmp_path, caplog):
    async def main(names):
        async with running(tmp_path) as world:
            for name in names:
                await world.send(name)
            return set(world.core.topics.topics)

    names = {"007", "-01", "00"}
    assert names <= asyncio.run(main(names))
    assert names <= asyncio.run(main(()))
    of_tables = [each for each in caplog.records if each.name.startswith("rocketlens.broker")]
    assert not [each for each in of_tables if each.levelno >= logging.WARNING]
    config = tmp_path / "store" / "config"
    for name in ("topics.json", "topics.json.bak"):
        (config / name).write_text("{]")
    assert not names & asyncio.run(main(()))
    assert "topics.json: not JSON" in caplog.text
    kept = (tmp_path / "store/rocketlens/aside").iterdir()
    assert "{]" in {each.read_text() for each in kept}


def test_nothing_is_put_into_a_core_after_it_was_made():
    """Each attribute is declared Final where it gets its value, and the type checker holds that.

    But `batches`, which are made when kernels are loaded.
    """
    [made] = [
        each
        for each in ast.walk(ast.parse(inspect.getsource(core)))
        if isinstance(each, ast.ClassDef) and each.name == "BrokerCore"
    ]
    declared = set()
    for node in ast.walk(made):
        if isinstance(node, ast.Assign):
            names = [ast.unparse(each) for each in node.targets if isinstance(each, ast.Attribute)]
            own = {name for name in names if name.startswith("self.") and name.count(".") == 1}
            assert own <= {"self.batches"}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
            if node.target.attr == "batches":
                continue
            assert ast.unparse(node.annotation).startswith("Final")
            declared.add(node.target.attr)
    assert {"topics", "timers", "held_pulls", "access", "tables"} <= declared
