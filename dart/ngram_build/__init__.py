"""Builds n-gram stores of more text than memory holds.

    shards -> count_shards -> runs -> merge_range -> parts -> assemble -> one store

`steps` has the work, one plain function a step, for threads, processes or a cluster alike;
`local_engine` runs them on this machine, `work_folder` remembers what is done. What a store holds
depends on the counts alone, never on how the work was divided.
"""
