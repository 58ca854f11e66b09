"""The JSON bodies of commands, typed: one file for each family.

``read_body(TopicRouteData, command.body)`` and ``write_body(route)`` are the two ways.
"""
