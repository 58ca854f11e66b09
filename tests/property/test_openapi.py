"""The console's API keeps to its own description, whatever a store or a cluster is asked for."""

import asyncio
from collections.abc import Mapping

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from rocketlens.client.send.message import Message
from rocketlens.testing import cluster
from tests.support.console_client import cluster_at, console_client, store_at
from tests.support.effort import sized
from tests.support.made_stores import Sent, make_store

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
# What is there: values made up from the description alone mostly find nothing.
KNOWN = {
    "source": st.sampled_from(("s", "c")),
    "topic": st.just("Orders"),
    "broker": st.sampled_from(("broker-a", "-")),
    "queue_id": st.integers(0, 3),
    "queue_offset": st.integers(0, 3),
    "q": st.sampled_from(("k", "Orders", "Orders/0/0")),
    "kind": st.just("auto"),
    "since": st.sampled_from(("2h", "now")),
    "until": st.just("now"),
    "zone": st.just("UTC"),
    "cursor": st.none(),
    "cluster": st.just("c"),
    "group": st.sampled_from(("readers", "%DLQ%readers")),
    "reason": st.just("a test"),
    "verb": st.sampled_from(("pause", "resume", "stop")),
}
REPLACED = st.fixed_dictionaries(KNOWN) | st.fixed_dictionaries({}, optional=KNOWN)


async def description_of(context):
    """What `/api/openapi.json` has."""
    async with console_client(context) as client:
        return (await client.get("/api/openapi.json")).json()


def requests_of(operations):
    """Requests as they are described, and others, some with values that lead to what is there."""
    cases = [
        operation.as_strategy(generation_mode=mode)
        for operation in operations
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    ]
    return st.lists(st.tuples(st.one_of(cases), REPLACED), min_size=20, max_size=20)


def with_values(case, values):
    """Put values where a request has parameters of their names."""
    message = case.body.get("message") if isinstance(case.body, Mapping) else None
    for part in (case.path_parameters, case.query, case.body, message):
        if isinstance(part, Mapping):
            part.update({name: values[name] for name in part.keys() & values.keys()})
    return case


def test_every_answer_of_the_api_is_one_that_its_description_has(tmp_path):
    made = make_store(tmp_path / "s", [Sent(keys="k", body=b"%d" % n) for n in range(3)])
    described = asyncio.run(description_of(store_at(made.path, "s")))
    schema = schemathesis.openapi.from_dict(described)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 20
    seen = set()

    with cluster() as running:
        with running.producer() as producer:
            producer.send(Message("Orders", "body", keys="k"))

        @settings(
            max_examples=sized(5, 100),
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(requests_of(operations))
        def ask(requests):
            async def run():
                contexts = store_at(made.path, "s"), cluster_at(running.name_server, "c")
                async with console_client(*contexts) as client:
                    for case, values in requests:
                        if values:
                            # What acts needs a name that was made for it.
                            values["name"] = (await client.get("/api/name")).json()["name"]
                        sent = with_values(case, values).as_transport_kwargs()
                        if isinstance(sent.get("data"), bytes):
                            sent["content"] = sent.pop("data")
                        client.cookies = sent.pop("cookies")
                        try:
                            answer = await client.request(**sent)
                        except httpx.InvalidURL:
                            continue
                        seen.add((case.operation.label, answer.status_code))
                        case.validate_response(answer, checks=CHECKS)

            asyncio.run(run())

        ask()

    assert len(seen) > len(operations)
