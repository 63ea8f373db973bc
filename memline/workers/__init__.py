"""The workers: one module a queue, each actor a thin shell over `shared`."""
