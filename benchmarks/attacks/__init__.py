"The parts of benchmarks/attack.py: each is a function `run(quick)` that yields what it tried."
