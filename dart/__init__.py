"""DART: lossless speculative decoding with a parallel draft head and n-gram tree search."""
