//! The progress of a step as text: a fold over its JSON lines, without input or output.

use std::fmt::Write as _;

use serde::Deserialize;

/// Points of a curve that are kept; the oldest are dropped first.
const KEPT: usize = 48;

/// Cells of a bar.
const CELLS: usize = 24;

/// One line of the recipe or of `draftscope generate`. Unknown fields are ignored.
#[derive(Clone, Debug, Default, Deserialize)]
struct Line {
    event: String,
    #[serde(default)]
    step: u64,
    #[serde(default)]
    tokens: u64,
    #[serde(default)]
    tokens_per_s: f64,
    #[serde(default)]
    lr: f64,
    /// Cross entropy by depth, in nats.
    #[serde(default)]
    ce: Vec<f64>,
    /// Share of chain starts at which module and target have the same first choice, by depth.
    #[serde(default)]
    agree: Vec<f64>,
    #[serde(default)]
    conversations: u64,
    #[serde(default)]
    answer_tokens: u64,
    #[serde(default)]
    answer_tokens_per_s: f64,
}

/// What a step has reported so far.
#[derive(Debug)]
pub(super) struct StepProgress {
    title: &'static str,
    /// Tokens to train on, or conversations for each process; none if a step reports neither.
    goal: Option<u64>,
    last: Line,
    /// Cross entropy of the last training line that had figures, by depth, in nats.
    loss: Vec<f64>,
    curves: Vec<Vec<f64>>, // agreement, [depth][time]
    validated: Vec<f64>,
}

impl StepProgress {
    pub(super) fn new(title: &'static str, goal: Option<u64>) -> Self {
        Self { title, goal, last: Line::default(), loss: Vec::new(), curves: Vec::new(), validated: Vec::new() }
    }

    /// Reads a line; returns whether it is one of the recipe's.
    pub(super) fn take(&mut self, line: &str) -> bool {
        let Ok(mut line) = serde_json::from_str::<Line>(line) else {
            return false;
        };
        match line.event.as_str() {
            "train" if !line.agree.is_empty() => self.learn(&line),
            "validation" | "start" | "final" => {
                self.validated.clone_from(&line.agree);
                // these lines have neither of the two, so the last ones stay
                (line.tokens_per_s, line.lr) = (self.last.tokens_per_s, self.last.lr);
            }
            _ => {}
        }
        self.last = line;
        true
    }

    fn learn(&mut self, line: &Line) {
        self.loss.clone_from(&line.ce);
        self.curves.resize(self.curves.len().max(line.agree.len()), Vec::new());
        for (curve, agree) in self.curves.iter_mut().zip(&line.agree) {
            curve.push(agree.clamp(0.0, 1.0));
            if curve.len() > KEPT {
                curve.remove(0);
            }
        }
    }

    /// What is done of the goal, if there is one.
    pub(super) fn done(&self) -> Option<(u64, u64)> {
        Some((self.last.tokens.max(self.last.conversations), self.goal?))
    }

    /// One line.
    pub(super) fn brief(&self) -> String {
        let Line { event, step, tokens, tokens_per_s, lr, conversations, answer_tokens, answer_tokens_per_s, .. } =
            &self.last;
        match event.as_str() {
            "train" | "validation" | "start" | "final" => {
                let share = self.share(*tokens, *tokens_per_s);
                format!("{}: step {step}, {tokens} tokens{share}, {tokens_per_s:.0}/s, rate {lr:.1e}", self.title)
            }
            "states" => format!("{}: {tokens} tokens run again, {tokens_per_s:.0}/s", self.title),
            "progress" | "shard" | "done" => {
                let share = self.share(*conversations, 0.0);
                format!(
                    "{}: {conversations}{share} by one process, {answer_tokens} answer tokens, {answer_tokens_per_s:.0}/s",
                    self.title
                )
            }
            _ => format!("{}: {}", self.title, draftscope::session::text::printable(event)),
        }
    }

    /// The share of the goal that is done, and the time that the rest takes at `rate` per second, if known.
    fn share(&self, done: u64, rate: f64) -> String {
        let Some(goal) = self.goal.filter(|goal| *goal > 0) else {
            return String::new();
        };
        let mut text = format!(" of {goal} ({:.0} %", (100.0 * done as f64 / goal as f64).min(100.0));
        let left = goal.saturating_sub(done) as f64 / rate;
        if rate > 0.0 && left > 0.0 {
            let minutes = (left / 60.0).ceil();
            let _ = match minutes < 120.0 {
                true => write!(text, ", {minutes:.0} min left"),
                false => write!(text, ", {:.0} h left", minutes / 60.0),
            };
        }
        text + ")"
    }

