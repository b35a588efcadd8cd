"""One server a file: its wire types, its readings, its quirks."""
