"""The producers that are connected to a cluster.

They are connected to masters only, so a slave cannot answer for its master. Brokers of 4.9 before
4.9.3 do not know the request (328): they are named, and the answer is incomplete.
"""

from rocketlens.client.admin.group_calls import as_it_is
from rocketlens.client.connect.cluster import ClusterCalls
from rocketlens.client.connect.route import Broker
from rocketlens.client.connect.survey import CoverageByReason, Survey
from rocketlens.model.group import GroupClient, ProducerGroup, ProducersAnswer
from rocketlens.wire.bodies.consumer import ProducerTable
from rocketlens.wire.commands.admin import GET_ALL_PRODUCER_INFO
from rocketlens.wire.commands.command_table import NoFields


async def find_producers(cluster: ClusterCalls, survey: Survey) -> ProducersAnswer:
    """Return the producers of a cluster by group; each client once in a group.

    :raises RemotingError: if no name server answers.
    """

    async def table_of(_: Broker, address: str) -> ProducerTable:
        return await cluster.ask_for(
            as_it_is, ProducerTable, address, GET_ALL_PRODUCER_INFO, NoFields()
        )

    coverage = CoverageByReason()
    brokers = await survey.brokers()
    for each in brokers.coverage:
        coverage.add(each)
    groups: dict[str, dict[str, GroupClient]] = {}
    for answer in await cluster.ask_brokers(brokers.value.values(), table_of):
        coverage.add(answer.coverage)
        for group, members in answer.value.groups.items() if answer.value else ():
            known = groups.setdefault(group, {})
            for member in members:
                client = GroupClient(
                    member.client_id, member.remote_ip, member.language, member.version
                )
                known.setdefault(member.client_id, client)
    return ProducersAnswer(
        tuple(ProducerGroup(name, tuple(groups[name].values())) for name in sorted(groups)),
        coverage.all(),
    )
