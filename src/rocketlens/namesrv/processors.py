"""Request handlers of a name server, one method for each request code."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final
from weakref import WeakKeyDictionary

from rocketlens import limits
from rocketlens.formats import java_properties
from rocketlens.model.rocketmq import CRC_MASK, FAQ, ORDER_TOPIC_NAMESPACE
from rocketlens.namesrv.config import NameServerConfig
from rocketlens.namesrv.kv import KvConfig
from rocketlens.namesrv.routes import RouteTable
from rocketlens.net.channel import Channel, Handler, Response
from rocketlens.net.pace import ANSWER_THREAD, LARGE_BODY_BYTES, Pace, in_thread, parsed
from rocketlens.wire.bodies import tables as bodies
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import brokers as commands
from rocketlens.wire.declare import read_body, write_body

MAX_LISTED_AT_ONCE: Final = 1_000
"""Topics or brokers listed in one step: 1 ms."""
SUCCESS: Final = Response()


class Processors:
    """Answers requests from the tables, at once except for registrations of many topics.

    Routes and clusters are plain JSON with quoted integer keys for every client version. Clients
    before 4.9.4, which get unquoted keys from RocketMQ, read both.
    """

    def __init__(
        self, routes: RouteTable, kv: KvConfig, clock: Callable[[], float], config: NameServerConfig
    ) -> None:
        self.routes: Final = routes
        self.kv: Final = kv
        self._clock: Final = clock
        self._config: Final = config
        self._registering: Final = asyncio.Lock()
        self._namespace_bodies: Final[dict[str, tuple[Mapping[str, str], bytes]]] = {}
        self._in_order: Final[WeakKeyDictionary[Channel, asyncio.Lock]] = WeakKeyDictionary()
        """By connection: held during a registration, so that the next one waits."""

    def handlers(self) -> dict[int, Handler]:
        routes = self.routes
        return {
            RequestCode.PUT_KV_CONFIG: self.put_kv,
            RequestCode.GET_KV_CONFIG: self.get_kv,
            RequestCode.DELETE_KV_CONFIG: self.delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.list_kv,
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.BROKER_HEARTBEAT: self.broker_heartbeat,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.broker_member_group,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.GET_BROKER_CLUSTER_INFO: lambda _, __: _json(routes.cluster_info()),
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: (
                lambda _, channel: _topics(routes.topic_names(), channel)
            ),
            RequestCode.GET_TOPICS_BY_CLUSTER: self.topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: (
                lambda _, __: _json(routes.system_topics())
            ),
            RequestCode.GET_UNIT_TOPIC_LIST: (
                lambda _, channel: _topics(routes.unit_topics(unit=True, unit_sub=None), channel)
            ),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: (
                lambda _, channel: _topics(routes.unit_topics(unit=None, unit_sub=True), channel)
            ),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: (
                lambda _, channel: _topics(routes.unit_topics(unit=False, unit_sub=True), channel)
            ),
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register_topic,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_permission,
            RequestCode.GET_NAMESRV_CONFIG: self.get_configuration,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update_configuration,
        }

    async def put_kv(self, command: RemotingCommand, _: Channel) -> Response | None:
        fields = commands.PUT_KV_CONFIG.request.decode(command.ext_fields)
        await self.kv.put(fields.namespace, fields.key, fields.value)
        return SUCCESS

    def get_kv(self, command: RemotingCommand, _: Channel) -> Response:
        fields = commands.GET_KV_CONFIG.request.decode(command.ext_fields)
        value = self.kv.get(fields.namespace, fields.key)
        if value is None:
            remark = f"No config item, Namespace: {fields.namespace} Key: {fields.key}"
            return Response(ResponseCode.QUERY_NOT_FOUND, remark=remark)
        made = commands.GetKvConfigResponse(value=value)
        return Response(ext_fields=commands.GET_KV_CONFIG.response.encode(made))

    async def delete_kv(self, command: RemotingCommand, _: Channel) -> Response | None:
        fields = commands.DELETE_KV_CONFIG.request.decode(command.ext_fields)
        await self.kv.put(fields.namespace, fields.key, None)
        return SUCCESS

    def list_kv(self, command: RemotingCommand, _: Channel) -> Response:
        fields = commands.GET_KVLIST_BY_NAMESPACE.request.decode(command.ext_fields)
        body = self._namespace_body(fields.namespace)
        if body is None:
            remark = f"No config item, Namespace: {fields.namespace}"
            return Response(ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return Response(body=body)

    def _namespace_body(self, namespace: str) -> bytes | None:
        """Return a namespace as JSON, which is encoded once for each change."""
        table = self.kv.namespace(namespace)
        if table is None:
            return None
        cached = self._namespace_bodies.get(namespace)
        if cached is None or cached[0] is not table:
            cached = self._namespace_bodies[namespace] = (
                table,
                write_body(bodies.KvTable(table=table)),
            )
        return cached[1]

    async def register_broker(self, command: RemotingCommand, channel: Channel) -> Response | None:
        """Register a broker with its topics.

        Registrations of one connection are applied in their order. A large body is parsed in a
        thread, and its topics are written in steps; other requests are handled in between.
        """
        fields = commands.REGISTER_BROKER.request.decode(command.ext_fields)
        if fields.body_crc32 and zlib.crc32(command.body) & CRC_MASK != fields.body_crc32:
            return Response(ResponseCode.SYSTEM_ERROR, remark="crc32 not match")

        def decode() -> bodies.RegisterBrokerBody:
            return bodies.decode_registration(
                command.body, compressed=fields.compressed, version=command.version
            )

        async with self._in_order.setdefault(channel, asyncio.Lock()):
            body = await parsed(decode, command.body, channel)
            async with self._registering:
                if not channel.is_open:
                    return None
                steps = self.routes.register(fields, body, channel, self._clock())
                while True:
                    try:
                        next(steps)
                    except StopIteration as end:
                        return self._registration_response(end.value)
                    await asyncio.sleep(0)

    def _registration_response(
        self, registered: commands.RegisterBrokerResponse | None
    ) -> Response:
        if registered is None:
            return Response(ResponseCode.SYSTEM_ERROR, remark="register broker failed")
        wants_order = self._config.returnOrderTopicConfigToBroker
        order = self._namespace_body(ORDER_TOPIC_NAMESPACE) if wants_order else None
        return Response(
            ext_fields=commands.REGISTER_BROKER.response.encode(registered), body=order or b""
        )

    def unregister_broker(self, command: RemotingCommand, channel: Channel) -> Response:
        fields = commands.UNREGISTER_BROKER.request.decode(command.ext_fields)
        self.routes.leave(fields.cluster_name, fields.broker_addr, fields.broker_name, channel)
        return SUCCESS

    def query_data_version(self, command: RemotingCommand, _: Channel) -> Response:
        """Report if a broker's topics changed since it registered."""
        fields = commands.QUERY_DATA_VERSION.request.decode(command.ext_fields)
        version = self.routes.data_version(fields.cluster_name, fields.broker_addr)
        version_of_broker = read_body(bodies.DataVersion, command.body, LARGE_BODY_BYTES)
        changed = version is None or version != version_of_broker
        self.routes.touch(fields.cluster_name, fields.broker_addr, self._clock())
        made = commands.QueryDataVersionResponse(changed=changed)
        return Response(
            ext_fields=commands.QUERY_DATA_VERSION.response.encode(made),
            body=b"" if version is None else write_body(version),
        )

    def broker_heartbeat(self, command: RemotingCommand, _: Channel) -> Response:
        fields = commands.BROKER_HEARTBEAT.request.decode(command.ext_fields)
        self.routes.touch(fields.cluster_name, fields.broker_addr, self._clock())
        return SUCCESS

    def broker_member_group(self, command: RemotingCommand, _: Channel) -> Response:
        fields = commands.GET_BROKER_MEMBER_GROUP.request.decode(command.ext_fields)
        group = bodies.BrokerMemberGroup(
            cluster=fields.cluster_name,
            broker_name=fields.broker_name,
            broker_addrs=self.routes.member_addrs(fields.broker_name),
        )
        return _json(bodies.BrokerMemberGroupAnswer(broker_member_group=group))

    def route(
        self, command: RemotingCommand, channel: Channel
    ) -> Response | Awaitable[Response | None]:
        topic = commands.GET_ROUTEINFO_BY_TOPIC.request.decode(command.ext_fields).topic
        order = (
            self.kv.get(ORDER_TOPIC_NAMESPACE, topic) if self._config.orderMessageEnable else None
        )
        route = self.routes.route(topic, order)
        if route is None:
            remark = f"No topic route info in name server for the topic: {topic}{FAQ}"
            return Response(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        if len(route.broker_datas) > MAX_LISTED_AT_ONCE:
            return _json_in_thread(route, channel)
        return _json(route)

    async def topics_of_cluster(
        self, command: RemotingCommand, channel: Channel
    ) -> Response | None:
        fields = commands.GET_TOPICS_BY_CLUSTER.request.decode(command.ext_fields)
        return await _topics(self.routes.topics_of_cluster(fields.cluster), channel)

    async def register_topic(self, command: RemotingCommand, channel: Channel) -> Response | None:
        topic = commands.REGISTER_TOPIC_IN_NAMESRV.request.decode(command.ext_fields).topic
        body, limit = command.body, limits.MAX_CLIENT_JSON_BODY_BYTES
        route = await parsed(lambda: read_body(bodies.TopicRouteData, body, limit), body, channel)
        self.routes.register_topic(topic, route.queue_datas)
        return SUCCESS

    def delete_topic(self, command: RemotingCommand, _: Channel) -> Response:
        fields = commands.DELETE_TOPIC_IN_NAMESRV.request.decode(command.ext_fields)
        self.routes.delete_topic(fields.topic, fields.cluster_name)
        return SUCCESS

    def wipe_write_permission(self, command: RemotingCommand, _: Channel) -> Response:
        fields = commands.WIPE_WRITE_PERM_OF_BROKER.request.decode(command.ext_fields)
        count = self.routes.wipe_write_permission(fields.broker_name)
        made = commands.WipeWritePermissionResponse(wipe_topic_count=count)
        return Response(ext_fields=commands.WIPE_WRITE_PERM_OF_BROKER.response.encode(made))

    def add_write_permission(self, command: RemotingCommand, _: Channel) -> Response:
        """Add read and write permission to all topics of a broker."""
        fields = commands.ADD_WRITE_PERM_OF_BROKER.request.decode(command.ext_fields)
        count = self.routes.add_write_permission(fields.broker_name)
        made = commands.AddWritePermissionResponse(add_topic_count=count)
        return Response(ext_fields=commands.ADD_WRITE_PERM_OF_BROKER.response.encode(made))

    def get_configuration(self, _: RemotingCommand, __: Channel) -> Response:
        properties = java_properties.dumps_unescaped(self._config.properties_in_effect())
        return Response(body=properties.encode())

    def update_configuration(self, _: RemotingCommand, __: Channel) -> Response:
        """Refuse: any client that can connect could change the configuration."""
        return Response(ResponseCode.NO_PERMISSION, remark="Can not update config in black list.")


def _json(body: object) -> Response:
    return Response(body=write_body(body))


async def _json_in_thread(body: object, channel: Channel) -> Response | None:
    encoded = await in_thread(lambda: write_body(body), ANSWER_THREAD, owner=channel)
    return Response(body=encoded)


async def _topics(names: Iterator[str | None], channel: Channel) -> Response | None:
    """Return a list of topics, built in steps; a long one is encoded in a thread."""
    chosen: list[str] = []
    size, pace = 0, Pace()
    for name in names:
        if name is not None:
            chosen.append(name)
            # JSON adds two quotes and a comma.
            size += len(name) + 3
            if size > limits.MAX_ANSWER_FRAME_BYTES:
                remark = f"the names of all topics exceed {limits.MAX_ANSWER_FRAME_BYTES} bytes"
                return Response(ResponseCode.SYSTEM_ERROR, remark=remark)
        await pace.turn()
        if not channel.is_open:
            return None
    body = bodies.TopicList(topic_list=tuple(chosen))
    return (
        _json(body) if len(chosen) <= MAX_LISTED_AT_ONCE else await _json_in_thread(body, channel)
    )
