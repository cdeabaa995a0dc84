"""Messages, whichever wire they come by: their rules, and what sends, receives and settles them.

Read `send.py` and `receive.py` first. A wire (`sqs`, `rest`, `push`) fills an `OutgoingMessage` and writes the answer;
nothing here imports a wire.
"""
