"""Message bodies as their readers see them: which format they have, and what stands in them.

Nothing in this room changes a body, loads a class or runs what a body names.
"""
