"""The interface of compressors, at the address that plug-ins use; it lives in training/compressor.py."""

from accordion_bench.training.compressor import Compressor

__all__ = ["Compressor"]
