"""The bounds that several modules share: value, unit, why, and RocketMQ's own value.

A number that comes from outside (a file, a frame, a user) is compared with a bound before it is
used to allocate, loop or recurse. A bound of one module stands there, and its name begins with
``MAX_`` or ``MIN_``. How much a module shows, or does in one step, whatever comes from outside, is
a private constant of that module.
"""

from typing import Final

MAX_INT: Final = 2**31 - 1
"""Largest 32-bit number. RocketMQ: Integer.MAX_VALUE."""

MAX_LONG: Final = 2**63 - 1
"""Largest 64-bit number. RocketMQ: Long.MAX_VALUE."""

MAX_PHYSICAL_OFFSET: Final = 2**62
"""Largest physical offset that is believed, in bytes: two of them add up to 64 bits at most.
RocketMQ: Long.MAX_VALUE.
"""

MAX_QUEUE_OFFSET: Final = 2**58
"""Largest queue offset that is believed: above it an entry has no byte position in 63 bits."""

MAX_TIMESTAMP_MS: Final = MAX_LONG
"""End of a time range that has none, in milliseconds. RocketMQ: Long.MAX_VALUE."""

MAX_RECORD_BYTES: Final = 512 * 1024 * 1024
"""Largest record that is believed, in bytes.

A size word above it is damage, not a message. RocketMQ: maxMessageSize (default 4 MiB) + 64 KiB,
but brokers are configured far above that, and the segment's own end bounds it again.
"""

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Largest body after decompression, in bytes; more is an error, not memory.

Four times what a frame carries. RocketMQ does not bound it (zlib alone expands 1,028 times); its
clients send no body of over 4 MiB before compression, unless they are configured to.
"""

MAX_PROPERTIES_BYTES: Final = 32_767
"""Largest property string of a record, in bytes: its length is a signed 16-bit field."""

MAX_RECORD_ENTRIES: Final = (MAX_PROPERTIES_BYTES + 1) // 2
"""Index entries of one record: keys of one byte with a space between, the unique key, the tags."""

MAX_KEY_BYTES: Final = MAX_PROPERTIES_BYTES
"""Longest key that a record can hold, in UTF-8 bytes."""

MAX_TOPIC_CHARACTERS: Final = 255
"""Longest topic name in a store: those of retry and dead-letter topics. RocketMQ: the same."""

DEFAULT_QUERY_MESSAGES: Final = 64
"""Messages returned by ``query_message`` unless asked otherwise. RocketMQ: at most 64."""

MAX_ANSWER_BYTES: Final = 512 * 1024 * 1024
"""Messages held by one answer, in bytes as they are in memory, with properties and keys.

The newest are kept, and the answer says so. With what is under way to it, and with one message as
JSON, a tool so stays below 1 GiB whatever it is given. RocketMQ has no bound.
"""

MESSAGE_OVERHEAD_BYTES: Final = 1_200
"""What a message takes in memory beside its body, properties and keys, with its order entry."""

MAX_TOPIC_SCAN_BYTES: Final = 4 * 1024 * 1024 * 1024
"""Log of at most so many bytes is read for deleted topics before a key is said to be in no topic.

That takes a second a GiB. Of a larger log samples are read, and the answer is incomplete unless
the caller allows more: the command line does, and says so, a library does not wait for minutes
unasked. RocketMQ finds nothing without a topic.
"""

MAX_DAMAGE_REPORTS: Final = 1_000
"""Damaged ranges named one by one in an answer or report; the rest are counted."""

MAX_UNWRITTEN_SEARCH_BYTES: Final = 8 * 1024 * 1024
"""How far behind the log's end a lost record is looked for again, in bytes of written zeros.

Twice RocketMQ's largest record. Once, a segment is searched to its end; holes are never read.
"""

MAX_INTERPRETED_SCAN_BYTES: Final = 256 * 1024
"""Log up to this long is walked without the compiled kernels, which take 0.3 to 1 s to load."""

MAX_STATE_BYTES: Final = 256 * 1024 * 1024
"""Largest file of what is known to be durable that is read, in bytes."""

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""Largest frame of the remoting protocol, its four length bytes included. RocketMQ: the same."""

