"""Every bound of this package: value, unit, why, and RocketMQ's own value.

A number that comes from outside (a file, a frame, a user) is compared with one of these before it
is used to allocate, loop or recurse.
"""

from typing import Final

MAX_TIMESTAMP_MS: Final = 2**63 - 1
"""End of a time range that has none, in milliseconds. RocketMQ: Long.MAX_VALUE."""

RECORD_BYTES: Final = 512 * 1024 * 1024
"""Largest record that is believed, in bytes.

A size word above it is damage, not a message. RocketMQ: maxMessageSize (default 4 MiB) + 64 KiB,
but brokers are configured far above that, and the segment's own end bounds it again.
"""

BODY_BYTES: Final = 64 * 1024 * 1024
"""Largest body after decompression, in bytes; more is an error, not memory.

Four times what a frame carries. RocketMQ does not bound it (zlib alone expands 1,028 times); its
clients send no body of over 4 MiB before compression, unless they are configured to.
"""

PROPERTIES_BYTES: Final = 32_767
"""Largest property string of a record, in bytes: its length is a signed 16-bit field."""

KEY_BYTES: Final = PROPERTIES_BYTES
"""Longest key that a record can hold, in UTF-8 bytes."""

MAX_TOPIC_CHARACTERS: Final = 255
"""Longest topic name in a store: those of retry and dead-letter topics. RocketMQ: the same."""

MAX_NEW_TOPIC_CHARACTERS: Final = 127
"""Longest name of other topics that are created. RocketMQ: the same (``TopicValidator``)."""

DEFAULT_QUERY_MESSAGES: Final = 64
"""Messages returned by ``query_message`` unless asked otherwise. RocketMQ: at most 64."""

ANSWER_BYTES: Final = 512 * 1024 * 1024
"""Messages held by one answer, in bytes as they are in memory, with properties and keys.

The newest are kept, and the answer says so. With what is under way to it, and with one message as
JSON, a tool so stays below 1 GiB whatever it is given. RocketMQ has no bound.
"""

MESSAGE_OVERHEAD_BYTES: Final = 1_200
"""What a message takes in memory beside its body, properties and keys, with its place in order."""

TEXT_OVERHEAD_BYTES: Final = 100
"""What a property takes in memory beside its two texts: its part of a table."""

INDEX_CHECK_ENTRIES: Final = 400_000
"""Index files of at most so many entries together are checked whole before they are used.

That takes 0.1 s, and numpy, which takes longer to load. Larger ones are checked at some places and
along each path that a look-up walks. RocketMQ checks nothing.
"""

TOPIC_SCAN_BYTES: Final = 4 * 1024 * 1024 * 1024
"""Log of at most so many bytes is read for deleted topics before a key is said to be in no topic.

That takes a second a GiB. Of a larger log some places are read, and the answer is incomplete unless
the caller allows more: the command line does, and says so, a library does not wait for minutes
unasked. RocketMQ finds nothing without a topic.
"""

DAMAGE_REPORTS: Final = 1_000
"""Damaged places named one by one in an answer or report; the rest are counted."""

UNWRITTEN_SEARCH_BYTES: Final = 8 * 1024 * 1024
"""How far behind the log's end a lost record is looked for again, in bytes of written zeros.

Twice RocketMQ's largest record. Once, a segment is searched to its end; holes are never read.
"""

INTERPRETED_SCAN_BYTES: Final = 256 * 1024
"""Log up to this long is walked without the compiled kernels, which take 0.3 to 1 s to load."""

TAIL_ENTRIES: Final = 64_000_000
"""Index entries that are kept in memory for log that no index file covers: 512 MiB, 8 bytes each.

A message has one for its unique key and one for each of its keys, so 12 million messages with one
key, ten minutes at 20,000 a second, take 190 MiB. What is beyond is read again by each query.
RocketMQ answers nothing for such log.
"""

FRAME_BYTES: Final = 16 * 1024 * 1024
"""Largest frame of the remoting protocol, its four length bytes included. RocketMQ: the same."""

REQUEST_HEADER_BYTES: Final = 384 * 1024
"""Largest header that a server reads: JSON can grow to 70 times its size in memory.

The properties of a message, at most 32,767 bytes, become at most 192 KiB in JSON. RocketMQ: only
the frame bounds it.
"""

HEADER_BYTES: Final = 8 * 1024 * 1024
"""Largest header that a client reads: the reply to a batch names every message, 33 bytes each."""

EXT_FIELDS: Final = 1_024
"""Fields in one header, at most. RocketMQ's own headers have up to 25."""

JSON_DEPTH: Final = 64
"""Nesting that is followed in a command's body; RocketMQ's own have 6 levels."""

JSON_BODY_BYTES: Final = FRAME_BYTES
"""Largest JSON body that is read, unless less is asked for: a broker's topics, a cluster's."""

CLIENT_JSON_BODY_BYTES: Final = 1024 * 1024
"""Largest JSON body that a broker reads from a client: heartbeats and lists of queues."""

