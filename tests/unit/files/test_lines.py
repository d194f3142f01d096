"""Lines come out whole, however the stream was cut."""

from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.files.checkpoint_reader import split_lines


@given(st.lists(st.binary(max_size=6).map(lambda piece: piece.replace(b"\x01", b"\n")), max_size=20))
def test_lines_do_not_depend_on_how_the_stream_is_cut(chunks: list[bytes]) -> None:
    whole = b"".join(chunks)
    expected = whole.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert list(split_lines(chunks)) == expected


def test_a_carriage_return_is_part_of_the_line() -> None:
    assert list(split_lines([b"a\r\n\nb"])) == [b"a\r", b"", b"b"]
