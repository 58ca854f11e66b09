"""Jobs that send stored messages again, and can be resumed."""
