//! One self-contained page: transcript, token cards, list of rounds, plots and a player.
//!
//! Invariant: the page loads nothing, and its script shows the recording as text only; see [`super::page_frame`]. Memory is
//! bounded by the rounds that the page shows, and each is converted as it is written.

use std::cell::Cell;
use std::io::{self, Write};

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use draftscope_protocol::{DraftRefused, Lane, Outcome, Piece, Prediction};
use draftscope_session::text::{self, Joiner};
use draftscope_session::trace::Recording;
use draftscope_session::{Answer, Fate, Figure, Provenance, Round, Session, Speedup, TranscriptToken, Turn, explain};

use super::page_frame::Parts;
use super::run_settings::{changed, rivals};

/// What the page adds to the frame.
pub(super) const PARTS: Parts = Parts {
    body: include_str!("page/page.html"),
    style: include_str!("page/page.css"),
    script: include_str!("page/page.js"),
};

/// Most rounds shown: browsers stay fast up to some tens of thousands of tokens.
const MAX_ROUNDS: usize = 4000;

/// Tokens over which the speed curve is averaged.
const SPEED_WINDOW: u64 = 16;

/// A session for [`write`]: it keeps the candidates of those rounds that a page shows.
pub(super) fn session() -> Session {
    Session::of_first_rounds(MAX_ROUNDS)
}

/// Writes the whole page.
pub(super) fn write(session: &Session, recording: &Recording, out: &mut dyn Write) -> io::Result<()> {
    let title = session.header().map_or("", |header| header.model.name.as_str());
    PARTS.write(&text::one_line(title), None, ("", &Page(session, recording)), out)
}

/// Replaces control characters in every string by visible pictures: not all strings come from `session::text`.
pub(super) fn pictured(mut value: Value) -> Value {
    picture(&mut value);
    value
}

fn picture(value: &mut Value) {
    match value {
        Value::String(shown) => *shown = text::printable(shown).into_owned(),
        Value::Array(values) => values.iter_mut().for_each(picture),
        Value::Object(fields) => fields.values_mut().for_each(picture),
        _ => {}
    }
}

/// The data of a page.
struct Page<'a>(&'a Session, &'a Recording);

impl Serialize for Page<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(session, recording) = self;
        with_list(serializer, around(session, recording), "turns", turns(session))
    }
}

/// A turn, of whose rounds so many are shown.
struct ShownTurn<'a>(&'a Turn, usize);

impl Serialize for ShownTurn<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(turn, shown) = self;
        let reports_rule = turn.reports_rule();
        let rounds = turn.answer(Lane::Speculative).rounds[..*shown].iter();
        let rounds = rounds.map(|shown| pictured(round(shown, reports_rule)));
        with_list(serializer, around_rounds(turn, *shown), "rounds", rounds)
    }
}

/// An object with one more field, a list whose items are made as they are written.
fn with_list<S: Serializer>(
    serializer: S,
    fields: Value,
    name: &'static str,
    items: impl Iterator<Item: Serialize>,
) -> Result<S::Ok, S::Error> {
    let fields = match pictured(fields) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    let mut object = serializer.serialize_map(None)?;
    for (name, value) in &fields {
        object.serialize_entry(name, value)?;
    }
    object.serialize_entry(name, &List(Cell::new(Some(items))))?;
    object.end()
}

/// Items that are made as they are written, once.
struct List<I>(Cell<Option<I>>);

impl<I: Iterator<Item: Serialize>> Serialize for List<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.take().into_iter().flatten())
    }
}

/// The turns until [`MAX_ROUNDS`] are shown.
fn turns(session: &Session) -> impl Iterator<Item = ShownTurn<'_>> {
    let mut left = MAX_ROUNDS;
    session.turns().iter().map_while(move |turn| {
        let shown = turn.answer(Lane::Speculative).rounds.len().min(left);
        let is_shown = left > 0;
        left -= shown;
        is_shown.then_some(ShownTurn(turn, shown))
    })
}

