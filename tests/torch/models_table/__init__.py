"""Models of the library transformers, trained in parallel and compared with one process.

``python -m tests.torch.models_table --ranks 2,4`` prints the table. What it runs and what its
verdicts mean is in ``__main__.py``; ``zoo.py`` has the models, ``ways.py`` what is done with them.
"""
