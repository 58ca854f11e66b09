"""What all processors of a broker share."""

import ast
import asyncio
import inspect
import logging
import threading

from rocketlens import limits
from rocketlens.broker import core
from rocketlens.broker.lookup import search
from rocketlens.store.read.index import tail
from rocketlens.store.read.kernel_loader import KERNELS
from rocketlens.store.read.log.scan import LogWalk
from tests.support.broker_world import is_record, properties_of, running
from tests.support.no_kernels import refuse_kernels


def test_messages_of_an_ipv6_producer_are_stored_with_its_address(tmp_path):
    async def main():
        async with running(tmp_path, brokerIP1="::1") as world:
            await world.send()
            (record,) = world.stored("Orders")
            assert record.born_host.address == "::1"
            assert record.store_host.address == "::1"

    asyncio.run(main())


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


def test_a_broker_without_compiled_code_says_so_once_and_serves(tmp_path, monkeypatch, caplog):
    refuse_kernels(monkeypatch)
    body = bytes(limits.MAX_INTERPRETED_SCAN_BYTES)

    async def main(first):
        async with running(tmp_path) as world:
            for number in range(first, first + 4):
                keys = properties_of(KEYS=f"k{number}")
                assert (await world.send(properties=keys, body=body)).code == 0
            for number in range(first + 4):
                assert is_record((await world.query(f"k{number}")).body)
            assert (await world.pull()).code == 0

    asyncio.run(main(0))
    # The second time it has to read what it finds.
    asyncio.run(main(4))
    told = [each for each in caplog.records if "compiled code cannot be used" in each.getMessage()]
    assert len(told) == 1
    assert "could not be handled" not in caplog.text


def test_look_ups_are_answered_while_kernels_are_being_compiled(tmp_path, monkeypatch):
    hangs = threading.Event()
    for module in (tail, search):
        monkeypatch.setattr(module, "load_kernels", hangs.wait)
    for each in (LogWalk, tail.Tail):
        monkeypatch.setattr(each, "is_compiled", False)
    monkeypatch.setattr(tail, "LOAD_WAIT_S", 0.0)
    body = bytes(limits.MAX_INTERPRETED_SCAN_BYTES)

    async def main():
        async with running(tmp_path) as world:
            for number in range(4):
                await world.send(properties=properties_of(KEYS=f"k{number}"), body=body)
                assert is_record((await world.query(f"k{number}")).body)
            assert KERNELS.is_loading

    try:
        with KERNELS.in_background():
            asyncio.run(main())
    finally:
        hangs.set()


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
            names = [each.attr for each in node.targets if isinstance(each, ast.Attribute)]
            assert set(names) <= {"batches"}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
            if node.target.attr == "batches":
                continue
            assert ast.unparse(node.annotation).startswith("Final")
            declared.add(node.target.attr)
    assert {"topics", "timers", "held_pulls", "access", "tables"} <= declared