    /// All lines: the brief one, then loss and agreement by depth.
    pub(super) fn text(&self) -> String {
        let mut text = self.brief();
        for (depth, curve) in self.curves.iter().enumerate() {
            let now = curve.last().copied().unwrap_or(0.0);
            let filled = (now * CELLS as f64).round() as usize;
            let bar = "█".repeat(filled) + &"░".repeat(CELLS - filled);
            let loss = self.loss.get(depth).map_or_else(|| "    ".to_owned(), |loss| format!("{loss:4.2}"));
            let validated =
                self.validated.get(depth).map_or_else(String::new, |agree| format!("  validation {agree:.3}"));
            let _ = write!(
                text,
                "\n  depth {}  loss {loss}  agrees {now:.3} {bar}{validated}  {}",
                depth + 1,
                spark(curve)
            );
        }
        text
    }
}

/// A curve between its smallest and largest value.
fn spark(curve: &[f64]) -> String {
    const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let (low, high) = curve.iter().fold((f64::MAX, f64::MIN), |(low, high), x| (low.min(*x), high.max(*x)));
    let step = |x: &f64| STEPS[((x - low) / (high - low).max(1e-9) * 7.0).round() as usize % 8];
    curve.iter().map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn training_lines_become_curves_by_depth() {
        let mut progress = StepProgress::new("training", Some(60_000));
        assert!(
            progress.take(r#"{"event": "start", "step": 0, "tokens": 0, "cooldown_from": null, "agree": [0.25, 0.2]}"#)
        );
        for (step, agree) in [(10, 0.3), (20, 0.4), (30, 0.5)] {
            let line = format!(
                r#"{{"event": "train", "step": {step}, "tokens": {}, "lr": 0.001, "tokens_per_s": 900.4, "ce": [3.5], "agree": [{agree}]}}"#,
                step * 1000
            );
            assert!(progress.take(&line));
        }
        // figures of one step in so many: other lines leave them as they were
        assert!(
            progress.take(r#"{"event": "train", "step": 40, "tokens": 40000, "lr": 0.001, "ce": [], "agree": []}"#)
        );
        let expected = "training: step 40, 40000 tokens of 60000 (67 %), 0/s, rate 1.0e-3\n  depth 1  loss 3.50  agrees 0.500 ████████████░░░░░░░░░░░░  validation 0.250  ▁▅█";
        assert_eq!(progress.text(), expected);
        assert!(progress.take(r#"{"event": "train", "step": 50, "tokens": 50000, "lr": 0.002, "tokens_per_s": 1000}"#));
        assert!(progress.take(r#"{"event": "final", "step": 50, "tokens": 60000, "agree": [0.5]}"#));
        assert_eq!(progress.brief(), "training: step 50, 60000 tokens of 60000 (100 %), 1000/s, rate 2.0e-3");
    }

    #[test]
    fn the_remaining_time_is_shown_in_minutes_or_hours() {
        let progress = StepProgress::new("training", Some(1_000_000));
        assert_eq!(progress.share(400_000, 1000.0), " of 1000000 (40 %, 10 min left)");
        assert_eq!(progress.share(0, 50.0), " of 1000000 (0 %, 6 h left)");
        assert_eq!(progress.share(1_000_400, 50.0), " of 1000000 (100 %)");
        assert_eq!(StepProgress::new("check", None).share(5, 1.0), "");
    }

    #[test]
    fn generation_is_shown_in_one_line_and_other_output_is_skipped() {
        let mut progress = StepProgress::new("conversations", Some(88));
        assert!(progress.take(r#"{"event":"progress","elapsed_s":9.8,"shards":2,"conversations":44,"kept":43,"tokens":10236,"answer_tokens":7387,"answer_tokens_per_s":751.49}"#));
        assert_eq!(progress.text(), "conversations: 44 of 88 (50 %) by one process, 7387 answer tokens, 751/s");
        assert!(!progress.take("Traceback (most recent call last):") && !progress.take("") && !progress.take("[1, 2]"));
        for _ in 0..3 * KEPT {
            progress.take(r#"{"event": "train", "ce": [1e9], "agree": [-5, 7, 0.5, 2]}"#);
        }
        assert_eq!((progress.curves.len(), progress.curves[1].len(), progress.text().lines().count()), (4, KEPT, 5));
    }
}
