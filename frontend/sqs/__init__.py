"""The SQS wire: JSON protocol 1.0. `protocol.py` is the way in, `actions.py` what each action does, `requests.py` its
shapes."""
