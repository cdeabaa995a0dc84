"""REST: people, sessions, the second factor, accounts and their members. Views decide nothing: they call actions."""
