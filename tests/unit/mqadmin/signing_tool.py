"""Calls of commands to a broker of ours in this process, as one of its users."""

from types import SimpleNamespace

from rocketlens.client.connect.cluster import broker_error
from rocketlens.client.connect.route import Broker
from rocketlens.mqadmin.command_line import Given
from rocketlens.mqadmin.printing.form import Form
from rocketlens.mqadmin.tool import Call
from rocketlens.wire.declare import read_body
from tests.unit.mqadmin.fake_tool import NOWHERE

CLUSTER = "DefaultCluster"


class SigningCluster:
    """One broker, asked by a `Signer`."""

    def __init__(self, signer):
        self.signer = signer

    async def ask(self, address, command, header, body=b""):
        fields = command.request.encode(header)
        answer = await self.signer(command.code, body, **fields)
        if answer.code != 0:
            raise broker_error(address, answer)
        return answer

    async def ask_for(self, body, address, command, header):
        answer = await self.ask(address, command, header)
        return read_body(body, answer.body)

    async def all_brokers(self, cluster=None):
        address = self.signer.world.service.address
        broker = Broker("broker-a", {0: address}, CLUSTER)
        return {"broker-a": broker} if cluster in {None, CLUSTER} else {}


def caller(signer, capsys):
    """Runs a command with options and gives what it printed, the broker's address as ADDR."""

    async def run(command, **options):
        capsys.readouterr()
        admin = SimpleNamespace(source=SimpleNamespace(cluster=SigningCluster(signer)))
        await command(Call(Given(options), Form(is_5=True), admin, NOWHERE))
        return capsys.readouterr().out.replace(signer.world.service.address, "ADDR")

    return run
