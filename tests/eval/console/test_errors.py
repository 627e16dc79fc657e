"""How a wrong word on a command line is answered."""

import pytest

from eval.console.errors import Parser, UserError, nearest


def test_close_names_come_first_and_long_lists_are_cut() -> None:
    known = ["smollm2", "mistral", "qwen"]
    assert nearest("mistrall", known, most=1) == "; did you mean mistral?"
    assert nearest("xyz", known) == "; known: mistral, qwen, smollm2"
    assert nearest("xyz", known, most=3) == nearest("xyz", known)
    assert nearest("xyz", known, most=2) == "; known: mistral, qwen and 1 more"
    assert not nearest("xyz", [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tabel3"], "unknown name 'tabel3'; did you mean table3, table4? (see tables --help)"),
        (["it's"], """unknown name "it's"; known: memory, table3, table4 (see tables --help)"""),
        (["memory", "--edit", "diflib"], "unknown --edit 'diflib'; did you mean difflib? (see tables --help)"),
    ],
)
def test_a_word_that_is_no_choice_is_told_with_those_near_it(words: list[str], said: str) -> None:
    parser = Parser(prog="tables")
    parser.add_argument("name", choices=("table3", "table4", "memory"))
    parser.add_argument("--edit", choices=("difflib", "levenshtein"))
    with pytest.raises(UserError) as told:
        parser.parse_args(words)
    assert str(told.value) == said
