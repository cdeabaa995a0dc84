"""May this principal do this? Pure: no clock, no IO."""
