"""Drawing a tree of files in few lines."""

from rookery.files.context.sources import draw_tree


def test_folders_come_first_and_everything_in_order() -> None:
    assert draw_tree(["b", "a", "z/y/x", "z/a"]) == "z/\n  y/\n    x\n  a\na\nb\n"


def test_a_folder_that_has_no_room_tells_how_much_is_in_it() -> None:
    big = [f"big/{number}" for number in range(30)]
    assert draw_tree([*big, "small/a", "top"], lines=5) == "big/ (30 files)\nsmall/\n  a\ntop\n"


def test_a_folder_shows_only_so_many_entries() -> None:
    drawn = draw_tree([f"{number:03}" for number in range(100)]).splitlines()
    assert len(drawn) == 41
    assert drawn[-2:] == ["039", "[60 more entries]"]


def test_a_tree_with_no_room_at_all_is_counted() -> None:
    assert draw_tree(["a", "b/c"], lines=1) == "2 files\n"
    assert draw_tree([]) == ""


def test_odd_names_stay_in_their_line() -> None:
    assert draw_tree(["a\nb", "\udcff"]) == "a\\nb\n?\n"
