"""People: who they are, how they sign in, and what they may do in which account (docs/people.md)."""
