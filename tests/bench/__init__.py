"""Speed and memory, with the machine they were measured on: ``make bench``. Never part of a test.

Every figure stands beside a yardstick that is timed just before it: work of the same kind, short numpy calls from
Python. A machine that is busy slows both, so `cost`, a figure in yardsticks, can be compared between machines and days.
"""
