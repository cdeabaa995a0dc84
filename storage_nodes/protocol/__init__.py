"""The wire protocol of the storage plane: frames, messages, error codes. Sans-IO; golden bytes in the tests.

Evolution rules: opcodes and error numbers are never reused; a message gets new fields only at its end and with a
default; a change of meaning is a new opcode. `PROTOCOL_VERSION` changes only when frames themselves change.
"""
