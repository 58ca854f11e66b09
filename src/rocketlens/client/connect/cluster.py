"""The shared state of a cluster's clients: name servers, routes and connections.

It connects only to the name servers that the user names, and to the brokers that those list. Name
servers are asked in turn, first the one that last responded.
"""

import asyncio
import logging
import os
import ssl
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from rocketlens import limits
from rocketlens.client.connect.route import ROUTE_REFRESH_S, Broker, Recent, Route, brokers_of
from rocketlens.errors import (
    BadAnswer,
    BadInput,
    BrokerError,
    CallTimeout,
    ProtocolError,
    RemotingError,
    RocketLensError,
    TopicNotFound,
    WrongUse,
)
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.rocketmq import DEFAULT_TOPIC, NAME_SERVER_VARIABLES
from rocketlens.net.channel import Channel, Handler
from rocketlens.net.pace import parsed
from rocketlens.net.pool import NAME_SERVER_EXPECTED, NO_HANDLERS, ClientPool, parse_address
from rocketlens.wire.acl import UNSIGNED_FLAG, signed_fields
from rocketlens.wire.bodies.tables import ClusterInfo, KvTable, TopicConfig, TopicRouteData
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import brokers as commands
from rocketlens.wire.commands.groups import GET_BROKER_RUNTIME_INFO
from rocketlens.wire.declare import A, Command, NoFields, Q, read_body

MIN_NAMESRV_TIMEOUT_S: Final = 1.0
"""Seconds that each of many name servers has to answer before the next is asked."""
MAX_MESSAGE_ANSWERS: Final = 8
"""Concurrent requests for messages; each answer can have 16 MiB. RocketMQ: any."""
DISPATCH_WAIT_S: Final = 2.0
"""Seconds that a query waits for a broker to index the messages stored before it."""
SCHEME: Final = "http://"
"""A meaningless prefix that RocketMQ's clients accept."""


def name_server_addresses(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """Parse ``"a:9876;b:9876"``, or several addresses; by default those of the environment.

    :raises BadInput: if there is none, or one is not an address.
    """
    if given is None:
        given = next(filter(None, map(os.environ.get, NAME_SERVER_VARIABLES)), "")
    if not isinstance(given, str):
        given = ";".join(given)
    # Other clients separate addresses by commas, and an address has none.
    parts = [part.strip().removeprefix(SCHEME) for part in given.replace(",", ";").split(";")]
    addresses = tuple(dict.fromkeys(filter(None, parts)))
    if not addresses:
        raise BadInput(
            "no name server is given: name one, such as 127.0.0.1:9876 (several with semicolons "
            f"between), or set {NAME_SERVER_VARIABLES[0]}"
        )
    for address in addresses:
        parse_address(address)
    return addresses


logger: Final = logging.getLogger("rocketlens.client")

_NO_SAMPLE: Final = "NoSuchElementException"
_NO_SAMPLE_DELAY_S: Final = 0.1

B = TypeVar("B")
T = TypeVar("T")

RETRIABLE_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Codes after which RocketMQ's producers try another broker (2 and 1500 since 5.x)."""

_BROKER_EXPECTED: Final = (
    "; a broker is expected there: check that it runs, and that this machine reaches the address "
    "that it registered (brokerIP1)"
)

_OF_A_PROXY: Final = (
    "this is a RocketMQ proxy, which forwards sends, pulls and offsets, but no look-ups by key or "
    "id, and no lists of topics, brokers or groups: search a topic by time, position or content "
    "through it, or give the address of a name server"
)


class Credentials(NamedTuple):
    """Access key and secret that sign requests (RocketMQ's access control since 4.4)."""

    access_key: str
    secret_key: str
    security_token: str | None = None

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key!r})"


class BrokerAnswer(NamedTuple, Generic[T]):
    """The answer of one broker; ``value`` is None if neither master nor slaves responded."""

    broker: Broker
    value: T | None
    coverage: Coverage


