//! Prompts that the empty screen offers to begin with.

/// A prompt, and what makes its answer easy or hard to guess.
pub(super) const STARTERS: [(&str, &str); 5] = [
    ("List seven things a new dog owner should buy.", "a list: its form repeats"),
    ("Write a Python function that reverses a string, with tests.", "code: names and brackets repeat"),
    ("Why does bread rise in the oven?", "prose: more than one word would do"),
    ("Write an email that asks for a day off.", "a letter: set phrases"),
    ("What is 46 times 7?", "arithmetic: one digit is right"),
];
