"""Acts: sending again, sending, consuming at a client; jobs; permissions."""
