"""The SQS wire. `protocol.py` is the way in, `actions.py` says what each action does, `requests.py` what it is asked,
`message_form.py` reads a message."""
