"""Rank 0 speaks and listens for all."""

import pytest

from launching import compare, on_ranks, write_script


def test_output_comes_once_and_so_do_warnings(tmp_path):
    done = compare(
        tmp_path,
        """
        import os, sys, warnings
        print("once", sys.argv, __name__, os.path.isabs(__file__), os.path.basename(__file__))
        print(os.path.dirname(__file__) == os.path.abspath(sys.path[0]))
        sys.stdout.write("written\\n")
        sys.stdout.flush()
        os.write(1, b"past Python\\n")
        warnings.warn("only once")
        print("to stderr", file=sys.stderr)
        """,
        "a",
        "--b=c",
    )
    assert done.err.count("only once") == 2  # the message, and the line that issues it
    assert done.err.count("to stderr") == 1


def test_a_warning_that_rank_0_has_not_met_is_heard_too(tmp_path):
    """It was lost: only rank 0 shows what it is warned of, and the zero is on another one."""
    done = compare(
        tmp_path,
        """
        import numpy as np
        x = np.ones(200_000)
        x[-1] = 0
        print(int(np.isinf(1 / x).sum()))
        """,
    )
    assert done.err.count("divide by zero") == 1


def test_input_is_read_by_rank_0_and_handed_to_all(tmp_path):
    compare(
        tmp_path,
        """
        import sys
        name = input("name? ")
        with open(name, "w") as file:
            file.write(sys.stdin.readline())
        print(open(name).read())
        """,
        stdin="first\nsecond\nthird\n",
    )


def test_input_has_an_end(tmp_path, mpiexec):
    if len(mpiexec) > 1:
        pytest.skip("Open MPI's launcher does not hand on the end of its input")
    compare(
        tmp_path,
        """
        import sys
        print(input(), list(sys.stdin))
        try:
            input()
        except EOFError:
            print("the end")
        """,
        stdin="first\nsecond\nthird\nfourth",
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-c", "import sys; print(sys.argv, __name__)", "x"], "['-c', 'x'] __main__\n"),
        (["-m", "package", "x"], "main of package ['x']\n"),
        (["-m", "package.part", "x"], "part of package ['x']\n"),
        (["package", "y"], "main of  ['y']\n"),
    ],
)
def test_ways_to_name_a_program(tmp_path, arguments, expected):
    package = tmp_path / "package"
    write_script(package, "", "__init__.py")
    source = "import sys\nprint('{} of', __package__ or '', sys.argv[1:])"
    write_script(package, source.format("main"), "__main__.py")
    write_script(package, source.format("part"), "part.py")
    done = on_ranks(2, *arguments, cwd=tmp_path)
    assert (done.code, done.out) == (0, expected), done.err


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["--version"]])
def test_help_comes_once_and_needs_no_program(tmp_path, arguments):
    done = on_ranks(2, *arguments, cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.out.count("distarray") >= 1
    assert done.out.count("usage:") <= 1


@pytest.mark.parametrize("arguments", [["--nonsense"], ["-m"], ["-c"]])
def test_a_command_line_that_says_nothing(tmp_path, arguments):
    done = on_ranks(2, *arguments, cwd=tmp_path)
    assert done.code == 2
    said = [line for line in done.err.splitlines() if line.startswith("distarray:")]
    assert [line for line in said if "ends the job" not in line] == said[:1]
