"""The broker: stores messages and handles requests.

Packages import downwards: ``life`` opens the store, listens, registers and stops; ``requests`` has
a module for each family of requests; ``core`` creates the parts that they share, from ``sends``,
``delivery``, ``lookup``, ``replication``, ``access`` and ``tables``. All state belongs to the event
loop of the service.
"""
