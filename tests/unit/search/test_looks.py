"""What looks alike, or touches another script, is found: in texts, names and questions alike."""

import pytest

from tests.unit.search.conftest import ask

FOUND = [
    # Words that touch a script without spaces.
    (
        "昨天把Nginx换成了Caddy，端口是8443，日期2026-02-10。",
        ["Nginx", "Caddy", "8443", "2026-02-10", "昨天"],
    ),
    ("서버에서 Docker를 Podman으로 바꿨다.", ["Docker", "Podman"]),
    ("ใช้Redisแทน", ["Redis"]),
    # Words of two alphabets.
    (
        "דיברנו על הAPI, نستخدم وRedis, веб2версия и JSONом, Dockerом",
        ["API", "Redis", "JSON", "версия", "docker"],
    ),
    # Hyphens of every kind, and what cannot be seen.
    ("CVE\u20112024\u20111234, PAY\u2010417, pages 10\u201320", ["CVE-2024-1234", "PAY-417", "10-20"]),
    ("temperature \u22125 in co\u00adoperation", ["cooperation"]),
    # Letters and figures that join and part.
    ("GPT-5, UTF-8, ISO 8601, Python 3, an e-mail", ["gpt5", "utf8", "iso8601", "python3", "email"]),
    ("gpt5, utf8, iso8601, python3, an email", ["GPT-5", "UTF-8", "ISO 8601", "Python 3", "e-mail"]),
    ("covid19 and IPv6", ["Covid-19", "covid 19", "ipv6"]),
    # Character references.
    ("Caf&eacute; M&uuml;ller; AT&amp;T, &#201;ric, na&#xEF;ve", ["café", "Müller", "AT&T", "Éric", "naïve"]),
    # Case.
    ("Işık, ıspanak, DİYARBAKIR, KAPI", ["IŞIK", "ışık", "Ispanak", "diyarbakır", "kapı"]),
    ("ΟΔΟΣ και οδός, STRASSE", ["οδος", "straße"]),
    ("Ο Σίσυφος", ["σισυφος", "ΣΙΣΥΦΟΣ"]),
    # Letters that another keyboard lacks.
    ("Ørsted, Łódź, Đorđe, œuvre, Æsir", ["orsted", "Lodz", "Dorde", "oeuvre", "aesir"]),
    # Figures of other scripts.
    ("الفاتورة ٤١٧ في ٢٠٢٦-٠٢-١٠; नियम १२३", ["417", "2026-02-10", "123"]),
]


@pytest.mark.parametrize(("text", "question"), [(text, each) for text, asked in FOUND for each in asked])
def test_a_word_is_found_however_it_looks(notes, index, text, question):
    notes.add("right.md", text)
    for number in range(4):
        notes.add(f"filler-{'abcd'[number]}.md", "Other words, 1234 hosts, slips.")

    answer = ask(index, question, day="2026-11-01")

    assert answer.hits[0].path == "right.md"
    assert answer.missing == ()


@pytest.mark.parametrize("question", ["Caddy", "会议", "GPT-5"])
def test_names_of_files_are_read_alike(notes, index, question):
    notes.add("会议Caddy gpt5.md", "Nothing of it.")
    notes.add("other.md", "Other words.")

    assert ask(index, question).hits[0].path.startswith("会议")
