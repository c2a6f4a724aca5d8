//! Two Parquet tables in the format of the Python package specspecs: `sequences` and `drafts`.
//!
//! Times are those at which a prompt arrived and a round committed. Invariant: the package skips the first entry of a
//! round's draft, since it is the last token of the round before. So each round's draft begins with its anchor, and
//! that entry counts as accepted: draftscope's accepted ÷ drafted is `(acceptance_length − 1) ÷ (k − 1)` there.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use draftscope_protocol::{Committed, EventKind, Lane, Outcome, TokenId};
use draftscope_session::trace::Recording;
use draftscope_session::{Answer, Round, Session};

use super::error::WriteError;

const SEQUENCES: &str = "message schema {
  optional binary run_id (STRING);
  optional binary sequence_id (STRING);
  optional int64 t (TIMESTAMP(MICROS,false));
  optional group prompt_token_ids (LIST) { repeated group list { optional int64 element; } }
  optional int32 prompt_len;
}";

const DRAFTS: &str = "message schema {
  optional binary run_id (STRING);
  optional binary sequence_id (STRING);
  optional int32 step;
  optional int64 t (TIMESTAMP(MICROS,false));
  optional group draft_tokens (LIST) { repeated group list { optional int64 element; } }
  optional group acceptances (LIST) { repeated group list { optional boolean element; } }
  optional int32 k (INTEGER(16,true));
  optional int32 acceptance_length (INTEGER(16,true));
  optional int32 emitted_token;
}";

/// File names of the tables.
const FILES: [&str; 2] = ["sequences-0-00000.parquet", "drafts-0-00000.parquet"];

/// Whether this format writes a file of this name.
pub(super) fn is_own(name: &str) -> bool {
    FILES.contains(&name)
}

/// The values of one column, one per row; `Longs` and `Bools` have a list per row.
enum Column {
    Text(Vec<String>),
    Long(Vec<i64>),
    Int(Vec<i32>),
    Longs(Vec<Vec<i64>>),
    Bools(Vec<Vec<bool>>),
}

/// Times of events, in µs since the start of the recording.
#[derive(Default)]
struct Moments {
    /// By turn: when its prompt arrived.
    prompted: HashMap<u32, u64>,
    /// By turn and round: when the round committed.
    committed: HashMap<(u32, u32), u64>,
}

impl Moments {
    fn of(recording: &Recording) -> Result<Self, WriteError> {
        let (mut moments, mut current) = (Self::default(), 0);
        for event in recording.events()? {
            let event = event?;
            match event.kind {
                EventKind::Prompted { turn, .. } => {
                    current = turn;
                    moments.prompted.insert(turn, event.at_us);
                }
                EventKind::Committed(Committed { round, .. }) if event.lane == Lane::Speculative => {
                    moments.committed.insert((current, round), event.at_us);
                }
                _ => {}
            }
        }
        Ok(moments)
    }
}

pub(super) fn write(recording: &Recording, session: &Session, folder: &Path) -> Result<(), WriteError> {
    let answers: Vec<&Answer> = session.turns().iter().map(|turn| turn.answer(Lane::Speculative)).collect();
    let answers: Vec<&Answer> = answers.into_iter().filter(|answer| !answer.tokens.is_empty()).collect();
    if answers.is_empty() {
        return Err(WriteError::Nothing("answer"));
    }
    let started_us = session.header().map_or(0, |header| header.started_unix_ms.saturating_mul(1000));
    let run = format!("draftscope-{}", started_us / 1000);
    let time = |at_us: &u64| i64::try_from(started_us.saturating_add(*at_us)).unwrap_or(i64::MAX);
    let moments = Moments::of(recording)?;
    let prompted = |turn: u32| moments.prompted.get(&turn).map_or(0, time);
    let committed = |turn: u32, round: u32| moments.committed.get(&(turn, round)).map_or(0, time);
    table(&folder.join(FILES[0]), SEQUENCES, sequences(&answers, &run, prompted))?;
    table(&folder.join(FILES[1]), DRAFTS, drafts(&answers, &run, committed))
}

fn sequences(answers: &[&Answer], run: &str, time: impl Fn(u32) -> i64) -> Vec<Column> {
    let ids = |answer: &&Answer| answer.prompt.iter().map(|id| i64::from(id.0)).collect();
    vec![
        Column::Text(answers.iter().map(|_| run.to_owned()).collect()),
        Column::Text(answers.iter().map(|answer| sequence(answer)).collect()),
        Column::Long(answers.iter().map(|answer| time(answer.turn)).collect()),
        Column::Longs(answers.iter().map(ids).collect()),
        Column::Int(answers.iter().map(|answer| answer.prompt.len() as i32).collect()),
    ]
}

fn sequence(answer: &Answer) -> String {
    format!("turn-{}", answer.turn)
}

