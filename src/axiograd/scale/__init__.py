"""Millions of samples: attributions as tables of summaries, on one process or on Ray, and the comparison of two of them."""
