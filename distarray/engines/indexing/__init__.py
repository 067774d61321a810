"""Index arrays and masks: parsing keys, finding owners, moving rows.

``advanced_keys`` parses a key into its normal form, ``located`` brings index arrays to one layout,
``owners`` finds the ranks that own the indexed rows, ``gather`` and ``scatter`` move rows,
``packing`` and ``masks`` read and write the elements that boolean masks select.
"""
