"""Reads exports with independent parsers: pyarrow, xml, json, csv, a JSON Schema validator."""
import csv
import json
import pathlib
import sys
import xml.etree.ElementTree

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq

work = pathlib.Path(sys.argv[1])
schema = json.loads(pathlib.Path(sys.argv[2]).read_text())
validator = jsonschema.Draft202012Validator(schema)
events = [json.loads(line) for line in (work / "out.jsonl").read_text().splitlines()]
for event in events:
    validator.validate(event)
committed = [e for e in events if e["type"] == "committed" and e.get("lane", "speculative") == "speculative"]
drafted = [e for e in events if e["type"] == "drafted" and e.get("lane", "speculative") == "speculative"]

# the package specspecs declares these columns
sequences = pq.read_table(work / "out.specspecs" / "sequences-0-00000.parquet")
drafts = pq.read_table(work / "out.specspecs" / "drafts-0-00000.parquet")
assert sequences.schema.equals(pa.schema([
    ("run_id", pa.string()), ("sequence_id", pa.string()), ("t", pa.timestamp("us")),
    ("prompt_token_ids", pa.list_(pa.field("element", pa.int64()))), ("prompt_len", pa.int32())])), sequences.schema
assert drafts.schema.equals(pa.schema([
    ("run_id", pa.string()), ("sequence_id", pa.string()), ("step", pa.int32()), ("t", pa.timestamp("us")),
    ("draft_tokens", pa.list_(pa.field("element", pa.int64()))),
    ("acceptances", pa.list_(pa.field("element", pa.bool_()))), ("k", pa.int16()),
    ("acceptance_length", pa.int16()), ("emitted_token", pa.int32())])), drafts.schema
rows = drafts.to_pylist()
assert len(rows) == len(committed), (len(rows), len(committed))
for row, event in zip(rows, committed):
    ids = [t["id"] for t in event["tokens"]]
    assert row["emitted_token"] == ids[-1] and row["draft_tokens"][1:row["acceptance_length"]] == ids[:-1]
    assert sum(row["acceptances"]) == row["acceptance_length"] and len(row["draft_tokens"]) == row["k"]

xml.etree.ElementTree.parse(work / "out.svg")
frames = sorted((work / "out.gif-frames").glob("*.svg"))
assert len(frames) > 5
xml.etree.ElementTree.parse(frames[-1])
with open(work / "out.csv", newline="") as file:
    table = [row for row in csv.DictReader(file) if row["lane"] == "speculative"]
assert len(table) == len(drafted)
assert [json.loads(r["token"]) for r in table] == [e["token"].get("text", json.loads(r["token"])) for e, r in zip(drafted, table)]
trace = json.loads((work / "out.perfetto").read_text())
assert sum(e["name"] == "draft" and e["pid"] == 1 for e in trace["traceEvents"]) == len(drafted)
# the Trace Event Format, as Perfetto's JSON importer reads it: the fields of each phase, named lanes, and
# complete slices that do not overlap on their lane
named = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
assert set(named.values()) == {"drafter", "target"}, named
needs = {"M": {"args"}, "X": {"ts", "dur", "args", "cat"}, "i": {"ts", "s", "args"}, "C": {"ts", "args"}}
ends = {}
for event in trace["traceEvents"]:
    assert event["ph"] in needs and {"name", "pid", "tid", *needs[event["ph"]]} <= event.keys(), event
    assert all(isinstance(event.get(key, 0), int) and event.get(key, 0) >= 0 for key in ("ts", "dur", "pid", "tid")), event
    if event["ph"] == "i":
        assert event["s"] in ("g", "p", "t"), event
    if event["ph"] == "C":
        assert all(isinstance(value, (int, float)) for value in event["args"].values()), event
    if event["ph"] == "X":
        lane = (event["pid"], event["tid"])
        assert lane in named and event["ts"] >= ends.get(lane, 0), event
        ends[lane] = event["ts"] + event["dur"]
requests = json.loads((work / "out.vllm-json").read_text())
assert sum(r["metrics"]["speculative_decoding"]["num_draft_tokens"] for r in requests) == len(drafted)
print(f"files: {len(events)} events follow the schema; Parquet, XML, CSV and JSON read back alike")
