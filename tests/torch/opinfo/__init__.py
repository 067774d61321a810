"""torch's own database of operators, run on distributed tensors and compared with plain torch.

``python -m tests.torch.opinfo --ranks 2,3,4`` prints how many operator variants are right. What it
runs and what its verdicts mean is in ``__main__.py``; ``judging.py`` is the comparison.
"""
