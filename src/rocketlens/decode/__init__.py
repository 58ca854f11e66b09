"""Decodes message bodies: recognizes their format, and converts them to values.

Nothing in this room changes a body, loads a class or runs code that a body names.
"""
