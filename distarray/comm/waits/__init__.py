"""Ranks that wait for one another: noticed, explained, and ended if they wait in vain.

``watch`` is the thread of each process that notices how long it waits; ``stacks`` finds what a
process does. The ranks write that where others can read it: ``channel`` on one node, ``wire``
between nodes, ``scope`` for both. ``verdict`` decides whether they wait in vain, and ``speaker``
says it, in the words of ``report_text``. ``last_words`` are those of a process that ends.
"""