MAX_ANSWER_FRAME_BYTES: Final = MAX_FRAME_BYTES - 64 * 1024
"""Records, or JSON, of one answer of a server, in bytes: header and body must fit a frame."""

MAX_REQUEST_HEADER_BYTES: Final = 384 * 1024
"""Largest header that a server reads: JSON can grow to 70 times its size in memory.

The properties of a message, at most 32,767 bytes, become at most 192 KiB in JSON. RocketMQ: only
the frame bounds it.
"""

MAX_HEADER_BYTES: Final = 8 * 1024 * 1024
"""Largest header that a client reads: the reply to a batch names every message, 33 bytes each."""

MAX_EXT_FIELDS: Final = 1_024
"""Fields in one header, at most. RocketMQ's own headers have up to 25."""

MAX_NUMBER_CHARACTERS: Final = 64
"""Longest number in a header field. RocketMQ: any number of leading zeros."""

MAX_QUOTATION_CHARACTERS: Final = 64
"""Characters of a wrong field that an error repeats."""

MAX_REMARK_CHARACTERS: Final = 500
"""Longest remark about a failure in an answer."""

MAX_JSON_BODY_BYTES: Final = MAX_FRAME_BYTES
"""Largest JSON body that is read, unless less is asked for: a broker's topics, a cluster's."""

MAX_CLIENT_JSON_BODY_BYTES: Final = 1024 * 1024
"""Largest JSON body that a broker reads from a client: heartbeats and lists of queues."""

MAX_UNANSWERED_REQUESTS: Final = 10_000
"""Requests of one connection that a server works on at once; more are answered with "busy".

RocketMQ: 10,000 in the queue of its senders (sendThreadPoolQueueCapacity), over all connections.
"""

MAX_CONNECTIONS: Final = 10_000
"""Connections that a server has at once, at most; fewer where few files may be open. Idle ones are
closed for new ones. RocketMQ: no limit.
"""

MIN_ADDRESS_CONNECTIONS: Final = 16
"""Connections that one address may have, though it has most of all that are allowed."""

MAX_REQUESTS_IN_FLIGHT: Final = 100_000
"""Requests of all connections that a server works on at once; more are answered with "busy"."""

MAX_TURN_S: Final = 0.0005
"""Seconds of work for one connection before others have their turn. RocketMQ: a thread pool.

Beside one that sends as fast as it can, others' sends wait at the 99th percentile for 2 ms, and for
5 ms with turns of 2 ms. The turns themselves take no more of the processor.
"""

MAX_TURN_REQUESTS: Final = 128
"""Requests of one connection that are handled before others have their turn."""

MAX_RUN_MESSAGES: Final = 64
"""Sends of one connection that are handled together: half of a turn. RocketMQ: each alone."""

MAX_RUN_BYTES: Final = 256 * 1024
"""Bytes of such sends: their checksums take a fraction of a turn. RocketMQ: each alone."""

MAX_UNTRIED_SENDS: Final = 15
"""Sends that come alone and are handled as others after some that could not be a run, since to find
that out takes a third of the time that such a send takes. RocketMQ: each alone.
"""

MAX_RUN_QUEUES: Final = 4_096
"""Queues that such sends can go to at a time; each takes some hundred bytes. With more, all are
forgotten, and known again when they are sent to.
"""

MAX_RUN_KEY_BYTES: Final = 128
"""Unique key of such a send, for the room of its reply. Producers' have 32."""

MAX_RUN_PROPERTIES: Final = 96
"""Properties of such a send: as many as a table of Java's of 128 holds before it grows."""

MAX_TURN_MEMBERS: Final = 512
"""Members of a batch that are stored in one piece of work on the event loop: milliseconds.
RocketMQ: all of them.
"""

