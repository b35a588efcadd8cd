"""The benchmarks, with what there is here to measure."""

from localctx.wiring.bench.running import BENCHMARKS, Findings, Wanted, benched

__all__ = ["BENCHMARKS", "Findings", "Wanted", "benched"]
