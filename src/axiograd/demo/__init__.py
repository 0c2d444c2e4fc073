"""The demonstration: a network that decides for the wrong reason, found and fixed; `axiograd demo` tells it."""
