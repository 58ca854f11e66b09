"""The requests that a broker answers: a module for each family of codes."""