MAX_ROUND_S: Final = 0.002
"""Seconds of work for connections that wait for their next turn, before those with little to say
have theirs. With 50 that always have more, others wait so long and not 50 turns.
"""

MAX_PIECE_S: Final = 0.002
"""Seconds of a long piece of work on the event loop before others have their turn."""

MAX_UNSENT_BYTES: Final = 64 * 1024 * 1024
"""Bytes that wait for one peer to read them; with more, the connection is closed.

A server reads no more requests of a peer that is far behind, so only answers that were under way
already come to this. RocketMQ: no limit.
"""

MAX_WORKED_ON_BYTES: Final = 8 * 1024 * 1024
"""Bodies of one connection's requests that are worked on at once; with more, no more are read.

One may be larger, up to a frame. RocketMQ: 10,000 requests of any size.
"""

MAX_UNPAUSED_BYTES: Final = 256 * 1024
"""Bytes waiting for one peer from which on no more of its requests are read."""

MAX_BUFFERED_BYTES: Final = 1024 * 1024 * 1024
"""Bytes of all connections, unsent and of frames not complete; then the largest are closed."""

MIN_FRAME_BYTES_PER_S: Final = 1024
"""A frame that comes slower than this over FRAME_DEADLINE_S ends its connection."""

FRAME_DEADLINE_S: Final = 10.0
"""Seconds in which a small frame must be there, and a TLS handshake done."""

IDLE_S: Final = 120.0
"""Seconds without a byte either way after which a server closes a connection. RocketMQ: 120."""

MIN_IDLE_S: Final = 2.0
"""Seconds without a byte after which a connection is closed for a new one, if there is no room."""

CONNECT_TIMEOUT_S: Final = 3.0
"""Seconds to wait for a connection. RocketMQ: 3."""

MAX_STATE_VERSION: Final = MAX_INT
"""Largest state version of a broker's topics: a controller's count of masters, 32 bits there."""

MAX_TOPIC_QUEUES: Final = 65_536
"""Queues of a topic on a broker: brokers refuse more, clients believe no more. RocketMQ: any."""

MAX_GROUP_CHARACTERS: Final = 255
"""Longest name of a group. RocketMQ: the same (``Validators`` of 4.9)."""

MAX_NEW_GROUP_CHARACTERS: Final = 120
"""Longest name of a group that operators create. RocketMQ: the same (``TopicValidator``)."""
MAX_SHOWN_CHARACTERS: Final = 300
"""Characters of a name or value of others in a remark or a log line. RocketMQ: any."""

MAX_CLIENT_ID_CHARACTERS: Final = 1_024
"""Longest client id that a broker keeps; those of RocketMQ's clients have some 50 characters."""

MAX_ADDRESS_CHARACTERS: Final = 300
"""Longest address, cluster or broker name that a name server keeps."""
MAX_ROUTE_QUEUES: Final = 4 * MAX_TOPIC_QUEUES
"""Queues of one topic on all brokers that a client believes; more is an error. RocketMQ: any."""

ADMIN_TIMEOUT_S: Final = 5.0
"""Seconds to wait for one answer to a query. RocketMQ: 5, and 6 to 18 where it searches."""

HEARTBEAT_S: Final = 30.0
"""Seconds between two heartbeats of a producer; a broker forgets it after 120. RocketMQ: 30."""

MAX_PULL_BATCH: Final = 1_024
"""Messages that a consumer asks for at once; brokers give 32 unless configured. RocketMQ: 1,024."""

MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""Largest body that a producer sends, unless told otherwise. RocketMQ: 4 MiB (maxMessageSize)."""

MAX_PULL_MESSAGES: Final = 32
"""Messages that are pulled at once. RocketMQ gives no more (maxTransferCountOnMessageInMemory)."""

MAX_CONFIG_BYTES: Final = 256 * 1024 * 1024
"""Largest file of ``config/`` that is written, in bytes. RocketMQ: none."""

MAX_CONFIG_READ_BYTES: Final = 4 * MAX_CONFIG_BYTES
"""Largest file of ``config/`` that is read, in bytes: more than is written, for real brokers'."""

