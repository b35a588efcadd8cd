"""Measurements of localctx that are no tests: what they need to run and to be repeated."""
