"""The broker: stores messages, and answers requests for them.

=============  ====================================================================
module         what
=============  ====================================================================
service        opens the store, listens, registers, runs periodic work, stops
config         ``broker.conf``, in RocketMQ's own keys
core           state that all processors share
registry       topics and groups: their rules, and those created automatically
clients        connected clients and their groups
stats          counts, and rates over time
durable        responses that wait for the disk
search         look-ups by key over the live store
registration   registers with the name servers (103, 104)
schedule       delivers delayed messages when they are due
=============  ====================================================================

The processors, one for each request family: send (10, 310, 320), query (12, 33), pull (11, 361),
offset (14, 15, 29 to 32), topic (17, 215, 202, 351), client (34, 35, 38, 203, 208, 300),
transaction (37), runtime (28).

All state belongs to the event loop of the service.
"""
