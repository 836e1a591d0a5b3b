"""The page of a study: what a reader finds on it, and that nothing is left out in silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from motet.config import StudyFile
from motet.study import render_page
from motet.study.page import Circumstances

Make = Callable[..., Any]
NOW = Circumstances("motet study s.toml", "2 processors", "01 May 2026", 600.0, 2, 0)
MISSING = Circumstances("motet study s.toml", "2 processors", "01 May 2026", 600.0, 2, 3)


def study(**study: Any) -> StudyFile:
    return StudyFile.model_validate(
        {
            "study": {"name": "s"} | study,
            "pair": {"size": {"title": "two sizes", "node": [{"name": "small", "model": "tiny:small"}]}},
            "arm": {
                "alone": {"settings": {"method": {"name": "on_policy"}}},
                "f_tis": {},
                "own": {"title": "a | b", "settings": {"method": {"name": "f_tis", "cap": 3.0}}},
                "late": {},
            },
        }
    )


def page_of(rows: Make, now: Circumstances = NOW, **settings: Any) -> str:
    made = [*rows("alone", [0.5, 0.6]), *rows("f_tis", [0.5, 0.7]), *rows("own", [0.55, 0.6], kept_share=0.25)]
    return render_page(study(**settings), made, now, {"size": ["images/a.png", "images/b.png"]})


def test_numbers_by_hand(rows: Make) -> None:
    page = page_of(rows)
    assert "| small | before training | 20.0 +- 0.0 | 10.0 +- 0.0 |" in page
    assert "| small | alone | 55.0 +- 5.0 | 30.0 +- 0.0 |" in page
    assert "| small | own | +2.5 (-29.3 to +34.3) | +0.0 (+0.0 to +0.0) |" in page  # 12.706 * 2.5
    assert "6 runs, 2 side by side, 10 minutes of run time" in page


def test_an_added_arm_is_everywhere(rows: Make) -> None:
    page = page_of(rows)
    assert "| own: nobody leaves worse by 2 points" in page
    assert '| own | a \\| b | `method.name = "f_tis"`, `method.cap = 3.0` | 2 |' in page
    assert page.count("| small | own |") == 3
    assert "| late | - | - | 0 |" in page  # one of which nothing is finished
    assert "| alone | (baseline) |" in page


def test_costs(rows: Make) -> None:
    # The baseline ends at 55 on average; 54 is reached by one seed of f_tis, from 45 at round 5 to 70 at round 10,
    # after 68 s; one of the baseline's own gets there after 80 s.
    line = next(line for line in page_of(rows).splitlines() if line.startswith("| small | f_tis |") and "/" in line)
    assert line == "| small | f_tis | 7 (1/2) | 68 | 1.2x | 2,560 | 100 | - | - | 0/2 |"
    assert "| 25 | 0/2 |" in page_of(rows)


def test_controls_are_left_out_of_the_claims_and_told(rows: Make) -> None:
    made = [*rows("alone", [0.5, 0.5, 0.5]), *rows("f_tis", [0.2, 0.2, 0.2])]
    plain, harm = study(), study()
    harm.pair["size"] = harm.pair["size"].model_copy(update={"is_control": True})
    claim = "F-TIS ends like training alone"
    assert claim in render_page(plain, made, NOW, {})
    page = render_page(harm, made, NOW, {})
    assert claim not in page
    assert "f_tis: nobody leaves worse" in page


def test_pictures_and_what_is_missing(rows: Make) -> None:
    page = page_of(rows, MISSING, margin_points=1.5)
    assert "](images/a.png)\n\n![curves of size](images/b.png)" in page
    assert "**3 of the runs of the study are not finished and not in it.**" in page
    assert "1.5 points" in page
    assert "not finished" not in page_of(rows)


def test_a_study_without_its_baseline_has_no_differences(rows: Make) -> None:
    page = render_page(study(), rows("own", [0.5], ood=None), NOW, {})
    assert "Difference from" not in page
    assert "Does anybody leave worse?" not in page
    assert "| node | arm | held-out |\n" in page
    assert "| small | own | - (0/1) | - |" in page


def test_fresh_seeds_confirm_or_refute_what_others_picked(rows: Make) -> None:
    made = [*rows("alone", [0.5] * 6), *rows("own", [0.5, 0.5, 0.5, 0.4, 0.4, 0.4], ood=0.3)]
    page = render_page(study(fresh_seeds=[3, 4, 5]), made, NOW, {})
    picked, confirmed = page.split("## Confirmed on fresh seeds?")
    claim = "| own: nobody leaves worse by 2 points, in distribution and out of it |"
    assert f"{claim} **holds** |" in picked
    assert "seeds 3, 4, 5 alone" in confirmed
    assert f"{claim} **does not hold** | pass: held-out 0 of 1, OOD 1 of 1;" in confirmed
    assert "| small | own | -5.0 (" in confirmed, "the other tables are of all seeds"
    assert "## Confirmed" not in render_page(study(fresh_seeds=[7]), made, NOW, {})
    assert "## Confirmed" not in render_page(study(), made, NOW, {})
