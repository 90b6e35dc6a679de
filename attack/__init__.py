"""Attacks on the package: kills, damaged files, full disks, fuzzed readers, numbers against a dense reference."""
