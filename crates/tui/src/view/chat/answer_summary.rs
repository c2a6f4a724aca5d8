//! The line after an answer: its tokens, speed and speedup, and why it ended.

use crate::view::prelude::*;
use crate::view::values::number;
use draftscope_protocol::StopReason;
use draftscope_session::Answer;

/// The line's words, for an answer that wrote so many tokens.
pub(in crate::view) fn text((answer, tokens): (&Answer, usize), turn: &Turn, lane: Lane, reason: StopReason) -> String {
    let speed = number(turn.tokens_per_second(lane), 1);
    let mut text = format!("└ {}", counted(tokens, "token"));
    if let Some(mean) = answer.stats().mean_tokens_per_round().filter(|_| lane != Lane::Plain) {
        text.push_str(&format!(" · {mean:.2} tokens per round"));
    }
    text.push_str(&format!(" · {speed} tok/s"));
    if let Some(speedup) = turn.speedup().filter(|_| lane == Lane::Speculative) {
        text.push_str(&format!(" · {speedup} plain{}", if speedup.is_disturbed() { " (disturbed)" } else { "" }));
    }
    let why = match reason {
        StopReason::Eos => "",
        StopReason::MaxTokens => " · cut at max-tokens",
        StopReason::ContextFull => " · context full",
        StopReason::Stopped => " · stopped",
        StopReason::Refused => " · refused",
        StopReason::BrokenOff => " · the engine broke off",
        StopReason::Measured => " · measured enough",
    };
    text.push_str(why);
    text
}
