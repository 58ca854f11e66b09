"""Queries to a store and their answers: by id, key, queue offset, and time.

Every hit is compared with the record it leads to before it is given out, and every answer says
what was searched.
"""
