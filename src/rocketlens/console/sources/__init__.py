"""The sources of a console, as each user may see them."""
