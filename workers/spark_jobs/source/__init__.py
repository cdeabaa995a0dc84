"""Streams of storage clusters as a source of Spark, batch and streaming."""
