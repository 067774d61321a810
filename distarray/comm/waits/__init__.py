"""Detection of ranks that wait for each other: report, and end of the job if they wait in vain.

``watch`` is the thread in each process that measures how long the process waits; ``stacks`` reads
the activity of a process from its stacks. The ranks write their activity where other ranks can read
it: ``channel`` on one node, ``wire`` between nodes, ``scope`` for both. ``verdict`` decides whether
ranks wait in vain, and ``speaker`` reports it, with the text of ``report_text``. ``last_words``
writes the final report of a process.
"""
