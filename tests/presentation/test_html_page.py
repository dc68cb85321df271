from __future__ import annotations

from scheduler.presentation.html_page import html_page, html_text, section

EVIL = "</title><script>1</script>\u202e"


def test_what_users_wrote_is_text() -> None:
    made = html_page(EVIL, [*section(EVIL, "content")])
    assert "<script" not in made
    assert "\u202e" not in made
    assert made.count("</title>") == 1


def test_a_section_without_content_is_left_out() -> None:
    assert list(section("empty", "")) == []


def test_quotes_cannot_end_an_attribute() -> None:
    assert '"' not in html_text('" onload="alert(1)')
