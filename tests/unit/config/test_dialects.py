from __future__ import annotations

import pytest

from motet.config.dialects import FOREIGN_KEYS, FOREIGN_SECTIONS
from motet.config.fields import all_sections, all_settings


@pytest.mark.parametrize("word", FOREIGN_KEYS)
def test_a_foreign_word_is_translated_to_a_setting_or_explained(word: str) -> None:
    foreign = FOREIGN_KEYS[word]
    assert foreign.key in all_settings() or (not foreign.key and foreign.note)
    assert word == word.lower()


@pytest.mark.parametrize("word", FOREIGN_KEYS)
def test_no_foreign_word_is_one_of_ours(word: str) -> None:
    assert word not in {key.rpartition(".")[2] for key in all_settings()}


@pytest.mark.parametrize("section", FOREIGN_SECTIONS)
def test_a_foreign_section_points_to_one_of_ours(section: str) -> None:
    place = FOREIGN_SECTIONS[section].partition("]")[0].strip("[")
    assert place in all_sections()
    assert section not in all_sections()
