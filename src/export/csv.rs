//! One row per drafted position, of the speculative lane and of the rival.
//!
//! Invariant: token texts are JSON strings, so no spreadsheet reads one as a formula and nothing is lost. An empty
//! cell means that there is no such value.

use draftscope_protocol::{Lane, Outcome, Piece};
use draftscope_session::{Round, Session, Turn};

use super::atomic_file::Out;
use super::error::WriteError;
use super::json_line::escaped;

/// `position` is the index of the draft in its round, from 0. In a tree, `row` is the target's row that judges it,
/// `parent` the draft that it continues (empty for the anchor) and `depth` the number of drafts between it and the
/// anchor. `limit` is the value that `u` had to stay below, where that is not p ÷ q. Times are in microseconds,
/// probabilities from 0 to 1.
const COLUMNS: [&str; 25] = [
    "turn",
    "round",
    "position",
    "base_len",
    "k",
    "rule",
    "token_id",
    "token",
    "q",
    "p",
    "u",
    "outcome",
    "best_id",
    "best",
    "best_p",
    "rank",
    "next_kind",
    "draft_us",
    "verify_us",
    "clock_us",
    "lane",
    "limit",
    "row",
    "parent",
    "depth",
];

pub(super) fn write(session: &Session, out: Out<'_>) -> Result<(), WriteError> {
    let mut table = csv::Writer::from_writer(out);
    table.write_record(COLUMNS).map_err(io_error)?;
    for turn in session.turns() {
        // plain decoding drafts nothing
        for lane in [Lane::Speculative, Lane::Rival] {
            for round in &turn.answer(lane).rounds {
                for index in 0..round.drafts.len() {
                    table.write_record(row((turn, lane), round, index)).map_err(io_error)?;
                }
            }
        }
    }
    table.flush()?;
    Ok(())
}

/// The I/O error within an error of `csv`, whose own conversion would lose the kind.
fn io_error(error: csv::Error) -> std::io::Error {
    let message = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        _ => std::io::Error::other(message),
    }
}

fn row((turn, lane): (&Turn, Lane), round: &Round, index: usize) -> [String; COLUMNS.len()] {
    let draft = &round.drafts[index];
    let judgement = round.judgement(index);
    let target = round.prediction(index);
    let best = target.and_then(|row| row.best());
    let number = |value: Option<f32>| value.map_or(String::new(), |v| v.to_string());
    let outcome = judgement.map_or("", |j| match j.outcome {
        Outcome::Accepted => "accepted",
        Outcome::Rejected => "rejected",
        Outcome::NotReached => "not_reached",
    });
    let next = round.next_kind().map(|kind| serde_json::json!(kind).as_str().unwrap_or_default().to_owned());
    [
        turn.number.to_string(),
        round.number().to_string(),
        index.to_string(),
        round.base_len().to_string(),
        round.draft_len().to_string(),
        if turn.reports_rule() { round.judged_by().to_string() } else { String::new() },
        draft.token.id.to_string(),
        text(&draft.token),
        number(draft.q),
        number(judgement.and_then(|j| j.p)),
        number(judgement.and_then(|j| j.u)),
        outcome.to_owned(),
        best.map_or(String::new(), |b| b.piece.id.to_string()),
        best.map_or(String::new(), |b| text(&b.piece)),
        number(best.map(|b| b.prob)),
        target.and_then(|row| row.find(draft.token.id)).map_or(String::new(), |(rank, _)| (rank + 1).to_string()),
        next.unwrap_or_default(),
        draft.took_us.to_string(),
        round.verify_us().to_string(),
        round.clock_us().to_string(),
        lane.name().to_owned(),
        number(judgement.and_then(|j| j.limit)),
        round.row_of(index).to_string(),
        round.parent(index).map_or(String::new(), |parent| parent.to_string()),
        round.depth(index).to_string(),
    ]
}

fn text(piece: &Piece) -> String {
    escaped(&serde_json::Value::from(piece.lossy().into_owned()).to_string())
}
