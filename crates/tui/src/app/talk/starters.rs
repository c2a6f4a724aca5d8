//! Prompts that the empty screen offers to begin with.

/// A prompt, and what makes its answer easy or hard to guess.
pub(crate) const STARTERS: [(&str, &str); 5] = [
    ("Write a JavaScript function that adds two numbers.", "code: names and brackets repeat"),
    ("Count from 1 to 20.", "a list: its form repeats"),
    ("Explain what a computer program is to a child.", "common phrases"),
    ("Give me three tips for better sleep.", "new words in a fixed form"),
    ("Why is the sky blue?", "more than one word would do"),
];