/// The page without its turns.
fn around(session: &Session, recording: &Recording) -> Value {
    let rounds: usize = session.turns().iter().map(|turn| turn.answer(Lane::Speculative).rounds.len()).sum();
    let beside = |lane| (session.stats(lane).rounds() > 0).then(|| summary(session, lane));
    json!({
        "header": session.header(),
        "reports_rule": session.reports_rule(),
        "changed": session.header().and_then(changed),
        "cut": recording.cut().map(ToString::to_string),
        "left_out": (rounds > MAX_ROUNDS).then(|| format!("the first {MAX_ROUNDS} of {rounds} rounds are shown")),
        "summary": summary(session, Lane::Speculative),
        "plain": beside(Lane::Plain),
        "rival": beside(Lane::Rival),
        "rival_settings": text::one_line(&rivals(session)),
        "speedup": figure(session, Lane::Plain),
        "speedup_over_rival": figure(session, Lane::Rival),
        "marks": session.marks().iter().map(|mark| json!({
            "round": mark.place.map(|place| place.round), "turn": mark.place.map(|place| place.turn),
            "place": mark.place.map(|place| place.to_string()), "bookmark": mark.is_bookmark, "text": text::one_line(&mark.text),
        })).collect::<Vec<_>>(),
    })
}

/// A speedup, as words too, with what is to be thought of it; null without one.
fn figure(session: &Session, lane: Lane) -> Value {
    let figure = |speedup: Speedup| {
        let mut figure = json!(Figure::from(Some(speedup)));
        figure["text"] = json!(speedup.to_string());
        figure["note"] = json!(speedup.note());
        figure
    };
    session.speedup_over(lane).map_or(Value::Null, figure)
}

/// A lane in numbers; tokens per round are those that were put out, and a lane beside has the speed that goes with the
/// speedup.
fn summary(session: &Session, lane: Lane) -> Value {
    let stats = session.stats(lane);
    let mut summary = json!(stats.summary());
    summary["tokens_per_round"] = json!(stats.mean_tokens_per_round());
    summary["tokens_per_second"] = json!(session.tokens_per_second(lane));
    summary
}

/// A turn without its rounds, of which so many are shown.
fn around_rounds(turn: &Turn, shown: usize) -> Value {
    let answer = turn.answer(Lane::Speculative);
    let last = answer.rounds.get(shown).map_or(u32::MAX, |next| next.number());
    json!({
        "number": turn.number,
        "typed": text::printable(&turn.typed),
        "first_row": row(&answer.first_row),
        "transcript": transcript(answer, last),
        "speed": speeds(answer),
        "plain_speed": speeds(turn.answer(Lane::Plain)),
        "rival_speed": speeds(turn.answer(Lane::Rival)),
        "finished": answer.finished,
    })
}

fn speeds(answer: &Answer) -> Vec<[f64; 2]> {
    let points = answer.speed_series(SPEED_WINDOW);
    let step = points.len() / 400 + 1; // the plot is 400 pixels wide
    points.iter().step_by(step).map(|p| [p.clock_us as f64 / 1e6, p.tokens_per_second]).collect()
}

/// All tokens of an answer in order, rejected ones included: text, fate, round and column in the round (0 for the
/// first token). Characters that were split over several tokens are joined.
fn transcript(answer: &Answer, before: u32) -> Vec<Value> {
    let mut joiner = Joiner::default();
    let tokens = answer.transcript().take_while(|token| token.round < before);
    tokens
        .map(|token| {
            let (fate, column) = (name(&token), token.column);
            let is_committed = matches!(token.fate, Fate::Committed(_));
            let is_nameless = is_committed && token.piece.bytes.is_empty(); // the recording has digests, no texts
            match token.piece.special {
                true => json!([END, format!("{fate} end"), token.round, column]),
                false if is_nameless => json!([text::inline(token.piece), fate, token.round, column]),
                false if is_committed => {
                    json!([text::printable(&joiner.push(&token.piece.bytes)), fate, token.round, column])
                }
                false => json!([discarded(token.piece), fate, token.round, column]),
            }
        })
        .collect()
}

