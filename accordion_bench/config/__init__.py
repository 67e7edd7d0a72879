"""How words become a run: the typed RunConfig and its hash (schema), Hydra's composition of conf/ with what was
typed (compose), and the checks that name a wrong value with its remedy (parsing, section). May import the
registries of workloads, compressors and schedulers to know their names; never runs, sweeps, report or commands,
and no torch.
"""
