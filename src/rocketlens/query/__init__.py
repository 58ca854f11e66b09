"""Queries of stores, clusters and archives: by id, key, queue offset, time and content.

Every hit is verified against its record, and every answer lists the sources that were searched.
"""
