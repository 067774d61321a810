"""Ranks that wait for one another: noticed, explained, and ended if they wait in vain.

``watch`` is the thread in each process that notices how long it waits; ``stacks`` finds out what a
process does. The ranks write that where others can read it: ``channel`` on one node, ``wire``
between nodes, ``scope`` for both. ``verdict`` decides whether they wait in vain, and ``speaker``
reports it, with the text of ``report_text``. ``last_words`` writes the last report of a process.
"""
