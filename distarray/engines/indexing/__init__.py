"""Index arrays and masks: reading keys, finding owners, moving rows.

``advanced_keys`` reads a key into its normal form, ``located`` brings index arrays side by side,
``owners`` finds the ranks that own the rows they name, ``gather`` and ``scatter`` move rows,
``packing`` and ``masks`` read and write what boolean masks select.
"""