UNANSWERED_REQUESTS: Final = 10_000
"""Requests of one connection that a server works on at once; more are answered with "busy".

RocketMQ: 10,000 in the queue of its senders (sendThreadPoolQueueCapacity), over all connections.
"""

PENDING_REQUESTS: Final = 65_535
"""Requests that one connection waits for. RocketMQ: 65,535 (clientAsyncSemaphoreValue)."""

CONNECTIONS: Final = 10_000
"""Connections that a server has at once, at most; fewer where few files may be open. Idle ones are
closed for new ones. RocketMQ: no limit.
"""

REQUESTS_IN_FLIGHT: Final = 100_000
"""Requests of all connections that a server works on at once; more are answered with "busy"."""

MAX_TURN_S: Final = 0.002
"""Seconds of work for one connection before others have their turn. RocketMQ: a thread pool."""

MAX_FIRST_TURN_S: Final = 0.0005
"""The same for the first turn of a connection: there may be thousands of new ones in a second."""

MAX_TURN_REQUESTS: Final = 128
"""Requests of one connection that are handled before others have their turn."""

MAX_ROUND_S: Final = 0.005
"""Seconds of work for connections that wait for their next turn, before those with little to say
have theirs. With 50 that always have more, others wait so long and not 50 turns.
"""

UNSENT_BYTES: Final = 64 * 1024 * 1024
"""Bytes that wait for one peer to read them; with more, the connection is closed.

A server reads no more requests of a peer that is far behind, so only answers that were under way
already come to this. RocketMQ: no limit.
"""

MAX_WORKED_ON_BYTES: Final = 8 * 1024 * 1024
"""Bodies of one connection's requests that are worked on at once; with more, no more are read.

One may be larger, up to a frame. RocketMQ: 10,000 requests of any size.
"""

UNSENT_PAUSE_BYTES: Final = 256 * 1024
"""Bytes waiting for one peer from which on no more of its requests are read."""

BUFFERED_BYTES: Final = 1024 * 1024 * 1024
"""Bytes of all connections, unsent and of frames not complete; then the largest are closed."""

SLOWEST_FRAME_BYTES_PER_S: Final = 1024
"""A frame that comes slower than this over FRAME_DEADLINE_S ends its connection."""

FRAME_DEADLINE_S: Final = 10.0
"""Seconds in which a small frame must be there, and a TLS handshake done."""

IDLE_S: Final = 120.0
"""Seconds without a byte either way after which a server closes a connection. RocketMQ: 120."""

CONNECT_TIMEOUT_S: Final = 3.0
"""Seconds to wait for a connection. RocketMQ: 3."""

CALL_TIMEOUT_S: Final = 3.0
"""Seconds to wait for an answer, unless told otherwise. RocketMQ: 3, its admin tools 5."""

RECONNECT_DELAYS_S: Final = (0.05, 1.0)
"""Seconds until an address that refused is dialled again: the first, doubled up to the last."""

NAMESRV_BROKERS: Final = 10_000
"""Brokers that a name server keeps; more are refused. RocketMQ: no limit."""

NAMESRV_QUEUE_DATAS: Final = 1_000_000
"""Topics times brokers that a name server keeps; more are refused. RocketMQ: no limit."""

MAX_FILTER_SERVERS: Final = 10_000
"""Filter servers of all brokers that a name server keeps. RocketMQ: no limit, and none since 5."""

MAX_STATE_VERSION: Final = 2**31 - 1
"""Largest state version of a broker's topics: a controller's count of masters, 32 bits there."""

KV_BYTES: Final = 4 * 1024 * 1024
"""Names and values that a name server keeps, in UTF-8 bytes together. RocketMQ: no limit."""

MAX_TOPICS: Final = 150_000
"""Topics of a broker, at most, whoever makes them; each takes about 1 KiB. RocketMQ: no limit."""

MAX_GROUPS: Final = 100_000
"""Subscription groups of a broker, at most. RocketMQ: no limit."""

MAX_GROUP_CHARACTERS: Final = 255
"""Longest name of a group. RocketMQ: the same (``Validators`` of 4.9)."""

MAX_NEW_GROUP_CHARACTERS: Final = 120
"""Longest name of a group that operators create. RocketMQ: the same (``TopicValidator``)."""

MAX_SHOWN_CHARACTERS: Final = 300
"""Characters of a name or value of others in a remark or a log line. RocketMQ: any."""

MAX_CLIENT_ID_CHARACTERS: Final = 1_024
"""Longest client id that a broker keeps; those of RocketMQ's clients have some 50 characters."""

MAX_CONNECTION_GROUPS_BYTES: Final = 8 * 1024 * 1024
"""Memory for the groups of one connection that a broker keeps: 10,000 groups of a few topics."""

MAX_GROUPS_BYTES: Final = 128 * 1024 * 1024
"""Memory for the groups of all connections; then the connection with most of it is closed.

RocketMQ: no limit, for one connection or all.
"""

ADDRESS_CHARACTERS: Final = 300
"""Longest address, cluster or broker name that a name server keeps."""

ROUTE_REFRESH_S: Final = 30.0
"""Seconds for which a client believes a topic's route, unless a send fails. RocketMQ: 30."""

