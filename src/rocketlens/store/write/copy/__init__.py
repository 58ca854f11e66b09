"""A store whose log is a copy of another broker's."""