/// Stands for a control token.
const END: &str = "■";

/// A draft on one line, its leading spaces as spaces: they separate it from the word before.
fn discarded(piece: &Piece) -> String {
    let spaces = piece.bytes.iter().take_while(|byte| **byte == b' ').count();
    let dots = text::inline(piece);
    let word = dots.char_indices().nth(spaces).map_or("", |(at, _)| &dots[at..]);
    format!("{}{word}", " ".repeat(spaces))
}

/// An accepted draft that the target would not have picked.
const DEPARTED: &str = "accepted departed";

/// An accepted draft that the grammar forced.
const FORCED: &str = "accepted forced";

fn name(token: &TranscriptToken) -> &'static str {
    match token.fate {
        Fate::Committed(_) if token.departs => DEPARTED,
        Fate::Committed(_) if token.forced => FORCED,
        Fate::Committed(Provenance::Prefill) => "first",
        Fate::Committed(Provenance::Kept) => "kept",
        Fate::Committed(Provenance::Accepted) => "accepted",
        Fate::Committed(Provenance::Recovered) => "recovered",
        Fate::Committed(Provenance::Bonus) => "bonus",
        Fate::Committed(Provenance::Plain) => "plain",
        Fate::Rejected => "rejected",
        Fate::NotReached => "not_reached",
        Fate::Pending => "pending",
        Fate::Refused => "refused",
    }
}

fn round(round: &Round, reports_rule: bool) -> Value {
    let drafts = round.drafts.iter().enumerate().map(|(index, draft)| {
        let judgement = round.judgement(index);
        let outcome = judgement.map_or("pending", |j| match j.outcome {
            Outcome::Accepted => "accepted",
            Outcome::Rejected => "rejected",
            Outcome::NotReached => "not_reached",
        });
        json!({
            "text": text::inline(&draft.token), "id": draft.token.id, "q": draft.q, "p": judgement.and_then(|j| j.p),
            "u": judgement.and_then(|j| j.u), "outcome": outcome, "forced": draft.forced, "top": row(&draft.top), "us": draft.took_us,
        })
    });
    let columns = 0..=round.drafts.len();
    json!({
        "round": round.number(),
        "k": round.draft_len(),
        "rule": reports_rule.then(|| round.judged_by().to_string()),
        "drafts": drafts.collect::<Vec<_>>(),
        "rows": columns.clone().map(|index| round.prediction(index).map(row)).collect::<Vec<_>>(),
        "next": round.next_piece().map(|piece| text::inline(&piece)),
        "next_kind": round.next_kind(),
        "why": columns.map(|index| explain(round, index).map(|finding| finding.text)).collect::<Vec<_>>(),
        "refused": round.refused.iter().map(refused).collect::<Vec<_>>(),
        "next_column": round.next_index(),
        "accepted": round.accepted(),
        "committed": round.committed().len(),
        "verify_us": round.verify_us(),
        "clock_us": round.clock_us(),
    })
}

/// A token that the grammar refused, and what it expects in its place.
fn refused(refused: &DraftRefused) -> Value {
    let expected = text::one_line(&refused.expected);
    json!({ "column": refused.index, "text": text::inline(&refused.token), "q": refused.q, "expected": expected })
}

/// The best candidates (text, probability, id) and the total probability of all others.
fn row(row: &Prediction) -> Value {
    let candidate = |piece: &Piece, prob: f32| json!([text::inline(piece), prob, piece.id]);
    json!({ "top": row.top.iter().map(|c| candidate(&c.piece, c.prob)).collect::<Vec<_>>(), "tail": row.tail })
}