ROUTE_QUEUES: Final = 65_536
"""Queues of one topic on one broker that a client believes; more is an error."""

MAX_ROUTE_QUEUES: Final = 4 * ROUTE_QUEUES
"""Queues of one topic on all brokers that a client believes; more is an error. RocketMQ: any."""

MAX_ROUTE_BROKERS: Final = 10_000
"""Brokers of one answer of a name server that a client believes: as many as ours keeps."""

MAX_BROKER_ADDRESSES: Final = 64
"""Addresses of one broker, master and slaves, that a client believes. RocketMQ: any."""

SEND_TIMEOUT_S: Final = 3.0
"""Seconds that a send may take, all its attempts together. RocketMQ: 3 (sendMsgTimeout)."""

ADMIN_TIMEOUT_S: Final = 5.0
"""Seconds to wait for one answer to a query. RocketMQ: 5, and 6 to 18 where it searches."""

HEARTBEAT_S: Final = 30.0
"""Seconds between two heartbeats of a producer; a broker forgets it after 120. RocketMQ: 30."""

MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""Largest body that a producer sends, unless told otherwise. RocketMQ: 4 MiB (maxMessageSize)."""

COMPRESS_OVER_BYTES: Final = 4096
"""Bodies of at least so many bytes are compressed. RocketMQ: compressMsgBodyOverHowmuch, 4096."""

QUERY_PAGE_MESSAGES: Final = 64
"""Messages that a broker is asked for at once. RocketMQ gives no more (maxMsgsNumBatch)."""

SMALLEST_QUERY_CAP: Final = 16
"""A broker that gives fewer messages than this surely gave all it has.

RocketMQ's own caps are 64, and 32 by unique key, but they can be configured.
"""

MAX_MESSAGE_ANSWERS: Final = 8
"""Answers with messages that a client waits for at once: each can have 16 MiB. RocketMQ: any."""

PULL_MESSAGES: Final = 32
"""Messages that are pulled at once. RocketMQ gives no more (maxTransferCountOnMessageInMemory)."""

MAX_CONFIG_BYTES: Final = 256 * 1024 * 1024
"""Largest file of ``config/`` that is written, in bytes. RocketMQ: none."""

MAX_CONFIG_READ_BYTES: Final = 4 * MAX_CONFIG_BYTES
"""Largest file of ``config/`` that is read, in bytes: more than is written, for real brokers'."""

MAX_CONFIG_ENTRY_BYTES: Final = 64 * 1024
"""Largest topic or group in its table, in bytes, with members of newer versions. RocketMQ: none."""

SEEN_BROKER_DAYS: Final = 30
"""Days for which a broker that is not registered any more makes answers incomplete."""

SEEN_BROKERS: Final = 1_000
"""Brokers of all clusters together that are remembered, at least."""

SEEN_BROKERS_BYTES: Final = 1024 * 1024
"""The file of the brokers that were seen, at most; it is written anew at half of it."""

DISPATCH_WAIT_S: Final = 2.0
"""Seconds that a look-up waits for a broker to index what it had stored when it was asked."""

SURVEYED_ROUTES: Final = 10_000
"""Routes of topics that a client which asks questions remembers."""

MAX_LOOK_UPS_OF_CONNECTION: Final = 1_000
"""Look-ups by key and id of one connection that a broker lets wait; more are answered "busy".

Those that are done at once do not wait. RocketMQ: 20,000 of all (queryThreadPoolQueueCapacity).
"""

MAX_LOOK_UPS: Final = 10_000
"""The same of all connections together: 30 MB."""

MAX_TAG_LOOK_UPS_OF_CONNECTION: Final = 64
"""Look-ups by tag of one connection that a broker lets wait: each reads the entries of a topic."""

MAX_TAG_LOOK_UPS: Final = 1_000
"""The same of all connections together."""

MAX_LOOK_UP_S: Final = 10.0
"""Seconds of work, on it and on others, after which a look-up is answered with what was found.

Seconds of a processor: a busy machine refuses no look-up. RocketMQ's clients wait 15 s for the
answer to a query.
"""

MAX_LOOK_UP_WAIT_S: Final = 60.0
"""Seconds after which that is done whatever there was to wait for."""

MAX_BATCH_MEMBERS: Final = 65_536
"""Members of one batch that a broker stores; more are refused with MESSAGE_ILLEGAL (13).

So many messages with a unique key and nothing else fill RocketMQ's largest message, 4 MiB.
RocketMQ: no limit.
"""

MAX_LARGE_ANSWERS_OF_CONNECTION: Final = 8
"""Answers of over 256 KiB that one connection has a broker build at once, one after another."""

MAX_LARGE_ANSWERS: Final = 64
"""The same of all connections. RocketMQ: the queue of its admin threads, 100,000."""

MAX_SUBSCRIPTION_CHARACTERS: Final = 32_767
"""Longest list of tags that a consumer subscribes to: some ms to read, which each pull does.

As long as all properties of a message. RocketMQ: no limit.
"""
