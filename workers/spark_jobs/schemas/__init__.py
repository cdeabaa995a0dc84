"""What stands in the stream, in the lake's files, and in the frames between transforms."""
