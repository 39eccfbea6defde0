"""Records of measurements and their file: round trip, torn lines, damage."""

import dataclasses
import json

import pytest

from prenet_gnn.errors import DataError
from prenet_gnn.measuring import MeasuredRecord, append_record, read_records


def test_record_survives_json():
    record = MeasuredRecord(
        model="layer:dense",
        batch_size=3,
        seconds=0.25,
        samples_s=(0.25, 0.5),
        operators=(("mm", 0.1, 2),),
        machine={"torch": "2.9"},
    )
    assert MeasuredRecord.from_dict(json.loads(record.to_json())) == record


def test_key_says_which_point_and_not_what_came_out():
    record = MeasuredRecord(model="layer:dense", batch_size=3)
    assert dataclasses.replace(record, seconds=1.0, hardware="x").key == record.key
    for change in ({"batch_size": 4}, {"mode": "infer"}, {"threads": 2}, {"compiled": True}):
        assert dataclasses.replace(record, **change).key != record.key


def test_torn_last_line_is_dropped_and_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "m.jsonl"
    for batch in (1, 2):
        append_record(path, MeasuredRecord(model="a", batch_size=batch))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    notes = []
    assert [r.batch_size for r in read_records(path, notes)] == [1]
    assert len(notes) == 1
    assert "torn" in notes[0]
    append_record(path, MeasuredRecord(model="a", batch_size=3))
    notes.clear()
    assert [r.batch_size for r in read_records(path, notes)] == [1, 3]
    assert notes == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"model": "a"\n', "line 1"),
        ("[1]\n", "JSON object"),
        ('{"model": "a", "batch_size": 1, "colour": 2}\n', "colour"),
        ('{"model": "a", "batch_size": 1, "schema": 99}\n', "newer"),
        ('{"model": "a"}\n', "batch_size"),
        ('{"model": "a", "batch_size": 1, "status": "fine"}\n', "Allowed: ok"),
    ],
)
def test_damage_elsewhere_names_file_and_line(tmp_path, text, message):
    path = tmp_path / "m.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=message) as raised:
        read_records(path)
    assert "m.jsonl line 1" in str(raised.value)


def test_missing_records_file_says_how_to_make_one(tmp_path):
    with pytest.raises(DataError, match="prenet measure"):
        read_records(tmp_path / "none.jsonl")
