"""Series on the schedule: minutes from the live meter, what queues hold, rollups, alarms. Rules: api/series."""
