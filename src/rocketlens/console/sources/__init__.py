"""The sources of a console, as each viewer may see them."""
