//! Whether other work on the machine made a turn's figures impossible, in words.

use draftscope_protocol::Lane;

use super::{PassCosts, Turn};

impl Turn {
    /// Why nothing can be predicted from what was measured in this turn: its figures are impossible, since other work on
    /// the machine slowed some passes and not their neighbours. `None` if they are possible, or too few.
    #[must_use]
    pub fn disturbance(&self) -> Option<String> {
        let is_impossible = self.speedup().is_some_and(|speedup| speedup.is_disturbed());
        let width = self.pass_costs().and_then(PassCosts::impossible);
        if !is_impossible && width.is_none() {
            return None;
        }
        let mut text = match width {
            Some(cost) => format!(
                "Passes over {} rows took {:.2}{} of the time of one row. They cannot be faster: other work slowed the \
                 plain passes more than the rounds.",
                cost.rows,
                cost.ratio,
                cost.margin().map_or(String::new(), |margin| format!(" ±{margin:.2}")),
            ),
            None => {
                "The speedup is larger than the tokens of a round, which is impossible here: other work slowed the \
                     plain passes more than the rounds."
                    .to_owned()
            }
        };
        text.push_str(" The speedup is too high by an unknown amount; nothing is predicted from it. Tokens and their fates are exact");
        if let Some(mean) = self.answer(Lane::Speculative).stats().mean_tokens_per_round() {
            text.push_str(&format!(", and so are the {mean:.2} tokens per round"));
        }
        text.push_str(". Pause the other work and send the prompt again.");
        Some(text)
    }
}
