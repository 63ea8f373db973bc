"""Small files in the shapes of LoCoMo and LongMemEval become notes and questions."""

import json
from pathlib import Path
from typing import Any

import pytest

from memline.producers import cli
from memline.producers.bridges.public_benchmarks import QUESTIONS, Imported, import_benchmark
from memline.shared.errors import MemlineError


def turn(dia_id: str, speaker: str, text: str, **more: Any) -> dict[str, Any]:
    return {"dia_id": dia_id, "speaker": speaker, "text": text, **more}


LOCOMO: list[dict[str, Any]] = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Ben",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                turn("D1:1", "Ann", "I keep bees now."),
                turn("D1:2", "Ben", "  "),
                turn("D1:3", "Ben", "Where do\nthe hives stand?", img_url=["x"], blip_caption="a hive"),
            ],
            "session_2": [turn("D2:1", "Ann", "In the orchard behind the mill.")],
            "session_3_date_time": "a day without a session",
        },
        "qa": [
            {"question": "Where are the hives?", "answer": "orchard", "evidence": ["D2:1"], "category": 4},
            {"question": "Who has bees and where?", "answer": 1, "evidence": ["D1:1", "D2:1"], "category": 1},
            {"question": "What did Ben sell?", "adversarial_answer": "x", "evidence": [], "category": 5},
            {"question": "And the mill?", "evidence": ["D2:9; D1:1", "D", "D9:1"], "category": 7},
        ],
        "event_summary": {},
    },
    {"sample_id": "conv-2", "conversation": {"session_1": [turn("D1:1", "Cy", "Kestrels nest.")]}, "qa": []},
]

LONGMEMEVAL: list[dict[str, Any]] = [
    {
        "question_id": "e47b",
        "question_type": "single-session-user",
        "question": "Which tram do I take?",
        "answer": "the 12",
        "question_date": "2023/05/30 (Tue) 23:40",
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 10:00", "2023/05/20 (Sat) 02:21"],
        "haystack_session_ids": ["sharegpt_1", "answer_280", "sharegpt_1"],
        "haystack_sessions": [
            [
                {"role": "user", "content": "Tell me of\n\nferns."},
                {"role": "assistant", "content": "They are old."},
            ],
            [
                {"role": "user", "content": "I take tram 12.", "has_answer": True},
                {"role": "assistant", "content": "Good.", "has_answer": False},
            ],
            [{"role": "user", "content": "Tell me of ferns."}],
        ],
        "answer_session_ids": ["answer_280"],
    },
    {
        "question_id": "0a9b_abs",
        "question_type": "single-session-user",
        "question": "Which bus do I take?",
        "answer": "not said",
        "question_date": "2023/05/30 (Tue) 23:40",
        "haystack_dates": [],
        "haystack_session_ids": [],
        "haystack_sessions": [],
        "answer_session_ids": [],
    },
]


def imported(name: str, content: Any, folder: Path) -> tuple[Imported, Path, list[dict[str, Any]]]:
    file, out = folder / f"{name}.json", folder / "out"
    file.write_text(json.dumps(content), encoding="utf-8")
    made = import_benchmark(name, file, out)
    rows = (out / QUESTIONS).read_text("utf-8").splitlines()
    return made, out, [json.loads(row) for row in rows]


def test_the_conversations_of_locomo_are_one_workspace_with_a_note_a_session(tmp_path: Path) -> None:
    made, out, _ = imported("locomo", LOCOMO, tmp_path)

    assert made == Imported(workspaces=1, notes=3, questions=4)
    assert sorted(path.name for path in (out / "locomo").iterdir()) == [
        "c00-s01.md",
        "c00-s02.md",
        "c01-s01.md",
    ]
    assert (out / "locomo/c00-s01.md").read_text("utf-8").splitlines()[-3:] == [
        "## Conversation",
        "- **Ann:** I keep bees now.",
        "- **Ben:** Where do the hives stand?",
    ]


def test_the_evidence_of_locomo_is_a_line_else_the_note_of_its_session(tmp_path: Path) -> None:
    _, _, rows = imported("locomo", LOCOMO, tmp_path)

    assert [row["evidence"] for row in rows] == [
        [[{"path": "c00-s02.md", "line": 8}]],
        [[{"path": "c00-s01.md", "line": 8}], [{"path": "c00-s02.md", "line": 8}]],
        [],
        [[{"path": "c00-s02.md", "line": None}]],
    ]
    assert [row["category"] for row in rows] == ["single-hop", "multi-hop", "adversarial", "7"]


def test_each_question_of_longmemeval_has_its_own_haystack(tmp_path: Path) -> None:
    made, out, rows = imported("longmemeval", LONGMEMEVAL, tmp_path)

    assert made == Imported(workspaces=1, notes=2, questions=1)
    assert rows == [
        {
            "query_id": "e47b",
            "query": "Which tram do I take?",
            "workspace": "q000",
            "category": "single-session-user",
            "evidence": [[{"path": "s001.md", "line": None}]],
            "today": "2023-05-30",
        }
    ]
    assert (out / "q000/s000.md").read_text("utf-8").splitlines() == [
        "---",
        "title: s000",
        "date: 2023-05-20",
        "---",
        "",
        "# Chat session on 2023/05/20 (Sat) 02:21",
        "",
        "- **User:** Tell me of ferns.",
        "- **Assistant:** They are old.",
    ]


def test_nothing_in_the_notes_tells_which_of_them_hold_an_answer(tmp_path: Path) -> None:
    _, out, _ = imported("longmemeval", LONGMEMEVAL, tmp_path)

    notes = [path for path in out.rglob("*") if path.name != QUESTIONS]
    told = [
        str(path.relative_to(out)) + (path.read_text("utf-8") if path.is_file() else "") for path in notes
    ]
    assert len(told) == 3
    assert not any(mark in text for text in told for mark in ("answer_", "has_answer", "True", "e47b"))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("locomo", "{", "not a file of locomo"),
        ("locomo", json.dumps(LONGMEMEVAL), "conversation"),
        ("longmemeval", json.dumps(LOCOMO), "question_id"),
        ("longmemeval", json.dumps([LONGMEMEVAL[0] | {"haystack_dates": []}]), "zip"),
        ("longmemeval", json.dumps([LONGMEMEVAL[0] | {"answer_session_ids": ["answer_1"]}]), "answer_1"),
    ],
)
def test_a_file_of_another_shape_is_named_and_nothing_is_written(
    tmp_path: Path, name: str, content: str, said: str
) -> None:
    file = tmp_path / "file.json"
    file.write_text(content, encoding="utf-8")

    with pytest.raises(MemlineError, match=said):
        import_benchmark(name, file, tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_in_it_is_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file.json"
    file.write_text(json.dumps(LOCOMO), encoding="utf-8")

    assert cli.run(["bench", "import", "locomo", str(file), str(tmp_path)]) == 1

    assert "is not an empty folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file.json"]
