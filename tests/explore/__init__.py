"""Random programs of NumPy statements, run with NumPy's arrays and with distributed ones.

A program is a list of lines that hold for both: `np` is NumPy or :mod:`distarray.numpy`, and
``lay(values, S(0))`` lays an array out or copies it. After each line everything that is alive is
compared: values, data types, shapes, exceptions, what can be written to and what shares memory.

`grammar` says which statements there are. `drawing` fills their places, with the operands and keys
of `operands` and `keys` and the words of `vocabulary`. `program` draws programs and runs them,
`comparison` compares, `shrinking` looks for the smallest program that still goes wrong, and
`script` writes it down for a person to run. With ``--aliases`` programs are of
`grammar_of_aliases`: they see one memory in several ways, and values are compared at the end, since
comparing brings aliases up to date. ``python -m tests.explore`` does all of it until its
time is up; see CONTRIBUTING.md.

Programs that once went wrong are kept in `found_views`, `found_writes`, `found_operations` and
`found_aliases`, and `test_found` runs them. `alias_programs` are of the kind that people write.
"""
