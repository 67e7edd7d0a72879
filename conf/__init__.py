"""The configuration groups, installed as accordion_bench.conf; the files are YAML."""
