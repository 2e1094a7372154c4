"""Who asks and what they may do: tokens, sessions, log-in, proxies, cross-site requests, the audit log."""