fn drafts(answers: &[&Answer], run: &str, time: impl Fn(u32, u32) -> i64) -> Vec<Column> {
    let steps: Vec<(&Answer, usize, &Round)> = answers
        .iter()
        .flat_map(|answer| {
            let complete = answer.rounds.iter().filter(|round| round.is_complete && !round.committed.is_empty());
            complete.enumerate().map(|(step, round)| (*answer, step, &**round))
        })
        .collect();
    let each_int =
        |value: &dyn Fn(&Round) -> usize| Column::Int(steps.iter().map(|(_, _, round)| value(round) as i32).collect());
    let tokens = |(answer, _, round): &(&Answer, usize, &Round)| -> Vec<i64> {
        let anchor = round.first_token.checked_sub(1).and_then(|at| answer.tokens.get(at)).map(|t| t.piece.id);
        // in a tree the accepted path comes first, since the package knows only chains
        let others = (0..round.drafts.len()).filter(|i| round.outcome(*i) != Some(Outcome::Accepted));
        let drafts = round.path().chain(others).filter_map(|i| Some(round.drafts.get(i)?.token.id));
        std::iter::once(anchor.unwrap_or(TokenId(0))).chain(drafts).map(|id| i64::from(id.0)).collect()
    };
    let kept = |round: &Round| (0..=round.drafts.len()).map(|i| i < round.committed.len()).collect();
    vec![
        Column::Text(steps.iter().map(|_| run.to_owned()).collect()),
        Column::Text(steps.iter().map(|(answer, _, _)| sequence(answer)).collect()),
        Column::Int(steps.iter().map(|(_, step, _)| *step as i32).collect()),
        Column::Long(steps.iter().map(|(answer, _, round)| time(answer.turn, round.round)).collect()),
        Column::Longs(steps.iter().map(tokens).collect()),
        Column::Bools(steps.iter().map(|(_, _, round)| kept(round)).collect()),
        each_int(&|round| round.drafts.len() + 1),
        each_int(&|round| round.committed.len()),
        each_int(&|round| round.committed.last().map_or(0, |piece| piece.id.0 as usize)),
    ]
}

fn table(path: &Path, schema: &str, columns: Vec<Column>) -> Result<(), WriteError> {
    let write = || -> Result<(), ParquetError> {
        let zstd = Compression::ZSTD(ZstdLevel::default());
        let properties = Arc::new(WriterProperties::builder().set_compression(zstd).build());
        let mut writer =
            SerializedFileWriter::new(File::create(path)?, Arc::new(parse_message_type(schema)?), properties)?;
        let mut group = writer.next_row_group()?;
        for column in columns {
            column.write(&mut group)?;
        }
        group.close()?;
        writer.close().map(drop)
    };
    write().map_err(|error| WriteError::Io(io::Error::other(error)))
}

impl Column {
    fn write(self, group: &mut SerializedRowGroupWriter<'_, File>) -> Result<(), ParquetError> {
        let Some(mut column) = group.next_column()? else {
            return Err(ParquetError::General("more columns than the schema has".into()));
        };
        match (column.untyped(), self) {
            (ColumnWriter::ByteArrayColumnWriter(w), Self::Text(rows)) => {
                let values: Vec<ByteArray> = rows.iter().map(|text| text.as_str().into()).collect();
                w.write_batch(&values, Some(&vec![1; values.len()]), None)?
            }
            (ColumnWriter::Int64ColumnWriter(w), Self::Long(rows)) => {
                w.write_batch(&rows, Some(&vec![1; rows.len()]), None)?
            }
            (ColumnWriter::Int32ColumnWriter(w), Self::Int(rows)) => {
                w.write_batch(&rows, Some(&vec![1; rows.len()]), None)?
            }
            (ColumnWriter::Int64ColumnWriter(w), Self::Longs(rows)) => {
                let (values, defined, repeated) = levels(rows);
                w.write_batch(&values, Some(&defined), Some(&repeated))?
            }
            (ColumnWriter::BoolColumnWriter(w), Self::Bools(rows)) => {
                let (values, defined, repeated) = levels(rows);
                w.write_batch(&values, Some(&defined), Some(&repeated))?
            }
            _ => return Err(ParquetError::General("a column is not of the schema's type".into())),
        };
        column.close()
    }
}

/// Lists as Parquet stores them: all values, their definition levels, and their repetition levels (0 begins a list).
fn levels<T>(rows: Vec<Vec<T>>) -> (Vec<T>, Vec<i16>, Vec<i16>) {
    let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        if row.is_empty() {
            defined.push(1);
            repeated.push(0);
        }
        for (index, value) in row.into_iter().enumerate() {
            values.push(value);
            defined.push(3);
            repeated.push(i16::from(index > 0));
        }
    }
    (values, defined, repeated)
}
