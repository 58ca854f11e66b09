"""Who a request is from: users, sessions, providers, audit."""
