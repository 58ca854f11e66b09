"""Look-ups in a store, one module for each kind; every hit is verified in the log."""