MAX_SERVER_CONFIG_BYTES: Final = 1024 * 1024
"""Largest ``broker.conf``, ``namesrv.conf`` or file of TLS settings, in bytes. RocketMQ: none."""

MAX_PORT: Final = 65_535
"""The highest port of TCP."""

MAX_CONTEXTS_BYTES: Final = 1024 * 1024
"""Largest file of named contexts, or of mqadmin's access keys, in bytes. RocketMQ: any."""

MAX_LOOK_UPS: Final = 10_000
"""Look-ups by key and id of all connections that wait: 30 MB. RocketMQ: 20,000
(queryThreadPoolQueueCapacity).
"""

MAX_LOOP_CANDIDATES: Final = 256
"""Candidates that a look-up on the event loop looks at: some milliseconds."""

MAX_LOOP_INDEX_FILES: Final = 32
"""Index files that a look-up on the event loop looks at: likewise, if none of them is in memory."""

MAX_LOOP_RUNS: Final = 32
"""Runs of entries in memory that a look-up on the event loop looks at: likewise."""

MAX_LOOP_NEW_BYTES: Final = 128 * 1024
"""Log without entries that a look-up on the event loop compares record by record: 20 us."""

MAX_LOOP_UNSORTED_ENTRIES: Final = 32 * 1024
"""Entries in memory that a look-up on the event loop compares one by one: 30 us."""

MAX_LOOP_LOOK_UP_BYTES: Final = 1024 * 1024
"""Records that a look-up on the event loop answers with, in bytes: likewise."""

RELAY_TIMEOUT_S: Final = 10.0
"""Seconds in which a consumer answers a broker. RocketMQ: 10, and 5 for its progress."""

MAX_RELAYS_OF_CONNECTION: Final = 64
"""The same of one connection that asks."""

MAX_SUBSCRIPTION_CHARACTERS: Final = 32_767
"""Longest expression of a subscription: some ms to read, which each pull does. RocketMQ: any."""

MAX_SAVED_SEARCHES: Final = 1_000
"""Saved searches of all users of a console, which are in one file."""
MAX_USER_SAVED_SEARCHES: Final = 100
"""Saved searches of one user of the console."""
MAX_SAVED_TITLE: Final = 100
"""Characters of the name of a saved search: it is a line of a list."""
MAX_SAVED_CHARACTERS: Final = 4_000
"""Of a search that is saved, as its address has it: a page lists all of them."""
MAX_SAVED_BYTES: Final = 16 << 20
"""Of the file of saved searches: the longest there can be take 10 MB."""
MAX_SHOWN_SAVED_SEARCHES: Final = 12
"""Saved searches on the first page of the console; their own page has all."""
MAX_CHOSEN_MESSAGES: Final = 500
"""Messages that are chosen one by one in the console's lists for one job: each is read by itself,
and they fit the fields of a form.
"""
MAX_RESEND_MESSAGES: Final = 100_000
"""Messages of one job that sends them again: 86 MiB of memory. RocketMQ: one at a time."""

DEFAULT_RESEND_MESSAGES: Final = 1_000
"""Messages of one job of the console, where its user does not say how many."""

MAX_TRIGGER_OFFSETS: Final = 1_000_000
"""Messages in one batch of a stream of a cluster, unless ``maxOffsetsPerTrigger`` sets it."""

MAX_STOP_S: Final = 4.0
"""Seconds from a signal to the end of a server: some are killed after 5 or 10."""

MAX_FAREWELL_S: Final = 3.0
"""Of these for all that is done for others: what the store needs is done in any case."""

MAX_UNREGISTER_S: Final = 1.0
"""Of these for name servers."""

MAX_STOP_ANSWERS_S: Final = 1.0
"""Of these for answers that are under way."""

MAX_SHOWN_JSON_BYTES: Final = 4 << 20
"""Largest body that is shown as JSON: as values it takes up to 50 times its size in memory."""

