"""Authentication: users, sessions, OpenID Connect; rights; the audit log."""
