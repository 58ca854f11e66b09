"""The JSON bodies of commands, typed: one file for each family.

``schema.read(TopicRouteData, command.body)`` and ``schema.write(route)`` are the two ways.
"""
