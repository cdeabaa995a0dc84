"""What only the front end may call: the MACed principal header, and the SQS management actions."""