class ClusterCalls:
    """Name servers, routes and connections; created anywhere, used in one event loop.

    ``clock`` returns monotonic seconds.
    """

    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        *,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = limits.ADMIN_TIMEOUT_S,
        connect_timeout_s: float = limits.CONNECT_TIMEOUT_S,
        handlers: Mapping[int, Handler] = NO_HANDLERS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name_servers: Final = name_server_addresses(name_servers)
        self.timeout_s: Final = timeout_s
        self._credentials: Final = credentials
        self._clock: Final = clock
        self._allowed: Final = set(self.name_servers)
        self._pool: Final = ClientPool(
            self._allowed.__contains__,
            handlers=handlers,
            tls=tls,
            connect_timeout_s=connect_timeout_s,
            call_timeout_s=timeout_s,
            expected=self._expected,
        )
        self._first_name_server = 0
        self._routes: dict[str, tuple[float, Route]] = {}
        self._fetching: dict[str, asyncio.Task[Route]] = {}
        self._turns: Final = asyncio.Semaphore(MAX_MESSAGE_ANSWERS)
        self.brokers_refusing_tools: Final[set[str]] = set()
        """Addresses of brokers at which the group of tools must not consume."""
        self.topic_configs: Final = Recent[tuple[str, str], TopicConfig | BrokerError](clock)
        """Topic configurations by topic and address."""
        self.have_former_messages: Final = Recent[tuple[str, str, int], bool](clock)
        """True if former queues of a topic have messages, by address, topic and the first former
        queue id: see `rocketlens.client.search.queue_offsets`.
        """
        self.broker_configs: Final = Recent[str, Mapping[str, str]](clock)
        """Broker configurations by address; empty if a broker does not return it."""

    # Calls.

    async def call(
        self,
        address: str,
        command: Command[Q, A],
        header: Q,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> RemotingCommand:
        """Send a request; return the response with any code. ``timeout_s`` includes connecting.

        :raises RemotingError: if there is no response.
        """
        wait_s = self.timeout_s if timeout_s is None else timeout_s
        ext_fields = self._signed(command.request.encode(header), body)
        channel = self._pool.ready_channel(address)
        if channel is not None:
            return await channel.request(command.code, ext_fields, body, timeout_s=wait_s)
        async with within(wait_s, address, "no answer"):
            return await self._pool.call(address, command.code, ext_fields, body, timeout_s=wait_s)

    async def ask(
        self,
        address: str,
        command: Command[Q, A],
        header: Q,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> RemotingCommand:
        """Send a request; return the response if its code is success.

        :raises BrokerError: if it has another code.
        :raises RemotingError: if there is no response.
        """
        answer = await self.call(address, command, header, body, timeout_s=timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise broker_error(address, answer)
        return answer

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Wait for a turn to request messages, which bounds the number of 16 MiB responses.

        A request to a connected broker does not wait for connections to others.

        :raises RemotingError: if there is no connection.
        """
        if self._pool.ready_channel(address) is None:
            async with within(self.timeout_s, address, "no connection"):
                await self._pool.channel(address)
        async with self._turns:
            yield

    async def ask_for(
        self,
        kind: type[B],
        address: str,
        command: Command[Q, A],
        header: Q,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
        check: Callable[[B], object] | None = None,
    ) -> B:
        """Send a request; return the response's JSON body, all within the timeout.

        Long parsing runs in a thread, and stops at the timeout. ``check`` can reject the body with
        a ProtocolError.

        :raises BrokerError: if the response has another code than success.
        :raises BadAnswer: if it cannot be parsed, or ``check`` rejects it.
        :raises RemotingError: if there is no response.
        """
        wait_s = self.timeout_s if timeout_s is None else timeout_s
        is_over = False

        def still_wanted() -> None:
            if is_over:
                raise ValueError("the caller does not wait any more")

        try:
            what = f"its answer to {request_name(command)} was not read"
            async with within(wait_s, address, what):
                answer = await self.ask(address, command, header, body, timeout_s=wait_s)
                content = answer.body

                def read() -> B:
                    value = read_body(kind, content, check=still_wanted)
                    if check is not None:
                        check(value)
                    return value

                return await parsed(read, content)
        except ProtocolError as error:
            raise BadAnswer(address, request_name(command), str(error)) from None
        finally:
            is_over = True

    def _expected(self, address: str) -> str:
        return NAME_SERVER_EXPECTED if address in self.name_servers else _BROKER_EXPECTED

    async def channel(self, address: str) -> Channel:
        """Return the connection to an address, opened if necessary.

        :raises RemotingError: if it cannot be opened.
        """
        return await self._pool.channel(address)

    async def tell(
        self, address: str, command: Command[Q, A], header: Q, body: bytes = b""
    ) -> None:
        """Send a one-way request.

        :raises RemotingError: if there is no connection.
        """
        ext_fields = self._signed(command.request.encode(header), body)
        await self._pool.tell(address, command.code, ext_fields, body)

    async def ask_broker(
        self, broker: Broker, ask: Callable[[str], Awaitable[T]]
    ) -> BrokerAnswer[T]:
        """Ask a broker's master, or if it fails its slaves in turn; failures are in the result.

        A slave's answer is used, but may lack messages that the master acknowledged before the
        slave copied them. So its coverage is a failure that names the slave.
        """
        errors: list[str] = []
        if broker.master is None and broker.addresses:
            errors.append("its master is not registered")
        for address in broker.in_order:
            try:
                value = await ask(address)
            except WrongUse:
                raise
            except RocketLensError as error:
                text = str(error)
                if isinstance(error, BrokerError) and self._is_limit_of_proxy(error):
                    text += f": {_OF_A_PROXY}"
                errors.append(text if address in text else f"{address}: {text}")
                continue
            state = SourceState.FAILED if errors else SourceState.SEARCHED
            problem = None
            if errors:
                problem = (
                    f"{'; '.join(errors)}; its slave {address} answered, which may lack the newest "
                    "messages"
                )
            source = f"{broker.name} ({address})"
            return BrokerAnswer(
                broker, value, Coverage(source, SourceKind.BROKER, state, None, problem)
            )
        problem = "; ".join(errors) or "the name server knows no address of it"
        return BrokerAnswer(broker, None, failed_broker(broker.name, problem))

    async def ask_brokers(
        self, brokers: Iterable[Broker], ask: Callable[[Broker, str], Awaitable[T]]
    ) -> list[BrokerAnswer[T]]:
        answers = [self.ask_broker(broker, partial(ask, broker)) for broker in brokers]
        return await asyncio.gather(*answers)

    async def ask_all(
        self, addresses: Sequence[str], command: Command[Q, A], header: Q, body: bytes = b""
    ) -> None:
        """Ask all brokers at once; raise the first error, with notes on the others' outcomes."""
        calls = [self.ask(each, command, header, body) for each in addresses]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        errors = [each for each in outcomes if isinstance(each, BaseException)]
        if errors:
            for address, outcome in zip(addresses, outcomes, strict=True):
                text = str(outcome) if isinstance(outcome, BaseException) else "done"
                errors[0].add_note(f"{address}: {text}")
            raise errors[0]

    async def ask_name_servers_for(
        self,
        kind: type[B],
        command: Command[Q, A],
        header: Q,
        check: Callable[[B], object] | None = None,
    ) -> B:
        """Ask the name servers in turn until a response can be parsed, as `ask_for` does.

        :raises BrokerError: if one responded with an error, and none with success.
        :raises RemotingError: if none responded.
        """
        return await self.first_of_name_servers(
            lambda address, timeout_s: self.ask_for(
                kind, address, command, header, timeout_s=timeout_s, check=check
            )
        )

    async def first_of_name_servers(self, ask: Callable[[str, float], Awaitable[T]]) -> T:
        """Ask the name servers in turn until one responds with success; they share one timeout.

        A name server that responds with an error may have just started, so the next one is asked.

        :raises BrokerError: if one responded with an error, and none with success.
        :raises RemotingError: if none responded.
        """
        refused: BrokerError | None = None
        failed: RemotingError | None = None
        count = len(self.name_servers)
        timeout_s = max(self.timeout_s / count, min(self.timeout_s, MIN_NAMESRV_TIMEOUT_S))
        for number in range(self._first_name_server, self._first_name_server + count):
            address = self.name_servers[number % count]
            try:
                answer = await ask(address, timeout_s)
            except BrokerError as error:
                refused = refused or error
            except RemotingError as error:
                failed = failed or error
            else:
                self._first_name_server = number % count
                return answer
        if refused is not None:
            raise await self.refusal_of_name_server(refused)
        raise failed or AssertionError("there is a name server")

    def _is_limit_of_proxy(self, error: BrokerError) -> bool:
        """Return True if a proxy refused a request that it does not forward to brokers.

        A broker at a name server's address is a proxy: a proxy returns itself in routes.
        """
        is_unknown = error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        return is_unknown and error.address in self.name_servers

    async def refusal_of_name_server(self, error: BrokerError) -> BrokerError:
        """Return the error, explained if the address is that of a broker or a proxy."""
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return error
        header = commands.GetRouteInfoRequest(topic=DEFAULT_TOPIC)
        try:
            answer = await self.call(error.address, commands.GET_ROUTEINFO_BY_TOPIC, header)
        except RemotingError:
            return error
        is_broker = answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        doubt = "is this the address of a broker, and not of a name server?"
        remark = f"{error.remark}: {doubt if is_broker else _OF_A_PROXY}"
        return BrokerError(error.address, error.code, remark, retriable=False)

    # Routes.

    async def route(self, topic: str, *, wait: bool = True) -> Route:
        """Return the route of a topic, from the cache if it is under 30 s old.

        An older one is refreshed: a query (``wait``) waits, and uses the old route if the refresh
        fails; a producer gets the old route at once.

        :raises TopicNotFound: if no name server knows it.
        :raises RemotingError: if no name server responds and no route is cached.
        """
        cached = self._routes.get(topic)
        if cached is None:
            return await self.fresh_route(topic)
        since_s, route = cached
        if self._clock() - since_s < ROUTE_REFRESH_S:
            return route
        if not wait:
            self._fetch(topic)
            return route
        try:
            return await self.fresh_route(topic)
        except RemotingError as error:
            logger.warning("the route of topic %s stays as it was: %s", topic, error)
            return route

    async def fresh_route(self, topic: str) -> Route:
        """Ask the name servers for a route; concurrent callers share the response.

        :raises TopicNotFound: if no name server knows the topic.
        :raises RemotingError: if none responds.
        """
        # Shielded: other callers may wait for the same response when one is cancelled.
        return await asyncio.shield(self._fetch(topic))

    def forget_route(self, topic: str) -> None:
        self._routes.pop(topic, None)

    async def all_brokers(self, cluster_name: str | None = None) -> dict[str, Broker]:
        """Return every registered broker, or those of one cluster, by name.

        :raises RemotingError: if no name server responds.
        """
        info = await self.ask_name_servers_for(
            ClusterInfo, commands.GET_BROKER_CLUSTER_INFO, NoFields(), check=_brokers_in
        )
        brokers = _brokers_in(info)
        self.allow(brokers)
        if cluster_name is not None:
            names = info.cluster_addr_table.get(cluster_name, ())
            brokers = {name: broker for name, broker in brokers.items() if name in names}
        return brokers

    def known_masters(self) -> set[str]:
        return {each.master for each in self._known_brokers() if each.master is not None}

    def known_addresses(self) -> set[str]:
        return {each for broker in self._known_brokers() for each in broker.addresses.values()}

    def _known_brokers(self) -> Iterator[Broker]:
        for _, route in self._routes.values():
            yield from route.brokers.values()

    async def close(self) -> None:
        """Close all connections; pending calls fail."""
        fetching = list(self._fetching.values())
        for task in fetching:
            task.cancel()
        if fetching:
            await asyncio.wait(fetching)
        await self._pool.close()

    def _fetch(self, topic: str) -> asyncio.Task[Route]:
        task = self._fetching.get(topic)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._fetch_route(topic))
            self._fetching[topic] = task
            task.add_done_callback(lambda done: self._end_fetch(topic, done))
        return task

    async def _fetch_route(self, topic: str) -> Route:
        header = commands.GetRouteInfoRequest(topic=topic, accept_standard_json_only=True)
        try:
            received = await self.ask_name_servers_for(
                TopicRouteData,
                commands.GET_ROUTEINFO_BY_TOPIC,
                header,
                check=partial(Route.of, topic),
            )
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            self._routes.pop(topic, None)
            raise TopicNotFound(f"topic {topic}: no name server knows a broker that has it") from (
                error
            )
        route = Route.of(topic, received)
        self.allow(route.brokers)
        self._routes[topic] = self._clock(), route
        return route

    def _end_fetch(self, topic: str, done: asyncio.Task[Route]) -> None:
        self._fetching.pop(topic, None)
        with suppress(asyncio.CancelledError):
            error = done.exception()
            if error is not None:
                # Waiting callers get the error, too; a background refresh has none.
                logger.debug("no route of topic %s: %s", topic, error)

    def allow(self, brokers: Mapping[str, Broker]) -> None:
        """Allow connections to brokers that a name server listed."""
        for broker in brokers.values():
            self._allowed.update(broker.addresses.values())

    def allow_named(self, address: str) -> None:
        """Allow connections to an address that the user named; name servers know no proxies."""
        self._allowed.add(address)

    def _signed(self, ext_fields: dict[str, str], body: bytes) -> dict[str, str]:
        if self._credentials is None:
            return ext_fields
        # Brokers of 4.9 exclude this field when they verify a signature, brokers of 5 do not.
        # Answers are the same without it: it repeats ``indexType``, or lowers a maximum.
        ext_fields.pop(UNSIGNED_FLAG, None)
        return signed_fields(ext_fields, body, *self._credentials)


@asynccontextmanager
async def within(seconds: float, address: str, problem: str) -> AsyncIterator[None]:
    """Bound the time of a block.

    :raises CallTimeout: if it takes longer; with the address and the problem.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except CallTimeout:
        raise
    except TimeoutError:
        raise CallTimeout(address, f"{problem} in {seconds:g} s") from None


def _brokers_in(listed: ClusterInfo) -> dict[str, Broker]:
    return brokers_of(listed.broker_addr_table.values())


async def runtime_table(cluster: ClusterCalls, address: str) -> Mapping[str, str]:
    """Return the runtime information of a broker.

    RocketMQ refuses this request in the first second after its start, while it has no sample of its
    rates (an empty ``LinkedList``). The request is then repeated for `DISPATCH_WAIT_S`.

    :raises BrokerError: if it refuses.
    :raises RemotingError: if it does not answer.
    """
    tries_end = time.monotonic() + DISPATCH_WAIT_S
    while True:
        try:
            read = await cluster.ask_for(KvTable, address, GET_BROKER_RUNTIME_INFO, NoFields())
        except BrokerError as error:
            if _NO_SAMPLE not in (error.remark or "") or time.monotonic() > tries_end:
                raise
            await asyncio.sleep(_NO_SAMPLE_DELAY_S)
        else:
            return read.table


def failed_broker(source: str, error: str) -> Coverage:
    """Return the coverage of a broker that failed, or answered in part."""
    return Coverage(source, SourceKind.BROKER, SourceState.FAILED, None, error)


def broker_error(address: str, answer: RemotingCommand) -> BrokerError:
    retriable = answer.code in RETRIABLE_CODES
    return BrokerError(address, answer.code, answer.remark, retriable=retriable)


def fields_of(address: str, command: Command[Q, A], answer: RemotingCommand) -> A:
    """Return the fields of a response's header.

    :raises BadAnswer: if one is missing or cannot be parsed.
    """
    try:
        return command.response.decode(answer.ext_fields)
    except ProtocolError as error:
        raise BadAnswer(address, request_name(command), str(error)) from None


def request_name(command: Command[Q, A]) -> str:
    """Return the code and RocketMQ's name of a request, for error texts."""
    return f"request {int(command.code)} ({command.code.name})"


def failures(coverage: Sequence[Coverage]) -> str:
    return "; ".join(
        f"{each.source}: {each.error}" for each in coverage if each.state is SourceState.FAILED
    )
