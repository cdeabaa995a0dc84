"""Push over websockets: `consumer.py` speaks the wire, `subscription.py` holds credit and leases, `frames.py` has the
shapes."""
