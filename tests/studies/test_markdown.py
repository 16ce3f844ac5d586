"""Tables for documents."""

from fedrelay.studies.markdown import markdown_table


def test_words_go_to_the_left_and_figures_to_the_right():
    assert markdown_table(["run", "MB"], [["a", "1.0"]], words=1) == "| run | MB |\n| :-- | --: |\n| a | 1.0 |"


def test_a_table_of_words_is_aligned_as_the_page_wishes_and_a_bar_in_a_cell_is_no_border():
    assert markdown_table(["x", "y"], [["a|b", "c"]]) == "| x | y |\n| --- | --- |\n| a\\|b | c |"
