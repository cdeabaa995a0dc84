"""Who may do what in an account: policies of keys, people and groups, stored and asked. docs/policies.md."""
