"""Lines of a file belong to statements."""

import textwrap

from distarray.profiling.statements import line_of, text_of

SOURCE = """\
x = (
    1
    + 2
)
for i in range(
    3
):
    y = [
        i
    ]
match x:
    case 1:
        z = 1
"""


def test_the_lines_of_a_statement_are_one(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(SOURCE)
    first = [line_of(str(path), number).number for number in range(1, 14)]
    assert first == [1, 1, 1, 1, 5, 5, 5, 8, 8, 8, 11, 12, 13]
    assert text_of(line_of(str(path), 9)) == "y = ["


def test_what_cannot_be_read_or_parsed_is_taken_line_by_line(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text(textwrap.dedent("x = (\n1\n"))
    assert line_of(str(path), 2).number == 2
    missing = line_of(str(tmp_path / "missing.py"), 7)
    assert missing.number == 7
    assert text_of(missing) == ""
