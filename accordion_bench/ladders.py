"""The ladders of levels, at the address that plug-ins use; they live in compressors/ladders.py."""

from accordion_bench.compressors.ladders import ATOMS, BITS, FRACTIONS, NOMINAL, RANKS, Ladder

__all__ = ["ATOMS", "BITS", "FRACTIONS", "NOMINAL", "RANKS", "Ladder"]