DEFAULT_TAIL_MESSAGES: Final = 10
"""Messages with which ``tail`` begins, as that of a file begins with lines."""

MAX_STORY_RECORDS: Final = 1_000
"""Records of one message, and of its trace, that a story is told from. RocketMQ's trace: 64."""

MAX_LIKE_LOG_LINES: Final = 50
"""Log lines with the same words in ten seconds, below ERROR: clients cause most. RocketMQ: any."""
MIN_WARNING_INTERVAL_S: Final = 60.0
"""Seconds between two log lines about what goes on: connections or messages that are refused, each
of which clients try again. RocketMQ: a line for each.
"""
MAX_WAITING_LOG_LINES: Final = 10_000
"""Log lines that wait until stderr takes them; more are dropped and counted. RocketMQ's appender
blocks, or drops beyond some thousands.
"""

MAX_DECODED_BYTES: Final = 8 << 20
"""Bytes of one message body that are decoded, without its compression; characters of its values."""
MAX_BINARY_VALUES: Final = 40_000
"""Values of one message body of another format that are decoded, with all formats that are tried:
some 2 us each.
"""

MAX_DECODED_LEVELS: Final = 100
"""Levels of nesting of a message body that are decoded."""

MAX_DECIMAL_BITS: Final = 14_000
"""Integers of more bits are shown in hexadecimal: Python writes none of over 4,300 digits, which
takes long.
"""
MAX_WAITING_MESSAGES: Final = 2_000
"""Newest messages that wait, of delays and of timers, that are counted by topic."""

