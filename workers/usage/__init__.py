"""The control plane's side of usage: starts Spark's jobs as processes, merges what they counted into PostgreSQL."""
