//! What draftscope teaches: lessons, what they calculate, and a quiz of rounds that really happened.
//!
//! | room | is |
//! |---|---|
//! | [`lesson`] | the texts and their check, the numbers that they ask about, the record of what was done |
//! | [`theory`] | what follows without a run: the cost model, the map of batch and context, draws under each rule |
//! | [`quiz`] | the bank of rounds, what is shown of each, how an answer is graded and what a wrong one believes |
//!
//! It knows a [`Session`](draftscope_session::Session), which has the measured numbers, and the rules of verification. It
//! knows no screen, no key, no engine and no file of the user: the front end draws lessons, runs what
//! they ask for, and keeps the record.
//!
//! Invariant: a right answer is a fixed one, a measured number, or the recorded verdict of the engine's rule; where a number
//! was not measured, a text says so.

pub mod lesson;
pub mod quiz;
pub mod theory;