MAX_CONSOLE_ROWS: Final = 500
"""Messages on one page of the console; a cursor continues it. RocketMQ's dashboard: 64 by key and
2,000 by time in all.
"""
DEFAULT_CONSOLE_ROWS: Final = 100
"""Messages on one page of the console, where the caller does not say how many."""
MAX_CONSOLE_ANSWER_BYTES: Final = 16 << 20
"""Memory that the messages of one page of the console take while it is made; a cursor continues."""
MAX_EXPORT_ROWS: Final = 10_000
"""Messages that the console reads at a time for a file: a store is read once each time."""
MAX_EXPORT_PAGE_BYTES: Final = 8 << 20
"""Memory that these take: as long as the reader of a file takes nothing, they are kept."""
MAX_EXPORT_PIECE_BYTES: Final = 256 << 10
"""Of a file that the console sends at once; the next piece is made when there is room for it."""
MAX_EXPORTS: Final = 16
"""Files that the console sends at once, exports and bodies; more are refused, with a status that
says so.
"""
MAX_USER_EXPORTS: Final = 4
"""Of these, and of bodies that are downloaded, for one user."""
MAX_CONSOLE_LOOK_UPS: Final = 64
"""Requests at once to the console for all but searches and files; more are refused, likewise."""
MAX_USER_LOOK_UPS: Final = 16
"""Of these for one user: a browser has six connections, a program asks one after another."""
MAX_HELD_BYTES: Final = 512 << 20
"""Of bodies, pages of files and answers that requests to the console keep until they were sent."""
MAX_USER_HELD_BYTES: Final = 128 << 20
"""Of these for one user: two bodies of the largest size."""
MAX_TIME_BARS: Final = 60
"""Bars of the plot above the messages of a page."""
MAX_FACET_VALUES: Final = 8
"""Topics, tags or hours that the console lists beside an answer; others are one number."""
MAX_CONSOLE_SEARCHES: Final = 64
"""Searches of the console at once; more are refused, with a status that says so."""
MAX_USER_SEARCHES: Final = 16
"""Of these for one user: a browser has a few, in several tabs."""
MAX_CONSOLE_SEARCH_S: Final = 600.0
"""Seconds after which a search of the console ends with what it found until then."""
MAX_CONSOLE_TEXT: Final = 40_000
"""Characters of one value of a request to the console: a key can have 32,767 bytes."""
MAX_CONSOLE_SKIPPED: Final = 100_000
"""Messages of one millisecond that a cursor of the console can have passed."""
MAX_NARROWED_STARS: Final = 6
"""Of ``*`` in a pattern of a user of the console who may see some topics: each takes more work."""
MAX_NARROWED_PATTERNS: Final = 512
"""Patterns that one pattern is cut into, for a user of the console who may see some topics."""
MAX_CONSOLE_COLUMNS: Final = 12
"""Columns that one list of messages of the console has beside the time."""
MAX_CONSOLE_SOURCES: Final = 32
"""Sources of one console."""
MAX_CONSOLE_BROKERS: Final = 1_000
"""Brokers, masters and slaves, that one page of the console lists; more are counted."""
CONSOLE_REFRESH_S: Final = 10.0
"""Seconds after which a list of the console that is looked at live is asked for again."""
CONSOLE_OVERVIEW_S: Final = 60.0
"""Seconds after which the first page of the console asks for the state of its sources again: of a
cluster it takes a request to each broker for each group.
"""
MAX_OVERVIEW_GROUPS: Final = 3
"""Groups that the first page names for each source: those with the most lag, or dead letters."""
MAX_SUGGESTED_TOPICS: Final = 10_000
"""Names of topics that the console suggests from, 100 bytes each."""
TOPIC_PAGE_ROWS: Final = 10
"""Newest messages on the page of a topic; a search has the others."""
MAX_CONSOLE_CLIENTS: Final = 2_000
"""Clients that one page of the console lists; more are counted."""
PIPELINE_SAMPLE_S: Final = 10.0
"""Seconds between two samples of the brokers of all clusters, one request to each."""
PIPELINE_ROUND_S: Final = 8.0
"""Seconds in which brokers answer for a sample; the others have none then. Less than the above."""
MAX_PIPELINE_SAMPLES: Final = 360
"""Samples of one broker that a console keeps: those of an hour."""
MAX_PIPELINE_BROKERS: Final = 256
"""Brokers that a console samples, in 30 MB; others are counted."""
MAX_PIPELINE_PLOTS: Final = 8
"""Brokers that are plotted on one page, or have all their samples in one answer of the API."""
MAX_PASSWORD_CHARACTERS: Final = 1024
"""Of a password of the console."""
MAX_PASSWORD_BYTES: Final = 256 << 20
"""Memory that the hash of a password may take, which is what makes guessing expensive."""
MAX_PASSWORD_LANES: Final = 16
"""scrypt's p: how often a hash repeats its work."""
MAX_WAITING_LOGINS: Final = 32
"""Passwords that wait for their hash at once; more are refused, with a status that says so."""
MAX_OIDC_WAIT_S: Final = 10.0
"""Seconds for one answer of a provider of OpenID Connect: a user waits for it."""
MAX_OIDC_ANSWER_BYTES: Final = 1 << 20
"""Of one answer of a provider of OpenID Connect: keys and tokens have some KiB."""
MAX_OIDC_TOKEN_CHARACTERS: Final = 256 << 10
"""Of an id token: one with thousands of groups is checked, and its JSON is read."""
MAX_OIDC_GROUPS: Final = 10_000
"""Groups of one user of a provider: each is compared with the rules of the file of users."""
MAX_OIDC_NAME_CHARACTERS: Final = 255
"""Of the name of a provider's user, and of a group in a rule: it is in every line of the audit log.
OpenID Connect: 255 for a subject.
"""
MAX_OIDC_SKEW_S: Final = 60.0
"""Seconds that the clocks of a provider and of the console may differ."""
MAX_OIDC_AGE_S: Final = 3600.0
"""Seconds for which endpoints and keys of a provider are kept: one that was taken back ends."""
MIN_OIDC_KEYS_AGE_S: Final = 60.0
"""Seconds after which keys are read again for a token that names none of them: no token can have
the provider asked more often.
"""
MAX_OIDC_LOGINS: Final = 32
"""Logins by a provider that are checked at once; more are refused, with a status that says so."""
MAX_OIDC_LOGIN_S: Final = 600.0
"""Seconds from the start of a login by a provider to its end: someone has to find a password."""
MAX_OIDC_COOKIE_CHARACTERS: Final = 3_800
"""Of the cookie that keeps where a login leads back to: browsers take 4,096 bytes with its name."""
MAX_OIDC_HINT_CHARACTERS: Final = 4_096
"""Of an id token that is kept for the logout, which sends it in an address; a longer one is not."""
MAX_LOGIN_FAILURES: Final = 10_000
"""Pairs of user and address whose failed logins are counted; the oldest are forgotten."""
MAX_LOGIN_WAIT_S: Final = 60.0
"""Seconds that a pair of user and address waits after many failed logins: no lock-out."""
MAX_USER_SESSIONS: Final = 16
"""Sessions of one user of the console; another login ends the one that was not used for longest."""
MAX_SESSIONS: Final = 10_000
"""Sessions of one console: a provider can have any number of users. The one that was not used for
longest ends.
"""
MAX_SESSION_IDLE_S: Final = 2 * 3600
"""Seconds after which a session of the console ends that is not used."""
MAX_SESSION_S: Final = 12 * 3600
"""Seconds after which a session of the console ends: a working day."""
MAX_FORM_FIELDS: Final = 1000
"""Fields of a form sent to the console: as many as a page has messages, and some."""
MAX_AUDIT_CHARACTERS: Final = 1024
"""Of one value in a line of the console's audit log: others choose names and topics."""
MAX_PREVIEW_BYTES: Final = 16 << 10
"""Largest body that is decoded for its line in a list: some milliseconds."""
MAX_PREVIEW_CHARACTERS: Final = 160
"""Of a body in its line in a list."""
MAX_PAGE_BODY_CHARACTERS: Final = 256 << 10
"""Of a body on its page; the whole of it can be downloaded."""
MAX_PAGE_HEX_BYTES: Final = 16 << 10
"""Of a body that its page shows in hexadecimal, four characters for each."""
MAX_CONSOLE_CONNECTIONS: Final = 256
"""Open connections to the console: one that waits is closed for another, or that gets status 503.
"""
MAX_ADDRESS_CONNECTIONS: Final = 128
"""Of these from one address, or one IPv6 network of 64 bits: others are served beside it."""
MAX_CONSOLE_HEAD_S: Final = 20.0
"""Seconds for a request to the console without its body, from the first byte or the connection on.
"""
MAX_CONSOLE_BODY_S: Final = 60.0
"""Seconds for the body of a request to the console: 16 MiB at 2.2 MBit/s."""
MAX_CONSOLE_UNREAD_S: Final = 60.0
"""Seconds in which the reader of an answer of the console takes nothing of what was sent."""
MAX_CONSOLE_HEAD_BYTES: Final = 160 << 10
"""Of one request to the console without its body: a text in its address has up to three bytes for
each of its own.
"""
MAX_CONSOLE_BODY_BYTES: Final = 16 << 20
"""Of the body of one request to the console: a text of 4 MiB in a form has up to three bytes for
each of its own.
"""
MAX_CONSOLE_REASON: Final = 1_000
"""Characters of the reason for an act, which is kept with what was done."""
MAX_CONSOLE_JOBS: Final = 4
"""Jobs of one console that run at once; more wait to be resumed."""
MAX_USER_JOBS: Final = 2
"""Of these for one user."""
MAX_CONSOLE_JOB_FILES: Final = 200
"""Newest jobs and acts that one page lists: each file is read once, and again when it changed."""
MAX_RESEND_RATE: Final = 1_000
"""Messages a second of one job of the console."""
MAX_LOOKED_AT_ENTRIES: Final = 1_000
"""Entries of a directory that holds no store which are looked into for one: a few milliseconds."""
MAX_NAMED_STORES: Final = 3
"""Stores that are named where one was expected and is not: a line holds no more paths."""
