"""Who changed what: one row per action, written in the action's own transaction."""
