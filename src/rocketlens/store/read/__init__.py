"""What can be read from a store directory. Needs no lock and changes nothing."""
