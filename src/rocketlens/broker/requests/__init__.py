"""What a broker does with each request: a module for each family of codes."""
