"""The life of a gradient: batches to losses to gradients (trainer, gradients, task), what is exchanged
(aggregator, compressor, communicator, traffic, network) and what follows (optimizer, lr_schedule, statistics,
probes, record). May import schedulers, for the decision it hands them; never compressors, workloads or config,
which reach it as arguments.
"""
