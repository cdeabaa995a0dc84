"""What every replica of a queue partition folds, in log order."""
