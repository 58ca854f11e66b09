"""Text: as Java has it, as JSON, as people read it."""
