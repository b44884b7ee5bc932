"""The benchmark: decoders interleaved on the same prompts in one process."""
