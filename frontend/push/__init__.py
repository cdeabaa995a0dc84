"""Websockets of queues. `consumer.py` and `bulk_consumer.py` speak the two wires, `subscription.py` and
`bulk_session.py` are what each has open, `deliveries.py` holds credit and leases for both, `frames.py` and
`bulk_frames.py` have the shapes."""
